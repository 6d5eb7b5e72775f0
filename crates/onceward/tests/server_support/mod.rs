//! A payments service behind the layer, callers, and a ledger of effects that forgets nothing.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
};
use http::{HeaderMap, Request, StatusCode, request::Parts};
use onceward::{
    Scope, Store,
    conformance::FaultyStore,
    server::{Idempotency, IdempotencyBuilder},
    stores::memory::MemoryStore,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt as _;

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
}

/// `POST path` with a key and a JSON body.
pub fn post(path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.header("idempotency-key", key).body(body.into()).unwrap()
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Reply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of a problem document, or `""`.
    pub fn code(&self) -> String {
        let problem = self.header("content-type") == Some("application/problem+json");
        if problem { self.json()["code"].as_str().unwrap().to_owned() } else { String::new() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

/// Sends one request to a router in this process and reads the answer to its end.
pub async fn send(app: &Router, request: Request<Body>) -> Reply {
    use http_body_util::BodyExt as _;
    let response = app.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    Reply { status: head.status, headers: head.headers, body, trailers }
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

    fn disagreement(&self) -> Duration {
        Duration::ZERO
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

/// Holds whoever passes until the test lets one on.
#[derive(Clone)]
pub struct Gate {
    arrived: Arc<tokio::sync::Semaphore>,
    open: Arc<tokio::sync::Semaphore>,
}

impl Gate {
    pub fn new() -> Self {
        let semaphore = || Arc::new(tokio::sync::Semaphore::new(0));
        Self { arrived: semaphore(), open: semaphore() }
    }

    pub async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Waits until somebody stands at the gate; each is counted once.
    pub async fn reached(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets one on, now or when it comes.
    pub fn open(&self) {
        self.open.add_permits(1);
    }
}

type Piece = Result<hyper::body::Frame<Bytes>, &'static str>;

/// A body of pieces that come one by one, also late, broken off or with trailers.
pub struct Pieces(tokio::sync::mpsc::UnboundedReceiver<Piece>);

impl Pieces {
    /// These pieces, as fast as they are read.
    pub fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let (sender, body) = Self::channel();
        for piece in pieces {
            sender.send(piece).unwrap();
        }
        body
    }

    /// A body that goes on as long as the sender lives.
    pub fn channel() -> (tokio::sync::mpsc::UnboundedSender<Piece>, Self) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        (sender, Self(receiver))
    }
}

pub fn data(bytes: impl Into<Bytes>) -> Piece {
    Ok(hyper::body::Frame::data(bytes.into()))
}

pub fn trailers(lines: &[(&'static str, &'static str)]) -> Piece {
    let lines = lines.iter().map(|(name, value)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    });
    Ok(hyper::body::Frame::trailers(lines.collect()))
}

/// The connection to whoever made the body broke.
pub fn broken() -> Piece {
    Err("connection reset")
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Piece>> {
        self.0.poll_recv(context)
    }
}
