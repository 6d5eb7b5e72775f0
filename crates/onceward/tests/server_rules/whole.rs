//! Rule 18: whole answers only; what cannot be kept is said to be done, and never done again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use http::{HeaderName, HeaderValue, Response};
use http_body_util::BodyExt as _;
use onceward::{
    Digest, State, Store, StoreError,
    protocol::{Found, StoredBody},
    server::{IdempotencyBuilder, NotKept, Resource},
    store::{BoxFuture, Change, Spool, SpoolId, Swap, memory::MemoryStore},
    telemetry,
};
use tower::ServiceExt as _;

use crate::{
    fixture::{Fixture, answering, ask, payment, text, told},
    server_support::{Ledger, Pieces, data, layer, send, trailers},
};

/// Small limits, and the store itself as the spool.
fn spooling(max_inline: usize, max_response: usize) -> Fixture {
    let mut fixture = Fixture::new(|options| options);
    let spool = fixture.store.clone();
    let small = |options: IdempotencyBuilder| {
        options.spool(spool).max_inline(max_inline).max_response(max_response)
    };
    fixture.idempotency = fixture.idempotency.with(small).unwrap();
    fixture
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

fn sized(fixture: &Fixture, length: usize) -> Router {
    fixture.app(answering(&fixture.ledger, move |_| {
        let mut answer = text(201, bytes(length));
        answer.headers_mut().insert("location", HeaderValue::from_static("/payments/7"));
        answer
    }))
}

#[tokio::test]
async fn rule_18_an_answer_is_kept_inline_or_spooled_by_its_size() {
    for (length, expected) in [
        (0, "inline"),
        (7, "inline"),
        (8, "inline"),
        (9, "spooled"),
        (15, "spooled"),
        (16, "spooled"),
        (17, "unavailable"),
        (100, "unavailable"),
    ] {
        let fixture = spooling(8, 16);
        let app = sized(&fixture, length);
        let first = send(&app, payment()).await;
        assert_eq!((first.status.as_u16(), &first.body[..]), (201, &bytes(length)[..]));
        assert!(first.header("idempotency-expires").is_some(), "it has ended");
        let State::Succeeded(outcome) = fixture.record(&first).await.record.state else {
            panic!("it succeeded");
        };
        let kept = match outcome.body {
            StoredBody::Inline(_) => "inline",
            StoredBody::Spooled { .. } => "spooled",
            StoredBody::Reference { .. } => "reference",
            StoredBody::Unavailable => "unavailable",
        };
        assert_eq!(kept, expected, "{length} bytes");
        for _ in 0..2 {
            let retry = send(&app, payment()).await;
            assert_eq!(retry.header("location"), Some("/payments/7"));
            match expected {
                "unavailable" => assert_eq!(told(&retry), "409 result-unavailable"),
                _ => assert!(retry.is_replay() && retry.body == first.body, "{length} bytes"),
            }
        }
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_18_without_a_spool_large_answers_are_not_kept() {
    for (length, kept) in [(7, true), (8, true), (9, false), (17, false)] {
        let fixture = Fixture::new(|options| options.max_inline(8).max_response(16));
        let app = sized(&fixture, length);
        assert_eq!(send(&app, payment()).await.body, bytes(length));
        assert_eq!(send(&app, payment()).await.is_replay(), kept, "{length} bytes");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_18_large_answers_come_back_byte_by_byte() {
    let chunk = 256 << 10;
    for length in [chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1, (8 << 20) - 1, 8 << 20] {
        let fixture = spooling(64 << 10, 8 << 20);
        let app = sized(&fixture, length);
        let expected = bytes(length);
        assert!(send(&app, payment()).await.body == expected, "{length} bytes");
        let replay = send(&app, payment()).await;
        assert!(replay.is_replay() && replay.body == expected, "{length} bytes");
    }
    let fixture = spooling(64 << 10, 8 << 20);
    let app = sized(&fixture, (8 << 20) + 1);
    assert_eq!(send(&app, payment()).await.body.len(), (8 << 20) + 1);
    assert_eq!(ask(&app, payment()).await, "409 result-unavailable");
}

#[tokio::test]
async fn rule_18_trailers_of_a_spooled_answer_are_replayed() {
    let fixture = spooling(2, 16);
    let app = fixture.app(answering(&fixture.ledger, |_| {
        text(200, Body::new(Pieces::of(["rec", "eipt"]).then(trailers(&[("x-sum", b"7")]))))
    }));
    let first = send(&app, payment()).await;
    let replay = send(&app, payment()).await;
    assert!(replay.is_replay());
    assert_eq!((&replay.body, &replay.trailers), (&first.body, &first.trailers));
    assert_eq!(replay.trailers.unwrap()["x-sum"], "7");
}

/// The only test here that damages anything: it counts the alarms of the whole program.
#[tokio::test]
async fn rule_18_a_damaged_answer_is_unavailable_and_alarms() {
    for damage in ["gone", "changed"] {
        let fixture = spooling(8, 16);
        let app = sized(&fixture, 16);
        let first = send(&app, payment()).await;
        assert!(send(&app, payment()).await.is_replay());
        let fence = fixture.record(&first).await.record.fence;
        let operation = first.header("onceward-operation").unwrap().parse().unwrap();
        let id = SpoolId { operation, fence };
        match damage {
            "gone" => fixture.store.discard(&id).await.unwrap(),
            _ => fixture.store.put(&id, 0, &[0; 16]).await.unwrap(),
        }
        let alarms = telemetry::RECORD_UNREADABLE.count();
        let retry = send(&app, payment()).await;
        assert_eq!(told(&retry), "409 result-unavailable", "{damage}");
        assert_eq!(retry.header("location"), Some("/payments/7"));
        assert_eq!(telemetry::RECORD_UNREADABLE.count(), alarms + 1, "{damage}");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

/// A spool that can be made to fail.
struct Weak {
    inner: MemoryStore,
    down: Arc<AtomicBool>,
}

impl Weak {
    fn check(&self) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the disk is gone (injected)".into())),
            false => Ok(()),
        }
    }
}

impl Store for Weak {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        self.inner.swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.inner.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.inner.sweep(limit)
    }
}

impl Spool for Weak {
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.inner.put(id, index, chunk).await
        })
    }

    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.inner.chunk(id, index).await
        })
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.discard(id)
    }
}

#[tokio::test(start_paused = true)]
async fn rule_18_a_spool_that_fails_never_makes_it_run_again() {
    for fails_at_first in [true, false] {
        let down = Arc::new(AtomicBool::new(fails_at_first));
        let store = Arc::new(Weak { inner: MemoryStore::not_durable(), down: down.clone() });
        let ledger = Ledger::default();
        let idempotency = layer(store.clone()).spool(store).max_inline(8).build().unwrap();
        let service = answering(&ledger, |_| text(201, "a long receipt"));
        let app = Router::new().route("/pay", service).layer(idempotency);
        assert_eq!(ask(&app, payment()).await, "201 a long receipt");
        down.store(true, Ordering::SeqCst);
        let retry = send(&app, payment()).await;
        let expected =
            if fails_at_first { "409 result-unavailable" } else { "503 store-unavailable" };
        assert_eq!(told(&retry), expected);
        down.store(false, Ordering::SeqCst);
        let expected =
            if fails_at_first { "409 result-unavailable" } else { "201 a long receipt replayed" };
        assert_eq!(ask(&app, payment()).await, expected);
        assert_eq!(ledger.len(), 1);
    }
}

/// The record is durable before the first event leaves, and nobody waits for the last one.
#[tokio::test(start_paused = true)]
async fn rule_18_an_event_stream_is_done_before_it_is_streamed() {
    let fixture = Fixture::new(|options| options);
    let (events, body) = Pieces::channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let app = fixture.app(answering(&fixture.ledger, move |_| {
        let mut answer = text(200, Body::new(body.lock().unwrap().take().unwrap()));
        let lines = answer.headers_mut();
        lines.insert("content-type", HeaderValue::from_static("Text/Event-Stream; charset=utf-8"));
        lines.insert("location", HeaderValue::from_static("/events/7"));
        answer
    }));
    let response = app.clone().oneshot(payment()).await.unwrap();
    assert!(response.headers().contains_key("idempotency-completed"), "it has ended already");
    let retry = send(&app, payment()).await;
    assert_eq!(told(&retry), "409 result-unavailable");
    assert_eq!(retry.header("location"), Some("/events/7"));
    let mut stream = response.into_body();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(data(event)).unwrap();
        let frame = tokio::time::timeout(Duration::from_secs(1), stream.frame()).await;
        assert_eq!(frame.unwrap().unwrap().unwrap().into_data().unwrap(), event);
    }
    drop(events);
    assert!(stream.frame().await.is_none());
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_18_too_many_header_bytes_are_not_kept_except_the_location() {
    let most = 32 << 10;
    for (total, kept) in [(most - 1, true), (most, true), (most + 1, false)] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| {
            let mut answer = text(201, "receipt");
            let location = HeaderValue::from_static("/payments/7");
            let used = "location".len() + location.len() + 4;
            answer.headers_mut().insert("location", location);
            let name = HeaderName::from_static("x-large");
            let value = "v".repeat(total - used - "x-large".len() - 4);
            answer.headers_mut().insert(name, value.parse().unwrap());
            answer
        }));
        assert_eq!(ask(&app, payment()).await, "201 receipt");
        let retry = send(&app, payment()).await;
        let expected = if kept { "201 receipt replayed" } else { "409 result-unavailable" };
        assert_eq!(told(&retry), expected, "{total} bytes");
        assert_eq!(retry.header("location"), Some("/payments/7"));
        assert_eq!(fixture.ledger.len(), 1);
    }
}

fn with_location(extend: impl FnOnce(&mut http::Extensions)) -> Response<Body> {
    let mut answer = text(201, "one-time password: 123456");
    answer.headers_mut().insert("location", HeaderValue::from_static("/payments/7"));
    extend(answer.extensions_mut());
    answer
}

#[tokio::test]
async fn rule_18_an_answer_that_must_not_be_kept_is_not() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(answering(&fixture.ledger, |_| {
        with_location(|extensions| {
            extensions.insert(NotKept);
        })
    }));
    let first = send(&app, payment()).await;
    assert_eq!(told(&first), "201 one-time password: 123456");
    let State::Succeeded(outcome) = fixture.record(&first).await.record.state else {
        panic!("it succeeded");
    };
    assert_eq!((outcome.status, outcome.body), (201, StoredBody::Unavailable));
    let retry = send(&app, payment()).await;
    assert_eq!(told(&retry), "409 result-unavailable");
    assert_eq!(retry.header("location"), Some("/payments/7"));
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_18_an_answer_may_be_kept_as_a_reference_and_rebuilt() {
    type Choice = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let cases: [(Choice, &str); 4] = [
        (|options| options, "201 one-time password: 123456 replayed"),
        (
            |options| {
                options.rebuild(|resource: Resource| async move {
                    let text = format!("{} {}", resource.kind(), resource.id());
                    let answer = Response::builder().status(500).header("content-type", "text/x");
                    Ok(Some(answer.header("content-length", "999").body(text.into())?))
                })
            },
            "201 payment 7 replayed",
        ),
        (|options| options.rebuild(|_| async { Ok(None) }), "409 result-unavailable"),
        (
            |options| options.rebuild(|_| async { Err("the database is down".into()) }),
            "409 result-unavailable",
        ),
    ];
    for (choose, expected) in cases {
        let fixture = Fixture::new(choose);
        let app = fixture.app(answering(&fixture.ledger, |_| {
            with_location(|extensions| {
                extensions.insert(Resource::new("payment", "7"));
            })
        }));
        assert_eq!(ask(&app, payment()).await, "201 one-time password: 123456");
        let retry = send(&app, payment()).await;
        assert_eq!(told(&retry), expected);
        assert_eq!(retry.header("location"), Some("/payments/7"));
        if expected == "201 payment 7 replayed" {
            assert_eq!(retry.header("content-type"), Some("text/x"), "of what was rebuilt");
            assert_eq!(retry.header("content-length"), Some("9"), "its length is its own");
        }
        assert_eq!(fixture.ledger.len(), 1);
    }
}

/// A reference needs no bytes: it is kept whatever the size of the answer.
#[tokio::test]
async fn rule_18_a_reference_is_kept_also_of_a_large_answer() {
    let fixture = Fixture::new(|options| {
        let options = options.max_inline(8).max_response(16);
        options.rebuild(|_| async { Ok(Some(Response::new("rebuilt".into()))) })
    });
    let app = fixture.app(answering(&fixture.ledger, |_| {
        with_location(|extensions| {
            extensions.insert(Resource::new("payment", "7"));
        })
    }));
    assert_eq!(ask(&app, payment()).await, "201 one-time password: 123456");
    assert_eq!(ask(&app, payment()).await, "201 rebuilt replayed");
    assert_eq!(fixture.ledger.len(), 1);
}
