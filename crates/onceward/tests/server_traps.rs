//! The eight traps of the contract, through a router and, where it is about bytes, a real socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod server_support;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
        mpsc,
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post as on_post,
};
use onceward::{
    BoxFuture, Change, Digest, Effect, Ending, Engine, Found, Inspect as _, Meaning, Note,
    NoteKind, Outcome, PURGE_MARGIN, Purge, Record, Scope, Status, Store, StoreError, Stored, Swap,
    Timestamp, Ttl,
    clock::ManualClock,
    conformance::FaultyStore,
    server::{Claim, Idempotency, IdempotencyBuilder, InFlight},
    stores::memory::MemoryStore,
};
use server_support::{
    Gate, Ledger, Pieces, Reply, charge, data, eventually, layer, memory, post, raw, send, serve,
    trailers,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Barrier, Semaphore},
    task::JoinSet,
};

const LEASE: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn stored(store: &impl Store, key: &str) -> Option<Stored> {
    match store.get(&charge(key).digest()).await.unwrap() {
        Found::Record(stored) => Some(*stored),
        Found::Nothing => None,
        Found::Unreadable { .. } => panic!("the record of {key} is damaged"),
    }
}

async fn status(store: &impl Store, key: &str) -> Option<Status> {
    stored(store, key).await.map(|stored| stored.status())
}

/// A charge that is made at once, passes the gate and is answered with its number.
fn charging(ledger: &Ledger, gate: &Gate, idempotency: Idempotency) -> Router {
    let (ledger, gate) = (ledger.clone(), gate.clone());
    let handler = async move || {
        let number = ledger.add("charge");
        gate.pass().await;
        (StatusCode::CREATED, format!("charge {number}"))
    };
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

// ------------------------------------------------------------------------------------- trap 1

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
    let (ledger, gate, store) = (Ledger::default(), Gate::new(), memory());
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
    let (ledger, gate, store) = (Ledger::default(), Gate::new(), memory());
    let held = HeldEnd { inner: store.clone(), gate: Gate::new() };
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
    let (ledger, gate, store) = (Ledger::default(), Gate::new(), memory());
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
    let (ledger, gate, store) = (Ledger::default(), Gate::new(), memory());
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

// ------------------------------------------------------------------------------------- trap 2

/// What is stored, without the time that passes between two readings of it.
async fn durable(store: &impl Store, key: &str) -> (Record, Timestamp, Option<Timestamp>) {
    let stored = stored(store, key).await.unwrap();
    let expires_at = stored.expires_at();
    (Record { ttl: Ttl::Never, ..stored.record }, stored.updated_at, expires_at)
}

/// Owner A past its lease, B took over: whatever A still writes changes nothing.
///
/// The commit of A's own transaction comes with the stores that can have one, and is tested there.
#[tokio::test(start_paused = true)]
async fn trap_2_fencing_on_every_write() {
    // Complete, fail for good, release, fail to be run again, declare unknown.
    for (answered, meaning) in
        [(201, None), (402, None), (429, None), (500, None), (201, Some(Meaning::Unknown))]
    {
        for ended in [true, false] {
            a_zombie_changes_nothing(answered, meaning, ended).await;
        }
    }
}

async fn a_zombie_changes_nothing(answered: u16, meaning: Option<Meaning>, ended: bool) {
    let (ledger, store) = (Ledger::default(), memory());
    // A's connection to the store is cut while it runs; B's is not.
    let cut = FaultyStore::new(store.clone(), None);
    let repeatable = |store: FaultyStore<Arc<MemoryStore>>| {
        layer(store).effect(Effect::Repeatable { within: HOUR }).lease(LEASE).build().unwrap()
    };
    let (gate_a, gate_b) = (Gate::new(), Gate::new());
    let (made, gate) = (ledger.clone(), gate_a.clone());
    let claim_of_a = Arc::new(Mutex::new(None));
    let keep = claim_of_a.clone();
    let handler = async move |claim: Claim| {
        made.add("charge by A");
        *keep.lock().unwrap() = Some(claim);
        gate.pass().await;
        let mut response = StatusCode::from_u16(answered).unwrap().into_response();
        meaning.map(|meaning| response.extensions_mut().insert(meaning));
        response
    };
    let a = Router::new().route("/charges", on_post(handler)).layer(repeatable(cut.clone()));
    let b = charging(&ledger, &gate_b, repeatable(FaultyStore::new(store.clone(), None)));

    let request = || post("/charges", "k", "{}");
    let (sent_to_a, sent_to_b) = (a.clone(), b.clone());
    let first = tokio::spawn(async move { send(&sent_to_a, request()).await });
    gate_a.reached().await;
    cut.set_down(true);
    tokio::time::sleep(LEASE * 2).await;
    let second = tokio::spawn(async move { send(&sent_to_b, request()).await });
    gate_b.reached().await;
    assert_eq!(stored(&store, "k").await.unwrap().record.attempts, 2, "B took over");
    if ended {
        gate_b.open();
        eventually(async || status(&store, "k").await == Some(Status::Succeeded)).await;
    }

    let before = durable(&store, "k").await;
    cut.set_down(false);
    // A's renewal finds that it is too late.
    let claim_of_a = claim_of_a.lock().unwrap().take().unwrap();
    eventually(async || claim_of_a.is_lost()).await;
    assert_eq!(claim_of_a.time_left(), Duration::ZERO, "A is told to stop");
    let after_renewal = durable(&store, "k").await;
    // Nor does what A ends with.
    gate_a.open();
    let answer = first.await.unwrap();
    assert_eq!((answer.status, &*answer.code()), (StatusCode::CONFLICT, "lease-lost"));
    let after_end = durable(&store, "k").await;
    for after in [after_renewal, after_end] {
        match ended {
            true => assert_eq!(after, before, "byte for byte, after {answered} {meaning:?}"),
            // B renews its own lease meanwhile.
            false => assert_eq!(after.0, before.0, "after {answered} {meaning:?}"),
        }
    }

    if !ended {
        gate_b.open();
    }
    let answer = second.await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.text()), (201, "charge 2"));
    for app in [&a, &b] {
        let replay = send(app, request()).await;
        assert!(replay.is_replay() && replay.text() == "charge 2", "{replay:?}");
    }
    assert_eq!(ledger.len(), 2, "what is repeatable was run by A and by B, and by nobody else");
}

// ------------------------------------------------------------------------------------- trap 3

/// The same request 200 times at once, spread over processes.
async fn two_hundred(apps: &[Router], key: &'static str) -> Vec<Reply> {
    let barrier = Arc::new(Barrier::new(200));
    let mut requests = JoinSet::new();
    for app in apps.iter().cycle().take(200) {
        let (app, barrier) = (app.clone(), barrier.clone());
        requests.spawn(async move {
            barrier.wait().await;
            send(&app, post("/charges", key, "{}")).await
        });
    }
    requests.join_all().await
}

/// One of them ran; the others were given its answer or told to ask later.
fn one_ran(replies: &[Reply], body: &str) {
    let (created, refused): (Vec<_>, Vec<_>) =
        replies.iter().partition(|reply| reply.status == StatusCode::CREATED);
    assert!(created.iter().all(|reply| reply.text() == body), "{created:?}");
    assert_eq!(created.iter().filter(|reply| !reply.is_replay()).count(), 1, "one first answer");
    assert!(refused.iter().all(|reply| reply.code() == "in-progress"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_3_one_atomic_claim() {
    of_two_hundred_first_requests_one_runs().await;
    of_two_hundred_waiters_one_runs().await;
    an_expired_record_is_claimed_once().await;
    a_released_record_is_claimed_once().await;
    a_record_that_is_purged_meanwhile_is_claimed_once().await;
    one_waiter_runs_what_the_first_released().await;
    a_lost_claim_that_finds_nothing_never_runs().await;
}

/// Two processes, whose handlers answer at once: some requests meet a finished operation.
fn two_processes(
    store: &Arc<MemoryStore>,
    ledger: &Ledger,
    choose: impl Fn(IdempotencyBuilder) -> IdempotencyBuilder,
) -> [Router; 2] {
    [(); 2].map(|()| {
        let ledger = ledger.clone();
        let handler = async move || {
            let number = ledger.add("charge");
            tokio::task::yield_now().await;
            (StatusCode::CREATED, format!("charge {number}"))
        };
        let idempotency = choose(layer(store.clone())).build().unwrap();
        Router::new().route("/charges", on_post(handler)).layer(idempotency)
    })
}

async fn of_two_hundred_first_requests_one_runs() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    one_ran(&two_hundred(&apps, "k").await, "charge 1");
    assert_eq!(ledger.len(), 1);
}

async fn of_two_hundred_waiters_one_runs() {
    let (ledger, store) = (Ledger::default(), memory());
    let wait = InFlight::Wait(Duration::from_secs(10));
    let apps = two_processes(&store, &ledger, |layer| layer.in_flight(wait));
    let replies = two_hundred(&apps, "k").await;
    one_ran(&replies, "charge 1");
    assert!(replies.iter().all(|reply| reply.status == StatusCode::CREATED), "all were answered");
    assert_eq!(ledger.len(), 1);
}

async fn an_expired_record_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    send(&apps[0], post("/charges", "k", "{}")).await;
    store.age(&charge("k").digest(), DAY + HOUR);
    assert_eq!(status(&store, "k").await, Some(Status::Expired));
    one_ran(&two_hundred(&apps, "k").await, "charge 2");
    assert_eq!(ledger.len(), 2);
}

async fn a_released_record_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let refusing = async || StatusCode::TOO_MANY_REQUESTS;
    let idempotency = layer(store.clone()).build().unwrap();
    let refusing = Router::new().route("/charges", on_post(refusing)).layer(idempotency);
    send(&refusing, post("/charges", "k", "{}")).await;
    assert_eq!(status(&store, "k").await, Some(Status::Released));
    let apps = two_processes(&store, &ledger, |layer| layer);
    one_ran(&two_hundred(&apps, "k").await, "charge 1");
    assert_eq!(ledger.len(), 1);
}

async fn a_record_that_is_purged_meanwhile_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    send(&apps[0], post("/charges", "k", "{}")).await;
    let id = charge("k").digest();
    store.age(&id, PURGE_MARGIN);
    let Record { fence, execution, .. } = stored(&store, "k").await.unwrap().record;
    let purging = store.clone();
    let purge = tokio::spawn(async move {
        let note = Note::of_protocol(NoteKind::Purge, execution);
        purging.purge(&id, fence, &note).await.unwrap()
    });
    let replies = two_hundred(&apps, "k").await;
    assert_eq!(purge.await.unwrap(), Purge::Purged);
    // The purge came before, between or after them.
    let ran = replies.iter().filter(|reply| reply.status == 201 && !reply.is_replay()).count();
    assert!(ran <= 1 && ledger.len() == 1 + ran, "{ran} ran, {} effects", ledger.len());
    let last = send(&apps[1], post("/charges", "k", "{}")).await;
    assert_eq!((last.text(), ledger.len()), ("charge 2", 2), "once after the purge");
}

async fn one_waiter_runs_what_the_first_released() {
    let (ledger, store) = (Ledger::default(), memory());
    let (gate, is_first) = (Gate::new(), Arc::new(AtomicBool::new(true)));
    let apps = [(); 2].map(|()| {
        let (ledger, gate, is_first) = (ledger.clone(), gate.clone(), is_first.clone());
        let handler = async move || {
            if is_first.swap(false, Ordering::SeqCst) {
                gate.pass().await;
                return StatusCode::TOO_MANY_REQUESTS.into_response();
            }
            (StatusCode::CREATED, format!("charge {}", ledger.add("charge"))).into_response()
        };
        let wait = InFlight::Wait(Duration::from_secs(10));
        let idempotency = layer(store.clone()).in_flight(wait).build().unwrap();
        Router::new().route("/charges", on_post(handler)).layer(idempotency)
    });
    let waiting = apps.clone();
    let waiters = tokio::spawn(async move { two_hundred(&waiting, "k").await });
    gate.reached().await;
    assert_eq!(ledger.len(), 0);
    gate.open();
    let replies = waiters.await.unwrap();
    let (refused, answered): (Vec<_>, Vec<_>) =
        replies.into_iter().partition(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.len(), 1, "only whoever ran it hears that");
    one_ran(&answered, "charge 1");
    assert_eq!(ledger.len(), 1);
}

/// Every claim comes too late, and there is never anything to be found.
struct TooLate;

impl Store for TooLate {
    fn swap<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async { Ok(Swap::Conflict(Found::Nothing)) })
    }

    fn get<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(async { Ok(Found::Nothing) })
    }

    fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}

async fn a_lost_claim_that_finds_nothing_never_runs() {
    let ledger = Ledger::default();
    let app = charging(&ledger, &Gate::new(), layer(TooLate).build().unwrap());
    let reply = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!((reply.status.as_u16(), &*reply.code()), (409, "in-progress"));
    assert_eq!(ledger.len(), 0);
}

// ------------------------------------------------------------------------------------- trap 4

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// After the effect, while the handler is still at it.
    InTheHandler,
    /// After the handler's answer, before the end of it is durable.
    BeforeSettlement,
}

/// What is left of an operation whose process was killed.
struct Remains {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    ledger: Ledger,
    effect: Effect,
}

impl Remains {
    /// `kill -9` for one process among threads: its runtime is dropped with everything on it.
    fn of(killed: Killed, effect: Effect) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
        let ledger = Ledger::default();
        let cut = FaultyStore::new(store.clone(), None);
        let (made, down) = (ledger.clone(), cut.clone());
        let (sender, effect_was_made) = mpsc::channel();
        let handler = async move || {
            // Without a commit a transactional effect is none.
            if effect != Effect::Transactional {
                made.add("charge");
            }
            down.set_down(true);
            sender.send(()).unwrap();
            match killed {
                Killed::InTheHandler => std::future::pending().await,
                Killed::BeforeSettlement => StatusCode::CREATED,
            }
        };
        let process = tokio::runtime::Runtime::new().unwrap();
        let idempotency = layer(cut.clone()).effect(effect).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        process.spawn(async move { send(&app, post("/charges", "k", "{}")).await });
        effect_was_made.recv().unwrap();
        while matches!(killed, Killed::BeforeSettlement) && cut.swaps() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        process.shutdown_background();
        Self { clock, store, ledger, effect }
    }

    /// A retry at another process, whose handler tells its attempt.
    fn retry(&self) -> Reply {
        let (made, effect) = (self.ledger.clone(), self.effect);
        let engine = Engine::new(self.store.clone());
        let ending = engine.clone();
        let handler = async move |claim: Claim| {
            made.add("charge");
            let answer = format!("attempt {}", claim.attempt());
            if effect == Effect::Transactional {
                let outcome = Outcome::inline(201, answer.clone().into_bytes());
                ending.settle((*claim).clone(), Ending::Succeeded(outcome)).await.unwrap();
            }
            (StatusCode::CREATED, answer)
        };
        let idempotency = layer_on(engine).effect(effect).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        let process = tokio::runtime::Runtime::new().unwrap();
        process.block_on(send(&app, post("/charges", "k", "{}")))
    }

    fn is_unknown(&self) {
        let reply = self.retry();
        assert_eq!((reply.status.as_u16(), &*reply.code()), (409, "outcome-unknown"));
        let problem = reply.json();
        assert_eq!(
            (&problem["retryable"], &problem["safe_new_key"]),
            (&false.into(), &false.into())
        );
        assert_eq!(self.ledger.len(), 1, "nothing runs any more");
    }
}

/// As `layer`, on an engine that the test drives too.
fn layer_on(engine: Engine) -> IdempotencyBuilder {
    Idempotency::builder(engine, |_: &Parts| Scope::of("caller", "anyone"))
}

/// Nobody knows, and then nobody runs it, unless a second run is harmless.
#[test]
fn trap_4_unknown_is_not_retryable() {
    const LEASE: Duration = Duration::from_secs(30);
    for killed in [Killed::InTheHandler, Killed::BeforeSettlement] {
        let remains = Remains::of(killed, Effect::External);
        remains.clock.advance(LEASE - Duration::from_secs(1));
        assert_eq!(remains.retry().code(), "in-progress", "its lease is not over: {killed:?}");
        remains.clock.advance(Duration::from_secs(1));
        remains.is_unknown();
        remains.clock.advance(DAY * 365);
        remains.is_unknown();

        let remains = Remains::of(killed, Effect::Repeatable { within: HOUR });
        remains.clock.advance(LEASE);
        assert_eq!(remains.retry().text(), "attempt 2", "{killed:?}");
        assert_eq!(remains.ledger.len(), 2, "the second run has the same downstream key");
        let replay = remains.retry();
        assert!(replay.is_replay() && remains.ledger.len() == 2, "and there is no third");

        let remains = Remains::of(killed, Effect::Repeatable { within: HOUR });
        remains.clock.advance(HOUR);
        remains.is_unknown();

        let remains = Remains::of(killed, Effect::Transactional);
        remains.clock.advance(LEASE);
        assert_eq!(remains.retry().text(), "attempt 2", "{killed:?}");
        let replay = remains.retry();
        assert!(replay.is_replay() && remains.ledger.len() == 1, "committed once");
    }
}

// ------------------------------------------------------------------------------------- trap 5

#[tokio::test(start_paused = true)]
async fn trap_5_unstorable_is_still_once() {
    for status in [201, 422] {
        an_answer_over_the_limit_is_not_run_again(status).await;
        an_event_stream_is_not_run_again(status).await;
    }
    an_answer_that_cannot_be_spooled_is_not_run_again().await;
    headers_that_are_too_many_are_not_run_again().await;
    a_store_that_is_down_at_settlement_is_asked_until_it_is_back().await;
}

/// Runs a handler once, and sees that nobody runs it again; gives the first answer.
async fn once_without_result(
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    respond: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> Reply {
    let (ledger, store) = (Ledger::default(), memory());
    let made = ledger.clone();
    let handler = async move || {
        made.add("charge");
        respond()
    };
    let idempotency = choose(layer(store.clone())).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let first = send(&app, post("/charges", "k", "{}")).await;
    for prefer in ["wait=0", "wait=5", "respond-async"] {
        let mut retry = post("/charges", "k", "{}");
        retry.headers_mut().insert("prefer", prefer.parse().unwrap());
        let retry = send(&app, retry).await;
        assert_eq!((retry.status.as_u16(), &*retry.code()), (409, "result-unavailable"));
        assert_eq!(retry.header("location"), Some("/charges/7"), "where it can be found");
        assert!(!retry.is_replay() && retry.json()["safe_new_key"] == false);
    }
    assert_eq!(ledger.len(), 1);
    first
}

fn with_location(status: u16, body: Body) -> Response {
    Response::builder().status(status).header("location", "/charges/7").body(body).unwrap()
}

async fn an_answer_over_the_limit_is_not_run_again(status: u16) {
    let piece = "x".repeat(700);
    let expected = piece.repeat(3);
    let first = once_without_result(
        |layer| layer.max_inline(1000).max_response(1000),
        move || {
            let pieces = (0..3).map(|_| data(piece.clone()));
            with_location(status, Body::new(Pieces::of(pieces)))
        },
    )
    .await;
    assert_eq!((first.status.as_u16(), first.text()), (status, &*expected), "all of it, once");
}

async fn an_event_stream_is_not_run_again(status: u16) {
    let first = once_without_result(
        |layer| layer,
        move || {
            let events = Pieces::of([data("data: 1\n\n"), data("data: 2\n\n")]);
            let mut response = with_location(status, Body::new(events));
            let media_type = HeaderValue::from_static("Text/Event-Stream; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, media_type);
            response
        },
    )
    .await;
    assert_eq!(first.text(), "data: 1\n\ndata: 2\n\n");
    assert_eq!(first.status, status);
}

/// Without a spool, an answer over `max_inline` has no place.
async fn an_answer_that_cannot_be_spooled_is_not_run_again() {
    let first = once_without_result(
        |layer| layer.max_inline(10),
        || with_location(201, "more than ten bytes".into()),
    )
    .await;
    assert_eq!(first.text(), "more than ten bytes");
}

async fn headers_that_are_too_many_are_not_run_again() {
    let first = once_without_result(
        |layer| layer,
        || {
            let mut response = with_location(201, "short".into());
            let long = HeaderValue::try_from("x".repeat(40 << 10)).unwrap();
            response.headers_mut().insert("x-long", long);
            response
        },
    )
    .await;
    assert_eq!((first.text(), first.headers["x-long"].len()), ("short", 40 << 10));
}

async fn a_store_that_is_down_at_settlement_is_asked_until_it_is_back() {
    let (ledger, store) = (Ledger::default(), memory());
    let faulty = FaultyStore::new(store.clone(), None);
    let (made, down) = (ledger.clone(), faulty.clone());
    let handler = async move || {
        let number = made.add("charge");
        down.set_down(true);
        (StatusCode::CREATED, format!("charge {number}"))
    };
    let idempotency = layer(faulty.clone()).build().unwrap();
    let engine = idempotency.engine().clone();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let request = || post("/charges", "k", "{}");

    let first = send(&app, request()).await;
    assert_eq!((first.status.as_u16(), &*first.code()), (503, "outcome-unknown"));
    assert_eq!(first.json()["retryable"], true);
    assert_eq!(first.header("retry-after"), Some("1"));
    let retry = send(&app, request()).await;
    assert_eq!((retry.status.as_u16(), &*retry.code()), (503, "store-unavailable"));
    assert_eq!(ledger.len(), 1);

    faulty.set_down(false);
    assert_eq!(send(&app, request()).await.code(), "in-progress", "until the end is durable");
    eventually(async || engine.unsettled() == 0).await;
    let replay = send(&app, request()).await;
    assert!(replay.is_replay() && replay.text() == "charge 1", "{replay:?}");
    assert_eq!(ledger.len(), 1);
}

// ------------------------------------------------------------------------------------- trap 6

/// A request as it goes over the wire: content type, path with query, and body in pieces.
struct Meant<'a>(&'a str, &'a str, &'a [&'a [u8]]);

impl Meant<'_> {
    async fn send(&self, address: SocketAddr, key: &str, is_chunked: bool) -> String {
        let Self(media_type, path, pieces) = self;
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: {key}\r\n\
             content-type: {media_type}\r\n"
        )
        .into_bytes();
        let whole = pieces.concat();
        if is_chunked {
            bytes.extend(b"transfer-encoding: chunked\r\n\r\n");
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                bytes.extend([*piece, b"\r\n"].concat());
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            bytes.extend(format!("content-length: {}\r\n\r\n", whole.len()).into_bytes());
            bytes.extend(whole);
        }
        String::from_utf8(raw(address, &bytes).await).unwrap()
    }
}

const JSON: &str = "application/json";

#[tokio::test]
async fn trap_6_the_whole_request_counts_and_only_its_meaning() {
    let (ledger, gate) = (Ledger::default(), Gate::new());
    let app = charging(&ledger, &gate, layer(memory()).build().unwrap());
    let address = serve(app).await;
    let large = vec![b'x'; 900 << 10];
    let (rest, last) = large.split_at(large.len() - 1);
    let part = |boundary: &str, value: &str| {
        let head = "Content-Disposition: form-data; name=\"cents\"";
        format!("--{boundary}\r\n{head}\r\n\r\n{value}\r\n--{boundary}--\r\n").into_bytes()
    };
    let (one, same, other) = (part("aaa", "500"), part("b-b", "500"), part("b-b", "501"));
    let (form_a, form_b) =
        ("multipart/form-data; boundary=aaa", "multipart/form-data; boundary=\"b-b\"");
    let text = "text/plain";
    let query = "/charges?b=1&a=x&a=y";
    let nested = br#"{"b":[1,{"d":2,"c":3}],"a":"\u00e9"}"#;
    // What was sent first, what means the same, and what does not.
    let cases: &[(Meant<'_>, &[Meant<'_>], &[Meant<'_>])] = &[
        (
            Meant(JSON, "/charges", &[nested]),
            &[
                Meant(JSON, "/charges", &[br#"{"a":"\u00e9","b":[1,{"c":3,"d":2}]}"#]),
                Meant(
                    JSON,
                    "/charges",
                    &[b"{ \"b\" : [1, {\"d\":2 ,\"c\":3}],\n \"a\": ", b"\"\xc3\xa9\"}"],
                ),
                Meant("application/json; charset=utf-8", "/charges", &[nested]),
            ],
            &[
                Meant(JSON, "/charges", &[br#"{"b":[{"d":2,"c":3},1],"a":"\u00e9"}"#]),
                Meant(JSON, "/charges", &[br#"{"b":[1.0,{"d":2,"c":3}],"a":"\u00e9"}"#]),
                Meant(JSON, "/charges", &[br#"{"b":[1,{"d":2,"c":3}],"a":"e"}"#]),
                Meant(text, "/charges", &[nested]),
                Meant(JSON, "/charges?x", &[nested]),
            ],
        ),
        (
            Meant(text, "/charges", &[rest, last]),
            &[],
            &[Meant(text, "/charges", &[rest, b"y"]), Meant(text, "/charges", &[rest])],
        ),
        (
            Meant(text, query, &[b""]),
            &[
                Meant(text, "/charges?a=x&a=y&b=1", &[b""]),
                Meant(text, "/charges?a=%78&b=1&a=y", &[]),
            ],
            &[
                Meant(text, "/charges?b=1&a=y&a=x", &[]),
                Meant(text, "/charges?b=1&a=x", &[]),
                Meant(text, "/charges", &[]),
            ],
        ),
        (
            Meant(form_a, "/charges", &[&one]),
            &[Meant(form_b, "/charges", &[&same])],
            &[Meant(form_b, "/charges", &[&other])],
        ),
    ];
    for (number, (first, same, different)) in (1..).zip(cases) {
        let key = format!("key-{number}");
        gate.open();
        let answer = first.send(address, &key, false).await;
        assert!(answer.starts_with("HTTP/1.1 201 ") && !answer.contains("replayed"), "{answer}");
        for is_chunked in [true, false] {
            for (place, again) in same.iter().chain([first]).enumerate() {
                let answer = again.send(address, &key, is_chunked).await;
                assert!(answer.contains("replayed: true"), "case {number}, {place}: {answer}");
            }
            for (place, other) in different.iter().enumerate() {
                let answer = other.send(address, &key, is_chunked).await;
                assert!(answer.starts_with("HTTP/1.1 422 "), "case {number}, {place}: {answer}");
                assert!(
                    answer.contains("\"key-reused\"") && !answer.contains("charge "),
                    "{answer}"
                );
            }
        }
        assert_eq!(ledger.len(), number);
    }
    a_running_execution_is_not_disturbed_by_a_mismatch(address, &gate, &ledger).await;
}

/// A mismatch is told before "in progress".
async fn a_running_execution_is_not_disturbed_by_a_mismatch(
    address: SocketAddr,
    gate: &Gate,
    ledger: &Ledger,
) {
    let effects = ledger.len();
    for _ in 0..effects {
        gate.reached().await;
    }
    let first = tokio::spawn(async move {
        Meant(JSON, "/charges", &[b"{\"cents\":1}"]).send(address, "running", false).await
    });
    gate.reached().await;
    let other = Meant(JSON, "/charges", &[b"{\"cents\":2}"]).send(address, "running", true).await;
    assert!(other.starts_with("HTTP/1.1 422 "), "{other}");
    let same = Meant(JSON, "/charges", &[b"{ \"cents\": 1 }"]).send(address, "running", true).await;
    assert!(same.starts_with("HTTP/1.1 409 ") && same.contains("\"in-progress\""), "{same}");
    gate.open();
    assert!(first.await.unwrap().starts_with("HTTP/1.1 201 "));
    assert_eq!(ledger.len(), effects + 1);
}

// ------------------------------------------------------------------------------------- trap 7

/// These belong to one exchange: they are in the first answer and not in its replay.
const DROPPED: [(&str, &str); 9] = [
    ("set-cookie", "session=1"),
    ("server-timing", "db;dur=53"),
    ("age", "3"),
    ("traceparent", "00-1-2-00"),
    ("x-request-id", "r-1"),
    ("ratelimit-remaining", "7"),
    ("x-ratelimit-reset", "3"),
    ("www-authenticate", "Basic"),
    ("x-hop", "nominated"),
];

fn peculiar(kind: &str) -> Response {
    let mut response = match kind {
        "bytes" => Response::new(Body::from(&b"a\0b\xff\r\n\r\n\0"[..])),
        "nothing" => StatusCode::NO_CONTENT.into_response(),
        "empty" => StatusCode::CREATED.into_response(),
        "redirect" => (StatusCode::SEE_OTHER, [("location", "/charges/7")]).into_response(),
        "declined" => (StatusCode::PAYMENT_REQUIRED, "declined").into_response(),
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
        "trailers" => {
            let sum = trailers(&[("x-sum", "7"), ("x-other", "8")]);
            let mut response =
                Response::new(Body::new(Pieces::of([data("in "), data("pieces"), sum])));
            let names = HeaderValue::from_static("x-sum, x-other");
            response.headers_mut().insert(header::TRAILER, names);
            response
        }
        _ => unreachable!("no such kind of answer: {kind}"),
    };
    let lines = response.headers_mut();
    for (name, value) in [
        ("link", &b"</a>; rel=next"[..]),
        ("x-raw", b"\xff caf\xc3\xa9 \x80"),
        ("link", b"</b>; rel=prev"),
        ("vary", b""),
        ("link", b"</a>; rel=next"),
        ("cache-control", b"no-store"),
    ] {
        lines.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    for (name, value) in DROPPED {
        lines.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    lines.append("connection", HeaderValue::from_static("x-hop"));
    // Only the layer may say that.
    lines.append("idempotent-replayed", HeaderValue::from_static("true"));
    response
}

const KINDS: [&str; 7] =
    ["bytes", "nothing", "empty", "redirect", "declined", "broken", "trailers"];

#[tokio::test]
async fn trap_7_fidelity() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = async move |kind: String| {
        made.add(&kind);
        peculiar(&kind)
    };
    let idempotency = layer(memory()).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let address = serve(app.clone()).await;
    for kind in KINDS {
        in_process_the_replay_is_the_answer(&app, kind).await;
        on_the_wire_the_replay_is_the_answer(address, kind).await;
    }
    assert_eq!(ledger.len(), 2 * KINDS.len());
}

/// Everything but what belongs to one exchange; values of one name stay in order.
fn lasting(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let dropped = DROPPED.iter().map(|(name, _)| *name);
    for name in dropped.chain(["connection", "date", "idempotent-replayed"]) {
        headers.remove(name);
    }
    headers
}

async fn in_process_the_replay_is_the_answer(app: &Router, kind: &'static str) {
    let request = || post("/charges", &format!("router-{kind}"), kind);
    let first = send(app, request()).await;
    assert!(!first.is_replay(), "an answer cannot call itself a replay: {kind}");
    assert!(DROPPED.iter().all(|(name, value)| first.header(name) == Some(value)), "{first:?}");
    assert_eq!(first.headers.get_all("link").iter().count(), 3);
    assert!(first.headers.contains_key("idempotency-completed"), "{first:?}");
    for _ in 0..2 {
        let replay = send(app, request()).await;
        assert!(replay.is_replay() && replay.status == first.status, "{kind}: {replay:?}");
        assert!(DROPPED.iter().all(|(name, _)| replay.header(name).is_none()), "{replay:?}");
        assert_eq!(lasting(&replay.headers), lasting(&first.headers), "{kind}");
        assert_eq!((&replay.body, &replay.trailers), (&first.body, &first.trailers), "{kind}");
    }
}

async fn on_the_wire_the_replay_is_the_answer(address: SocketAddr, kind: &str) {
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\nte: trailers\r\n\
         idempotency-key: wire-{kind}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{kind}",
        kind.len()
    );
    let (first, body) = split(&raw(address, request.as_bytes()).await);
    let (replay, body_again) = split(&raw(address, request.as_bytes()).await);
    assert_eq!(body_again, body, "{kind}");
    let is_lasting = |line: &&Vec<u8>| {
        let name = line.split(|byte| *byte == b':').next().unwrap();
        let dropped = DROPPED.iter().map(|(name, _)| name.as_bytes());
        let mut dropped = dropped.chain([&b"connection"[..], b"date", b"idempotent-replayed"]);
        !dropped.any(|other| other == name)
    };
    assert!(replay.contains(&b"idempotent-replayed: true".to_vec()), "{kind}");
    assert!(!first.contains(&b"idempotent-replayed: true".to_vec()), "{kind}");
    assert!(first.contains(&b"x-raw: \xff caf\xc3\xa9 \x80".to_vec()), "{kind}");
    let lasting = |lines: &[Vec<u8>]| lines.iter().filter(is_lasting).cloned().collect::<Vec<_>>();
    assert_eq!(lasting(&replay), lasting(&first), "{kind}");
    match kind {
        "bytes" => assert_eq!(body, b"a\0b\xff\r\n\r\n\0"),
        "nothing" | "empty" => assert_eq!(body, b""),
        "trailers" => assert!(body.ends_with(b"0\r\nx-sum: 7\r\nx-other: 8\r\n\r\n"), "{body:?}"),
        _ => {}
    }
}

/// The status line and header lines, those of one name in their order, and all that comes after.
fn split(answer: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut lines = vec![Vec::new()];
    for byte in &answer[..end] {
        match byte {
            b'\n' => lines.push(Vec::new()),
            b'\r' => {}
            byte => lines.last_mut().unwrap().push(*byte),
        }
    }
    let name = |line: &Vec<u8>| line.split(|byte| *byte == b':').next().map(<[u8]>::to_vec);
    lines[1..].sort_by_key(name);
    (lines, answer[end + 4..].to_vec())
}

// ------------------------------------------------------------------------------------- trap 8

/// Who asks, as authentication found out.
#[derive(Clone)]
struct Caller(&'static str);

/// Two tokens are Alice's: one of them is the refreshed one.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
    let caller = match token {
        Some("Bearer alice-1" | "Bearer alice-2") => Caller("alice"),
        Some("Bearer bob-1") => Caller("bob"),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Payments of several callers, with the gates that stand before and behind the layer.
struct Gated {
    app: Router,
    ledger: Ledger,
    revoked: Arc<Mutex<Vec<&'static str>>>,
    /// What the handler answers before it does anything, or 0.
    refusal: Arc<AtomicU16>,
}

impl Gated {
    fn new() -> Self {
        let (ledger, refusal) = (Ledger::default(), Arc::new(AtomicU16::new(0)));
        let (made, refuse) = (ledger.clone(), refusal.clone());
        let handler = async move |body: Bytes| match refuse.load(Ordering::SeqCst) {
            0 => {
                let number = made.add(String::from_utf8(body.to_vec()).unwrap());
                (StatusCode::CREATED, format!("charge {number}")).into_response()
            }
            status => StatusCode::from_u16(status).unwrap().into_response(),
        };
        let revoked = Arc::new(Mutex::new(Vec::new()));
        let without_rights = revoked.clone();
        let scope = |request: &Parts| {
            let Caller(name) = request.extensions.get().ok_or("not signed in")?;
            Scope::of("caller", name).map_err(|_| "not a name")
        };
        let idempotency = Idempotency::builder(memory(), scope)
            .authorize_replay(move |request| {
                let Caller(name) = request.extensions.get().unwrap();
                let is_allowed = !without_rights.lock().unwrap().contains(name);
                async move { is_allowed }
            })
            .build()
            .unwrap();
        let app = Router::new()
            .route("/charges", on_post(handler))
            .layer(idempotency)
            .layer(middleware::from_fn(authenticate));
        Self { app, ledger, revoked, refusal }
    }

    async fn send(&self, token: &str, key: &str, body: &'static str) -> Reply {
        let mut request = post("/charges", key, body);
        let token = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, token);
        send(&self.app, request).await
    }
}

#[tokio::test]
async fn trap_8_scope_and_gates() {
    every_caller_has_its_own_keys().await;
    a_revoked_caller_sees_nothing_and_runs_nothing().await;
    a_refusal_before_the_work_does_not_bind_the_key().await;
    keys_are_compared_as_strings().await;
}

async fn every_caller_has_its_own_keys() {
    let payments = Gated::new();
    let alice = payments.send("alice-1", "k", "5").await;
    let bob = payments.send("bob-1", "k", "5").await;
    assert_eq!((alice.text(), bob.text()), ("charge 1", "charge 2"), "one execution each");
    assert!(!bob.is_replay());
    // Also what would be a mismatch for Alice is none for Bob.
    let other = payments.send("bob-1", "k2", "6").await;
    let alice = payments.send("alice-1", "k2", "7").await;
    assert_eq!((other.text(), alice.text()), ("charge 3", "charge 4"));
    let refreshed = payments.send("alice-2", "k", "5").await;
    assert!(refreshed.is_replay() && refreshed.text() == "charge 1", "{refreshed:?}");
    let stranger = payments.send("mallory-1", "k", "5").await;
    assert_eq!((stranger.status.as_u16(), stranger.text()), (401, ""));
    assert_eq!(payments.ledger.len(), 4);
}

async fn a_revoked_caller_sees_nothing_and_runs_nothing() {
    let payments = Gated::new();
    payments.send("alice-1", "k", "5").await;
    payments.revoked.lock().unwrap().push("alice");
    for token in ["alice-1", "alice-2"] {
        let reply = payments.send(token, "k", "5").await;
        assert_eq!((reply.status.as_u16(), &*reply.code()), (403, "replay-forbidden"));
        assert!(!reply.is_replay() && !reply.text().contains("charge 1"), "{reply:?}");
        assert!(!reply.headers.contains_key("idempotency-completed"), "{reply:?}");
    }
    payments.revoked.lock().unwrap().clear();
    let replay = payments.send("alice-1", "k", "5").await;
    assert!(replay.is_replay() && replay.text() == "charge 1", "{replay:?}");
    assert_eq!(payments.ledger.len(), 1);
}

async fn a_refusal_before_the_work_does_not_bind_the_key() {
    for status in [401, 403, 407, 408, 412, 421, 423, 425, 428, 429, 431] {
        let payments = Gated::new();
        payments.refusal.store(status, Ordering::SeqCst);
        for _ in 0..2 {
            let refused = payments.send("alice-1", "k", "5").await;
            assert_eq!(refused.status, status, "refused each time anew");
            assert!(!refused.is_replay() && refused.header("idempotency-completed").is_none());
        }
        // Not even to what was asked for.
        payments.refusal.store(0, Ordering::SeqCst);
        let charged = payments.send("alice-1", "k", "6").await;
        assert_eq!((charged.status.as_u16(), charged.text()), (201, "charge 1"), "after {status}");
        assert_eq!(payments.send("alice-1", "k", "5").await.code(), "key-reused");
        assert_eq!(payments.ledger.len(), 1);
    }
}

async fn keys_are_compared_as_strings() {
    let payments = Gated::new();
    assert_eq!(payments.send("alice-1", "k", "5").await.text(), "charge 1");
    assert!(payments.send("alice-1", "\"k\"", "5").await.is_replay(), "a structured string");
    let upper = payments.send("alice-1", "K", "5").await;
    assert!(!upper.is_replay() && upper.text() == "charge 2", "another key: {upper:?}");
    assert_eq!(payments.ledger.len(), 2);
}
