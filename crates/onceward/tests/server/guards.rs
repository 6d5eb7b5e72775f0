//! What the layer guards against, beyond the rules: late services, wrong resolvers, wrong lengths,
//! blocked threads, long outages, memory.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, Response, StatusCode},
    response::IntoResponse as _,
    routing::post as on_post,
};
use onceward::{
    Digest, Effect, Engine, Outcome, Resolution, Store, StoreError,
    clock::ManualClock,
    protocol::Found,
    server::{Claim, Idempotency, NotKept, Resource},
    store::{BoxFuture, Change, Spool, SpoolId, Swap, memory::MemoryStore},
};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::server_support::{
    Gate, Ledger, Pieces, data, eventually, layer, memory, post, raw, send, serve, store,
};

const LEASE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_resolver_is_never_asked_about_the_operation_of_another_route() {
    let clock = Arc::new(ManualClock::default());
    let engine = Engine::new(MemoryStore::not_durable_with_clock(clock.clone()));
    let scope = |_: &_| onceward::Scope::of("caller", "anyone");
    let charges = Idempotency::builder(engine.clone(), scope)
        .operation("charge.create")
        .resolver(|_| async { Ok(Some(Resolution::Never)) })
        .build()
        .unwrap();
    let refunds = Idempotency::builder(engine, scope).operation("refund.create").build().unwrap();
    let (ledger, made) = (Ledger::default(), Ledger::default());
    let refund = {
        let ledger = ledger.clone();
        async move || {
            ledger.add("refund");
            StatusCode::BAD_GATEWAY
        }
    };
    let charge = async move || format!("charge {}", made.add("charge"));
    let app = Router::new()
        .route("/charges", on_post(charge))
        .layer(charges.clone())
        .merge(Router::new().route("/refunds", on_post(refund)).layer(refunds))
        .merge(charges.status_routes());

    let first = send(&app, post("/refunds", "k", "{}")).await;
    clock.advance(Duration::from_secs(24 * 3600));
    let url = format!("/.onceward/operations/{}", first.header("onceward-operation").unwrap());
    let status = send(&app, Request::get(url).body(Body::empty()).unwrap()).await;
    assert_eq!(status.json()["state"], "unknown");
    assert_eq!(send(&app, post("/refunds", "k", "{}")).await.code(), "outcome-unknown");
    assert_eq!(ledger.len(), 1);
}

/// Becomes ready when it is told to.
#[derive(Clone)]
struct Late {
    ready: Arc<AtomicBool>,
    ledger: Ledger,
}

impl Service<Request<Body>> for Late {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.ready.load(Ordering::SeqCst) {
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.ledger.add("charge");
        ready(Ok(Response::new(Body::from("charged"))))
    }
}

#[tokio::test]
async fn a_service_that_becomes_ready_too_late_is_not_called() {
    let (ready, ledger) = (Arc::new(AtomicBool::new(false)), Ledger::default());
    let idempotency = layer(memory()).lease(LEASE).max_run(LEASE).build().unwrap();
    let service = idempotency.layer(Late { ready: ready.clone(), ledger: ledger.clone() });
    let first = service.clone().oneshot(post("/charges", "k", "{}")).await.unwrap();
    assert_eq!(first.status(), 504, "nobody knows yet");
    ready.store(true, Ordering::SeqCst);
    eventually(async || idempotency.engine().unsettled() == 0).await;
    assert_eq!(ledger.len(), 0, "somebody else may be running by now");
    let retry = service.oneshot(post("/charges", "k", "{}")).await.unwrap();
    assert_eq!((retry.status().as_u16(), ledger.len()), (200, 1), "the key was given free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_its_thread_stays_the_owner() {
    // Long enough for a machine that is busy with other tests.
    const LEASE: Duration = Duration::from_millis(600);
    for effect in [Effect::External, Effect::Repeatable { within: Duration::from_secs(60) }] {
        let (ledger, gate) = (Ledger::default(), Gate::closed());
        let handler = {
            let (ledger, gate) = (ledger.clone(), gate.clone());
            async move || {
                ledger.add("charge");
                gate.open();
                std::thread::sleep(LEASE * 3);
                "charged"
            }
        };
        let idempotency = layer(MemoryStore::not_durable()).lease(LEASE).effect(effect);
        let idempotency = idempotency.build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        let first = {
            let app = app.clone();
            tokio::spawn(async move { send(&app, post("/charges", "k", "{}")).await })
        };
        gate.pass().await;
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(send(&app, post("/charges", "k", "{}")).await.code(), "in-progress");
        assert_eq!((first.await.unwrap().text(), ledger.len()), ("charged", 1), "{effect:?}");
    }
}

#[tokio::test]
async fn a_wrong_length_that_a_resolver_found_does_not_mix_up_a_connection() {
    let found = || Outcome::inline(200, b"ok".to_vec()).header("content-length", b"60");
    let found = move || found().header("transfer-encoding", b"chunked").header("x-kept", b"1");
    let resolver = move |_| async move { Ok(Some(Resolution::Applied(found()))) };
    let idempotency = layer(memory()).resolver(resolver).build().unwrap();
    let app = Router::new()
        .route("/lost", on_post(async || StatusCode::BAD_GATEWAY))
        .route("/other", on_post(async || "another answer"))
        .layer(idempotency);
    let address = serve(app).await;
    let request = |path: &str, end: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 0\r\n{end}\r\n"
        )
    };
    raw(address, request("/lost", "connection: close\r\n").as_bytes()).await;
    let both = request("/lost", "") + &request("/other", "connection: close\r\n");
    let answers = String::from_utf8(raw(address, both.as_bytes()).await).unwrap();
    let (first, second) = answers.split_once("\r\n\r\nok").unwrap();
    assert!(first.contains("content-length: 2") && first.contains("x-kept: 1"), "{answers}");
    assert!(!first.contains("transfer-encoding"), "{answers}");
    assert!(second.starts_with("HTTP/1.1 200") && second.ends_with("another answer"), "{answers}");
}

#[tokio::test]
async fn a_refusal_that_was_not_kept_is_not_called_done() {
    let handler = async || {
        let mut declined = (StatusCode::PAYMENT_REQUIRED, "declined").into_response();
        declined.extensions_mut().insert(NotKept);
        declined
    };
    let idempotency = layer(memory()).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    assert_eq!(send(&app, post("/charges", "k", "{}")).await.status, 402);
    let retry = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!(retry.code(), "result-unavailable");
    assert!(retry.json()["detail"].as_str().unwrap().contains("status 402"), "{}", retry.text());
}

#[tokio::test]
async fn what_is_rebuilt_has_its_own_encoding() {
    let handler = async || {
        let mut zipped =
            ([("content-encoding", "gzip"), ("x-kept", "1")], "zipped").into_response();
        zipped.extensions_mut().insert(Resource::new("payment", "pay_7"));
        zipped
    };
    let rebuild = |_| async { Ok(Some(Response::new(Bytes::from("plain")))) };
    let idempotency = layer(memory()).rebuild(rebuild).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    send(&app, post("/charges", "k", "{}")).await;
    let replay = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!((replay.text(), replay.header("content-encoding")), ("plain", None));
    assert_eq!(replay.header("x-kept"), Some("1"));
}

#[tokio::test]
async fn failing_open_goes_on_however_many_requests_come_during_an_outage() {
    let store = Arc::new(store());
    let idempotency = layer(store.clone()).pass_when_store_is_down().build().unwrap();
    let handler = async || "charged";
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency.clone());
    store.set_down(true);
    for round in 0..12 {
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..1000 {
            let app = app.clone();
            let request = post("/charges", &format!("{round}-{number}"), "{}");
            requests.spawn(async move { send(&app, request).await.status });
        }
        assert!(requests.join_all().await.iter().all(|status| *status == 200), "round {round}");
    }
    let given_back = idempotency.engine().unsettled();
    let most = Engine::MAX_GIVEN_BACK;
    assert!((most - 1000..=most).contains(&given_back), "{given_back} claims are given back");
    store.set_down(false);
    let first = send(&app, post("/charges", "after", "{}")).await;
    assert_eq!(first.header("onceward-unprotected"), None);
    assert!(send(&app, post("/charges", "after", "{}")).await.is_replay());
}

#[tokio::test]
async fn handlers_that_hang_do_not_keep_the_room_of_their_requests() {
    let large = Idempotency::MAX_BUFFERED / 4;
    let idempotency = layer(memory()).max_request(large).lease(LEASE).max_run(LEASE);
    let idempotency = idempotency.build().unwrap();
    let handler = async |request: Request<Body>| {
        drop(request);
        std::future::pending::<&str>().await
    };
    let app = Router::new()
        .route("/hangs", on_post(handler))
        .route("/charges", on_post(async || "charged"))
        .layer(idempotency);
    for number in 0..5 {
        let request = post("/hangs", &format!("h{number}"), vec![b'x'; large]);
        assert_eq!(send(&app, request).await.code(), "outcome-unknown", "request {number}");
    }
    assert_eq!(send(&app, post("/charges", "k", "{}")).await.text(), "charged");
}

#[tokio::test]
async fn large_answers_that_are_passed_on_take_up_room_until_they_are_sent() {
    let idempotency = layer(memory()).max_response(Idempotency::MAX_BUFFERED / 4).build().unwrap();
    let handler = async || {
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        Body::new(Pieces::of((0..65).map(|_| data(piece.clone()))))
    };
    let app = Router::new()
        .route("/large", on_post(handler))
        .route("/charges", on_post(async || "charged"))
        .layer(idempotency);
    let mut unsent = Vec::new();
    for number in 0..4 {
        let request = post("/large", &format!("l{number}"), "");
        unsent.push(app.clone().oneshot(request).await.unwrap());
    }
    let refused = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!(refused.code(), "overloaded", "{refused:?}");
    drop(unsent);
    assert_eq!(send(&app, post("/charges", "k", "{}")).await.text(), "charged");
}

#[tokio::test]
async fn one_peer_holds_its_share_of_the_memory_and_leaves_the_rest() {
    let share = 100_000;
    let address =
        |parts: &http::request::Parts| parts.headers.get("x-peer")?.to_str().ok()?.parse().ok();
    let idempotency = layer(memory()).max_request(share).max_response(share);
    let idempotency = idempotency.peer_memory(share, address).build().unwrap();
    let app =
        Router::new().route("/charges", on_post(async || vec![b'x'; 40_000])).layer(idempotency);
    let from = |peer: &str, key: &str| {
        let mut request = post("/charges", key, "");
        request.headers_mut().insert("x-peer", peer.parse().unwrap());
        request
    };
    // First answers and replays, which their client does not read.
    let mut unread = Vec::new();
    for _ in 0..2 {
        let answer = app.clone().oneshot(from("192.0.2.1", "k")).await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
    }
    let replay = send(&app, from("192.0.2.1", "k")).await;
    assert_eq!((replay.status.as_u16(), &*replay.code()), (503, "overloaded"));
    let first = send(&app, from("192.0.2.1", "new")).await;
    assert_eq!((first.status.as_u16(), &*first.code()), (503, "outcome-unknown"));
    assert!(send(&app, from("192.0.2.2", "k")).await.is_replay(), "another peer has its own");
    assert!(send(&app, post("/charges", "k", "")).await.is_replay(), "no peer, no share");
    drop(unread);
    assert!(send(&app, from("192.0.2.1", "new")).await.is_replay(), "it ran and was kept");
}

/// Holds swaps at a gate, and reads for ever, when told to.
struct StallingStore {
    store: MemoryStore,
    swaps: Option<Gate>,
    reads_hang: bool,
}

impl Store for StallingStore {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            if let Some(gate) = &self.swaps {
                gate.pass().await;
            }
            self.store.swap(change).await
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        match self.reads_hang {
            true => Box::pin(std::future::pending()),
            false => self.store.get(id),
        }
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.store.sweep(limit)
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_one_second_to_hear_whether_a_transaction_was_committed() {
    let store = StallingStore { store: MemoryStore::not_durable(), swaps: None, reads_hang: true };
    let idempotency = layer(store).effect(Effect::Transactional).build().unwrap();
    let app = Router::new().route("/charges", on_post(async || "done")).layer(idempotency);
    let start = tokio::time::Instant::now();
    let first = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!((first.status.as_u16(), &*first.code()), (503, "outcome-unknown"));
    assert!(start.elapsed() < Duration::from_millis(1100), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_drain_does_not_overlook_an_admission_under_way() {
    let gate = Gate::closed();
    let swaps = Some(gate.clone());
    let store = StallingStore { store: MemoryStore::not_durable(), swaps, reads_hang: false };
    let (idempotency, ledger) = (layer(store).build().unwrap(), Ledger::default());
    let handler = {
        let ledger = ledger.clone();
        async move |claim: Claim| format!("charge {} of {}", ledger.add("charge"), claim.attempt())
    };
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency.clone());
    let first = tokio::spawn(async move { send(&app, post("/charges", "k", "{}")).await });
    gate.reached().await;
    let engine = idempotency.engine().clone();
    let drained = tokio::spawn(async move { engine.drain(Duration::from_secs(10)).await });
    tokio::task::yield_now().await;
    assert!(!drained.is_finished(), "a claim is on its way");
    gate.open();
    gate.open();
    assert_eq!(drained.await.unwrap().abandoned, 0);
    assert_eq!((first.await.unwrap().text(), ledger.len()), ("charge 1 of 1", 1));
}

/// Takes three leases to keep a piece of a large answer.
struct SlowSpool(Arc<MemoryStore>);

impl Store for SlowSpool {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        self.0.swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.0.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.0.sweep(limit)
    }
}

impl Spool for SlowSpool {
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(LEASE * 3).await;
            self.0.put(id, index, chunk).await
        })
    }

    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        self.0.chunk(id, index)
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.discard(id)
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_while_its_large_answer_is_being_kept() {
    let store = memory();
    let layer = layer(store.clone()).spool(SlowSpool(store)).lease(LEASE).max_inline(4);
    let handler = async || "a large answer";
    let app = Router::new().route("/charges", on_post(handler)).layer(layer.build().unwrap());
    let first = {
        let app = app.clone();
        tokio::spawn(async move { send(&app, post("/charges", "k", "{}")).await })
    };
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(send(&app, post("/charges", "k", "{}")).await.code(), "in-progress");
    assert_eq!(first.await.unwrap().text(), "a large answer");
    let replay = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!((replay.text(), replay.is_replay()), ("a large answer", true));
}
