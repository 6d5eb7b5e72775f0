//! Conditional updates against a real server that keeps versions.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use onceward::{
    Body,
    client::{Conditional, ConditionalError, Next, Retry},
};
use tokio::net::TcpListener;

use crate::fast::{impatient, retry};

/// One resource with a version; and how many of its next writes are done without an answer.
#[derive(Clone, Default)]
struct Store {
    now: Arc<Mutex<Option<(u32, Bytes)>>>,
    weak: bool,
    mute: Arc<AtomicU32>,
    writes: Arc<AtomicU32>,
}

async fn read(State(store): State<Store>) -> Response {
    match &*store.now.lock().unwrap() {
        Some((version, body)) => {
            let weak = if store.weak { "W/" } else { "" };
            ([(header::ETAG, format!("{weak}\"{version}\""))], body.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn write(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> Response {
    store.writes.fetch_add(1, Ordering::SeqCst);
    let done = {
        let mut now = store.now.lock().unwrap();
        let version = now.as_ref().map_or(0, |(version, _)| *version);
        let expected = headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap().to_owned());
        let fits = match expected {
            Some(tag) => now.is_some() && tag == format!("\"{version}\""),
            None => headers.get(header::IF_NONE_MATCH).is_none_or(|_| now.is_none()),
        };
        if fits {
            *now = Some((version + 1, body));
        }
        fits
    };
    let mute =
        store.mute.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if mute.is_ok() {
        std::future::pending::<()>().await;
    }
    if done { StatusCode::NO_CONTENT } else { StatusCode::PRECONDITION_FAILED }.into_response()
}

impl Store {
    fn holding(text: &'static str) -> Self {
        Self {
            now: Arc::new(Mutex::new(Some((1, Bytes::from_static(text.as_bytes()))))),
            ..Self::default()
        }
    }

    async fn serve(&self) -> Uri {
        let app =
            Router::new().route("/it", get(read).put(write).patch(write)).with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        format!("http://{address}/it").parse().unwrap()
    }

    fn text(&self) -> String {
        let now = self.now.lock().unwrap();
        String::from_utf8(now.as_ref().unwrap().1.to_vec()).unwrap()
    }
}

fn conditional(retry: &Retry) -> Conditional<Client<HttpConnector, Body>> {
    Conditional::new(retry, Client::builder(TokioExecutor::new()).build_http())
}

#[tokio::test]
async fn twenty_clients_that_add_one_each_lose_nothing() {
    let store = Store::holding("0");
    let uri = store.serve().await;
    let adders: Vec<_> = (0..20)
        .map(|_| {
            let uri = uri.clone();
            tokio::spawn(async move {
                let mut conditional = conditional(&retry()).rounds(1_000);
                let add = |current: &onceward::client::Current| {
                    let number: u32 = std::str::from_utf8(&current.body)?.parse()?;
                    Ok(Some(Next::put((number + 1).to_string())))
                };
                conditional.update(&uri, add).await.unwrap().rounds
            })
        })
        .collect();
    let mut rounds = 0;
    for adder in adders {
        rounds += adder.await.unwrap();
    }
    assert_eq!(store.text(), "20");
    assert_eq!(rounds, store.writes.load(Ordering::SeqCst), "each round is one write");
}

#[tokio::test]
async fn a_412_after_an_unanswered_attempt_is_read_and_compared() {
    let store = Store::holding("{\"a\": 1}");
    let uri = store.serve().await;
    store.mute.store(1, Ordering::SeqCst);
    let mut conditional = conditional(&impatient());
    let updated = conditional.update(&uri, |_| Ok(Some(Next::put("{\"a\":2}")))).await.unwrap();
    assert!(updated.found_done, "the first attempt had done it");
    assert_eq!((updated.rounds, updated.etag.unwrap().to_string()), (1, "\"2\"".to_owned()));
    assert_eq!(store.writes.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn after_a_412_that_somebody_else_caused_the_change_is_made_anew() {
    let store = Store::holding("a");
    let uri = store.serve().await;
    let shared = store.clone();
    let mut first = true;
    let mut conditional = conditional(&retry());
    let updated = conditional.update(&uri, move |current| {
        if std::mem::take(&mut first) {
            *shared.now.lock().unwrap() = Some((7, Bytes::from_static(b"theirs")));
        }
        let mut text = current.body.to_vec();
        text.extend_from_slice(b"+ours");
        Ok(Some(Next::put(text)))
    });
    assert_eq!(updated.await.unwrap().rounds, 2);
    assert_eq!(store.text(), "theirs+ours");
}

#[tokio::test]
async fn nothing_to_do_writes_nothing_and_conflicts_end() {
    let store = Store::holding("a");
    let uri = store.serve().await;
    let mut conditional = conditional(&retry()).rounds(2);
    let nothing = conditional.update(&uri, |_| Ok(None)).await.unwrap();
    assert_eq!((nothing.status, store.writes.load(Ordering::SeqCst)), (None, 0));
    let shared = store.clone();
    let error = conditional.update(&uri, move |_| {
        let mut now = shared.now.lock().unwrap();
        now.as_mut().unwrap().0 += 1;
        Ok(Some(Next::patch("b").content_type("text/plain")))
    });
    assert!(matches!(error.await, Err(ConditionalError::Conflict(2))));
    assert_eq!(store.text(), "a");
}

#[tokio::test]
async fn what_exists_is_not_created_and_a_creation_without_answer_is_found() {
    let store = Store::default();
    let uri = store.serve().await;
    store.mute.store(1, Ordering::SeqCst);
    let mut conditional = conditional(&impatient());
    let created = conditional.create(&uri, Next::put("mine")).await.unwrap();
    assert!(created.found_done);
    assert_eq!(store.text(), "mine");
    let error = conditional.create(&uri, Next::put("another")).await.unwrap_err();
    assert!(matches!(error, ConditionalError::Exists), "{error}");
    assert_eq!(store.text(), "mine");
}

#[tokio::test]
async fn without_a_strong_version_nothing_is_written() {
    let store = Store { weak: true, ..Store::holding("a") };
    let uri = store.serve().await;
    let result = conditional(&retry()).update(&uri, |_| Ok(Some(Next::put("b")))).await;
    assert!(matches!(result, Err(ConditionalError::NoETag)));
    assert_eq!(store.writes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_change_whose_outcome_is_not_known_is_not_made_again() {
    let store = Store::holding("a");
    let uri = store.serve().await;
    for put in [true, false] {
        let before = store.text();
        let writes = store.writes.load(Ordering::SeqCst);
        store.mute.store(1, Ordering::SeqCst);
        // Once the first write has arrived, somebody else adds to it.
        let shared = store.clone();
        let other = tokio::spawn(async move {
            while shared.writes.load(Ordering::SeqCst) == writes {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut now = shared.now.lock().unwrap();
            let (version, text) = now.take().unwrap();
            *now = Some((version + 1, [&text[..], b"+theirs"].concat().into()));
        });
        let mut conditional = conditional(&impatient());
        let updated = conditional.update(&uri, |current| {
            let text = [&current.body[..], b"+ours"].concat();
            Ok(Some(if put { Next::put(text) } else { Next::patch(text) }))
        });
        let error = tokio::time::timeout(Duration::from_secs(60), updated).await.unwrap();
        other.await.unwrap();
        assert!(matches!(error, Err(ConditionalError::Unknown(_))), "{error:?}");
        assert_eq!(store.text(), format!("{before}+ours+theirs"), "it is made once");
    }
}

#[tokio::test]
async fn a_change_without_any_answer_is_read_and_compared() {
    let store = Store::holding("a");
    let uri = store.serve().await;
    store.mute.store(3, Ordering::SeqCst);
    let updated = conditional(&impatient()).update(&uri, |_| Ok(Some(Next::put("b")))).await;
    let updated = updated.unwrap();
    assert!(updated.found_done && updated.status.is_none());
}
