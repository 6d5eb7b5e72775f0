//! A payments service behind the layer, callers, and a ledger of effects that forgets nothing.
#![allow(dead_code, reason = "each test program uses its own part")]

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
