//! Trap 1: the client goes away, and what it asked for is settled all the same.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    routing::post as on_post,
};
use onceward::{
    Digest, Status, Store, StoreError,
    protocol::Found,
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};

use crate::{
    server_support::{Gate, Ledger, eventually, layer, memory, raw, serve, status, stored},
    traps::fixture::charging,
};

/// How a client goes away.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Close,
    Reset,
}

impl Leave {
    fn leave(self, connection: TcpStream) {
        if matches!(self, Self::Reset) {
            connection.set_zero_linger().unwrap();
        }
        drop(connection);
    }
}

/// A service on a socket that knows when the server has let go of an exchange.
struct Served {
    address: SocketAddr,
    let_go: Arc<Semaphore>,
}

/// Tells that an exchange is over for the server, by an answer or because the client is gone.
struct LetGo(Arc<Semaphore>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

impl Served {
    async fn new(app: Router) -> Self {
        let let_go = Arc::new(Semaphore::new(0));
        let watched = let_go.clone();
        let watch = move |request: Request, next: Next| {
            let let_go = LetGo(watched.clone());
            async move {
                let _let_go = let_go;
                next.run(request).await
            }
        };
        let address = serve(app.layer(middleware::from_fn(watch))).await;
        Self { address, let_go }
    }

    async fn start(&self, bytes: &[u8]) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        connection
    }

    async fn has_let_go(&self) {
        self.let_go.acquire().await.unwrap().forget();
    }

    async fn answer(&self, bytes: &[u8]) -> String {
        String::from_utf8(raw(self.address, bytes).await).unwrap()
    }

    /// Asks until the operation has ended, and is then given the stored answer.
    async fn is_replayed(&self, bytes: &[u8], body: &str) {
        eventually(async || !self.answer(bytes).await.contains("in-progress")).await;
        let answer = self.answer(bytes).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        assert!(answer.contains("idempotent-replayed: true\r\n"), "{answer}");
        assert!(answer.ends_with(body), "{answer}");
    }
}

fn charge_bytes(key: &str) -> Vec<u8> {
    format!(
        "POST /charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: 14\r\n\r\n{{\"cents\": 500}}"
    )
    .into_bytes()
}

/// The client closes its connection at any point after the handler starts, and also before.
#[tokio::test]
async fn trap_1_detached_settlement() {
    for leave in [Leave::Close, Leave::Reset] {
        closed_while_the_handler_runs(leave).await;
        closed_while_the_end_is_made_durable(leave).await;
        closed_before_the_answer_is_read(leave).await;
        closed_in_the_middle_of_the_answer(leave).await;
        closed_before_the_request_is_read(leave).await;
    }
}

async fn closed_while_the_handler_runs(leave: Leave) {
    let (ledger, gate, store) = (Ledger::default(), Gate::closed(), memory());
    let app = charging(&ledger, &gate, layer(store.clone()).build().unwrap());
    let server = Served::new(app).await;
    let request = charge_bytes("k");
    let connection = server.start(&request).await;
    gate.reached().await;
    leave.leave(connection);
    server.has_let_go().await;
    assert_eq!(status(&store, "k").await, Some(Status::InProgress), "it runs on: {leave:?}");
    assert!(server.answer(&request).await.contains("in-progress"), "and nobody else runs it");
    gate.open();
    server.is_replayed(&request, "charge 1").await;
    assert_eq!(ledger.len(), 1, "{leave:?}");
}

/// Holds every change that is not a claim: what has run is not durable before the test says so.
struct HeldEnd {
    inner: Arc<MemoryStore>,
    gate: Gate,
}

impl Store for HeldEnd {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            if !change.is_claim() {
                self.gate.pass().await;
            }
            self.inner.swap(change).await
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.inner.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.inner.sweep(limit)
    }
}

async fn closed_while_the_end_is_made_durable(leave: Leave) {
    let (ledger, gate, store) = (Ledger::default(), Gate::closed(), memory());
    let held = HeldEnd { inner: store.clone(), gate: Gate::closed() };
    let end = held.gate.clone();
    gate.open();
    let app = charging(&ledger, &gate, layer(held).build().unwrap());
    let server = Served::new(app).await;
    let request = charge_bytes("k");
    let connection = server.start(&request).await;
    end.reached().await;
    assert_eq!(ledger.len(), 1, "the handler has ended");
    leave.leave(connection);
    server.has_let_go().await;
    assert_eq!(status(&store, "k").await, Some(Status::InProgress));
    end.open();
    server.is_replayed(&request, "charge 1").await;
    assert_eq!(ledger.len(), 1, "{leave:?}");
}

async fn closed_before_the_answer_is_read(leave: Leave) {
    let (ledger, gate, store) = (Ledger::default(), Gate::closed(), memory());
    gate.open();
    let app = charging(&ledger, &gate, layer(store.clone()).build().unwrap());
    let server = Served::new(app).await;
    let request = charge_bytes("k");
    let connection = server.start(&request).await;
    server.has_let_go().await;
    assert_eq!(status(&store, "k").await, Some(Status::Succeeded), "durable before it is sent");
    leave.leave(connection);
    server.is_replayed(&request, "charge 1").await;
    assert_eq!(ledger.len(), 1, "{leave:?}");
}

async fn closed_in_the_middle_of_the_answer(leave: Leave) {
    let (ledger, store) = (Ledger::default(), memory());
    let made = ledger.clone();
    let handler = async move || {
        made.add("charge");
        (StatusCode::CREATED, "large ".repeat(1 << 20))
    };
    let idempotency = layer(store.clone()).spool(store.clone()).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let server = Served::new(app).await;
    let request = charge_bytes("k");
    let mut connection = server.start(&request).await;
    connection.read_exact(&mut [0; 1000]).await.unwrap();
    leave.leave(connection);
    server.is_replayed(&request, &"large ".repeat(1 << 20)).await;
    assert_eq!(ledger.len(), 1, "{leave:?}");
}

/// Half a request means nothing: it runs nothing and binds nothing.
async fn closed_before_the_request_is_read(leave: Leave) {
    let (ledger, gate, store) = (Ledger::default(), Gate::closed(), memory());
    gate.open();
    let app = charging(&ledger, &gate, layer(store.clone()).build().unwrap());
    let server = Served::new(app).await;
    let request = charge_bytes("k");
    let connection = server.start(&request[..request.len() - 5]).await;
    leave.leave(connection);
    server.has_let_go().await;
    assert_eq!((ledger.len(), stored(&store, "k").await), (0, None), "{leave:?}");
    let answer = server.answer(&request).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && !answer.contains("replayed"), "{answer}");
    server.is_replayed(&request, "charge 1").await;
    assert_eq!(ledger.len(), 1, "{leave:?}");
}
