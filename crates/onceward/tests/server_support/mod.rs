//! A payments service behind the layer, callers, and a ledger of effects that forgets nothing.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test program uses its own part"
)]

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse as _};
use http::{Request, Response, StatusCode, request::Parts};
use onceward::{
    Scope, Status, Store,
    conformance::FaultyStore,
    protocol::{Found, Stored},
    server::{Idempotency, IdempotencyBuilder, InFlight},
    store::memory::MemoryStore,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt as _;

pub use testbed::{Gate, Pieces, Reply, broken, data, trailers};

/// What really happened, without any constraint: two lines are two effects.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    /// Writes down one effect and gives its number, counted from 1.
    pub fn add(&self, effect: impl Into<String>) -> usize {
        let mut lines = self.0.lock().unwrap();
        lines.push(effect.into());
        lines.len()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A store that can be made to fail, on memory.
pub fn store() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::not_durable(), None)
}

/// A layer whose scope is the caller that a trusted `x-caller` header names, or `anyone`.
pub fn layer(store: impl Store) -> IdempotencyBuilder {
    Idempotency::builder(store, |request: &Parts| {
        let caller = request.headers.get("x-caller").map_or(Ok("anyone"), |value| value.to_str());
        Scope::of("caller", caller.unwrap_or("")).map_err(|error| error.to_string())
    })
    .in_flight(InFlight::Conflict)
}

/// `POST path` with a key and a JSON body.
pub fn post(path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.header("idempotency-key", key).body(body.into()).unwrap()
}

/// Sends one request to a router in this process and reads the answer to its end.
pub async fn send(app: &Router, request: Request<Body>) -> Reply {
    Reply::read(app.clone().oneshot(request).await.unwrap()).await
}

/// Serves a router on a free loopback port, until the test ends.
pub async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends bytes over a new connection and reads until the server closes it, for 5 s at most.
pub async fn raw(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = connection.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
    answer
}

/// Asks again and again until something is true, for 10 s at most.
pub async fn eventually(mut is_true: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while !is_true().await {
        assert!(tokio::time::Instant::now() < end, "it did not become true within 10 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The time of tokio, which a test may pause: leases and retentions end by it.
struct TestClock(tokio::time::Instant);

impl onceward::clock::Clock for TestClock {
    fn now(&self) -> onceward::Timestamp {
        onceward::Timestamp::from_unix_micros(1_700_000_000_000_000).plus(self.0.elapsed())
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A store on the time of tokio. Every engine that is given a clone is a process of its own.
pub fn memory() -> Arc<MemoryStore> {
    let clock = Arc::new(TestClock(tokio::time::Instant::now()));
    Arc::new(MemoryStore::not_durable_with_clock(clock))
}

/// The operation of `anyone` that `layer` makes of `POST /charges` with this key.
pub fn charge(key: &str) -> onceward::OperationId {
    let scope = Scope::of("caller", "anyone").unwrap();
    let name = onceward::OperationName::new("POST /charges").unwrap();
    onceward::OperationId::new(scope, name, onceward::Key::new(key).unwrap())
}

/// What is stored of the operation of [`charge`].
pub async fn stored(store: &impl Store, key: &str) -> Option<Stored> {
    match store.get(&charge(key).digest()).await.unwrap() {
        Found::Record(stored) => Some(*stored),
        Found::Nothing => None,
        Found::Unreadable { .. } => panic!("the record of {key} is damaged"),
    }
}

/// What the record of a key means now.
pub async fn status(store: &impl Store, key: &str) -> Option<Status> {
    stored(store, key).await.map(|stored| stored.status())
}

/// Asks for a charge.
pub async fn ask(app: &Router, key: &str) -> Reply {
    send(app, post("/charges", key, "{}")).await
}

#[track_caller]
pub fn is_problem(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status.as_u16(), &*reply.code()), (status, code), "{reply:?}");
    assert!(!reply.is_replay(), "an error is never a replay");
}

/// Two callers got one answer: equal in status, headers, bytes and trailers.
#[track_caller]
pub fn is_same(one: &Reply, other: &Reply) {
    let lines = |reply: &Reply| {
        let mut lines = reply.headers.clone();
        lines.remove("idempotent-replayed");
        lines
    };
    assert_eq!(one.status, other.status);
    assert_eq!(lines(one), lines(other));
    assert_eq!((&one.body, &one.trailers), (&other.body, &other.trailers));
}

/// Two retries get this very answer again.
pub async fn is_replayed(app: &Router, key: &str, first: &Reply) {
    for _ in 0..2 {
        let replay = ask(app, key).await;
        assert!(replay.is_replay(), "{replay:?}");
        is_same(first, &replay);
    }
}

/// The answer of a shop whose effect and answer are one commit.
pub fn created(text: impl Into<Body>) -> Response<Body> {
    let headers = [("location", "/charges/1"), ("x-of", "the commit")];
    (StatusCode::CREATED, headers, text.into()).into_response()
}

#[track_caller]
pub fn is_charged(reply: &Reply, text: &str) {
    assert_eq!((reply.status.as_u16(), reply.text()), (201, text), "{reply:?}");
    let headers = [reply.header("location"), reply.header("x-of")];
    assert_eq!(headers, [Some("/charges/1"), Some("the commit")], "{reply:?}");
}

/// Polls a future so often and drops it at once; `None`: it was not ready by then.
pub async fn dropped_after<F: Future>(mut polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if polls == 0 => Poll::Ready(None),
            poll => poll.map(Some),
        }
    })
    .await
}
