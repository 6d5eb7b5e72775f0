//! A consumer behind the layer of this crate: effectively once, whatever is lost or killed on the way.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Bytes, routing::post};
use http::{HeaderMap, Request, Response, StatusCode};
use onceward::{
    Body, BoxError, Scope,
    client::{ReqwestService, reqwest_client},
    outbox::{HttpSink, Relay},
    server::Idempotency,
    store::{BoxFuture, sqlite::SqliteStore},
};
use tokio::net::TcpListener;
use tower::Service;

use crate::{
    file::File,
    support::{event, oldest, quick, start, until},
};

const AGGREGATES: usize = 25;
const EACH: usize = 8;

/// What was carried out, in its order, for each aggregate.
type Ledger = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

async fn carry_out(ledger: Ledger, headers: HeaderMap, body: Bytes) -> StatusCode {
    let aggregate = headers["onceward-aggregate"].to_str().unwrap().to_owned();
    let body = String::from_utf8(body.to_vec()).unwrap();
    ledger.lock().unwrap().entry(aggregate).or_default().push(body);
    StatusCode::CREATED
}

fn consumer(ledger: &Ledger) -> Router {
    let ledger = ledger.clone();
    let handler = move |headers, body| carry_out(ledger.clone(), headers, body);
    Router::new().route("/events", post(handler))
}

async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// A network that loses every third answer.
#[derive(Clone)]
struct Lossy {
    service: ReqwestService,
    sent: Arc<AtomicUsize>,
}

impl Lossy {
    fn new() -> Self {
        let service = ReqwestService::new(reqwest_client().build().unwrap());
        Self { service, sent: Arc::default() }
    }
}

impl Service<Request<Body>> for Lossy {
    type Response = Response<reqwest::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_lost = self.sent.fetch_add(1, Ordering::SeqCst) % 3 == 1;
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            match is_lost {
                true => Err("the connection was reset".into()),
                false => Ok(answer),
            }
        })
    }
}

/// Delivers everything over a network that loses answers, by relays that are killed now and then.
async fn deliver(url: &str) {
    let file = File::new();
    let messages = (0..EACH).flat_map(|number| {
        (0..AGGREGATES).map(move |aggregate| event(&format!("order-{aggregate}"), number))
    });
    file.put(&messages.collect::<Vec<_>>());
    let (queue, network) = (file.queue(), Lossy::new());
    let rules = quick().to_builder().attempts(50).build().unwrap();
    for kill_after in [Some(40), Some(100), Some(200), None] {
        let sink = HttpSink::over(network.clone(), url).unwrap();
        let builder = Relay::builder(queue.clone()).rules(rules.clone());
        let builder = builder.lease(Duration::from_secs(1)).sink_with("consumer", sink, oldest());
        let running = start(builder.build().unwrap());
        if let Some(sent) = kill_after {
            until("some were sent", async || network.sent.load(Ordering::SeqCst) >= sent).await;
            running.kill().await;
        } else {
            until("all are there", async || queue.condition().await.unwrap().sinks[0].lag == 0)
                .await;
            running.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_behind_the_layer_carries_each_message_out_once_and_in_order() {
    let directory = testbed::directory();
    let store = SqliteStore::open(directory.path().join("keys.db")).unwrap();
    let scope = |_: &http::request::Parts| Ok::<_, &'static str>(Scope::global());
    let layer = Idempotency::builder(store, scope).require_key().build().unwrap();
    let ledger = Ledger::default();
    deliver(&serve(consumer(&ledger).layer(layer)).await).await;
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.len(), AGGREGATES);
    for (aggregate, carried_out) in ledger.iter() {
        let expected: Vec<_> = (0..EACH).map(|number| format!("{aggregate}/{number}")).collect();
        assert_eq!(*carried_out, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_layer_messages_are_carried_out_twice() {
    let ledger = Ledger::default();
    deliver(&serve(consumer(&ledger)).await).await;
    let carried_out: usize = ledger.lock().unwrap().values().map(Vec::len).sum();
    assert!(carried_out > AGGREGATES * EACH, "the test before would prove nothing");
}
