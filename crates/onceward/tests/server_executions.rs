//! Handlers, clients and stores that fail at every step, and what becomes of the operation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod server_support;

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{HeaderValue, Request, Response, StatusCode, header, request::Parts},
    response::IntoResponse as _,
    routing::post as on_post,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use onceward::{
    BoxFuture, Change, Digest, Effect, Ending, Engine, Fingerprint, Found, Outcome, Profile,
    Request as Asked, Scope, Settled, Status, Store, StoreError, Stored, Swap, Terms, Verdict,
    conformance::FaultyStore,
    server::{Body, Claim, Code, Idempotency, IdempotencyBuilder, InFlight},
    stores::memory::MemoryStore,
    telemetry,
};
use server_support::{
    Gate, Ledger, Pieces, Reply, broken, charge, data, eventually, layer, memory, post, raw, send,
};
use tokio::{
    net::TcpListener,
    task::yield_now,
    time::{Instant, sleep},
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

const LEASE: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
const REPEATABLE: Effect = Effect::Repeatable { within: HOUR };

/// As `layer`, on an engine that the test drives too.
fn layer_on(engine: &Engine) -> IdempotencyBuilder {
    Idempotency::builder(engine.clone(), |_: &Parts| Scope::of("caller", "anyone"))
}

fn request() -> Request<AxumBody> {
    post("/charges", "k", "{}")
}

fn preferring(preference: &'static str) -> Request<AxumBody> {
    let mut request = request();
    request.headers_mut().insert("prefer", HeaderValue::from_static(preference));
    request
}

async fn stored(store: &impl Store) -> Option<Stored> {
    match store.get(&charge("k").digest()).await.unwrap() {
        Found::Record(stored) => Some(*stored),
        Found::Nothing => None,
        Found::Unreadable { .. } => panic!("the record is damaged"),
    }
}

async fn status(store: &impl Store) -> Option<Status> {
    stored(store).await.map(|stored| stored.status())
}

#[track_caller]
fn is_problem(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status.as_u16(), &*reply.code()), (status, code), "{reply:?}");
    assert!(!reply.is_replay(), "an error is never a replay");
}

#[track_caller]
fn is_answer(reply: &Reply, text: &str) {
    assert_eq!((reply.status.as_u16(), reply.text()), (201, text), "{reply:?}");
}

#[track_caller]
fn is_replay(reply: &Reply, text: &str) {
    is_answer(reply, text);
    assert!(reply.is_replay(), "{reply:?}");
}

/// One route, its store and what it really did.
struct Charges {
    app: Router,
    store: Arc<MemoryStore>,
    engine: Engine,
    ledger: Ledger,
}

impl Charges {
    /// A handler that is given its number, after its effect was written down.
    fn new<Fut>(
        choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
        handler: impl Fn(usize) -> Fut + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Response<AxumBody>> + Send,
    {
        let (store, ledger) = (memory(), Ledger::default());
        let made = ledger.clone();
        let handler = async move || handler(made.add("charge")).await;
        let idempotency = choose(layer(store.clone())).build().unwrap();
        let engine = idempotency.engine().clone();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        Self { app, store, engine, ledger }
    }

    async fn send(&self) -> Reply {
        send(&self.app, request()).await
    }

    /// The operation ended as unknown: nobody runs it again.
    async fn stays_unknown(&self) {
        assert_eq!(status(&self.store).await, Some(Status::Unknown));
        for _ in 0..2 {
            is_problem(&self.send().await, 409, "outcome-unknown");
        }
        assert_eq!((self.ledger.len(), self.engine.unsettled()), (1, 0));
    }
}

fn created(number: usize) -> Response<AxumBody> {
    (StatusCode::CREATED, format!("charge {number}")).into_response()
}

fn in_pieces(body: Pieces) -> Response<AxumBody> {
    (StatusCode::CREATED, AxumBody::new(body)).into_response()
}

// ------------------------------------------------------------------------- handlers that fail

/// The ways in which a handler gives no complete answer.
#[derive(Clone, Copy, Debug)]
enum NoAnswer {
    Panics,
    PanicsLater,
    PanicsInItsBody,
    BreaksOff,
    BreaksOffAtOnce,
    IsShorterThanSaid,
    IsLongerThanSaid,
}

impl NoAnswer {
    const ALL: [Self; 7] = [
        Self::Panics,
        Self::PanicsLater,
        Self::PanicsInItsBody,
        Self::BreaksOff,
        Self::BreaksOffAtOnce,
        Self::IsShorterThanSaid,
        Self::IsLongerThanSaid,
    ];

    async fn answer(self) -> Response<AxumBody> {
        let said = |length: u64, text: &'static str| {
            let mut response = in_pieces(Pieces::of([data(text)]));
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            response
        };
        match self {
            Self::Panics => panic!("a bug of the handler (expected by this test)"),
            Self::PanicsLater => {
                yield_now().await;
                panic!("a bug of the handler (expected by this test)")
            }
            Self::PanicsInItsBody => {
                let body = Pieces::of([data("half of the")]);
                in_pieces(body).map(|body| {
                    AxumBody::new(body.map_frame(|_| panic!("a bug of the body (expected)")))
                })
            }
            Self::BreaksOff => in_pieces(Pieces::of([data("half of the"), broken()])),
            Self::BreaksOffAtOnce => in_pieces(Pieces::of([broken()])),
            Self::IsShorterThanSaid => said(9, "charge 1"),
            Self::IsLongerThanSaid => said(7, "charge 1"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_complete_answer_is_an_unknown_outcome_and_never_a_success() {
    for no_answer in NoAnswer::ALL {
        for profile in [Profile::Strict, Profile::Stripe] {
            let charges = Charges::new(|layer| layer.profile(profile), move |_| no_answer.answer());
            let first = charges.send().await;
            is_problem(&first, 504, "outcome-unknown");
            assert_eq!(first.json()["retryable"], false, "{no_answer:?}");
            assert!(first.header("idempotency-completed").is_none(), "{no_answer:?}");
            charges.stays_unknown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_complete_answer_of_a_repeatable_effect_is_run_again() {
    for no_answer in NoAnswer::ALL {
        let handler = move |number| async move {
            match number {
                1 => no_answer.answer().await,
                _ => created(number),
            }
        };
        let charges = Charges::new(|layer| layer.effect(REPEATABLE), handler);
        let first = charges.send().await;
        is_problem(&first, 502, "upstream-failed");
        assert_eq!(first.json()["retryable"], true, "{no_answer:?}");
        assert_eq!(status(&charges.store).await, Some(Status::FailedRetryable));
        is_answer(&charges.send().await, "charge 2");
        is_replay(&charges.send().await, "charge 2");
        assert_eq!((charges.ledger.len(), charges.engine.unsettled()), (2, 0), "{no_answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_error_is_no_answer_in_any_tower_service() {
    for (effect, (status, code), runs) in [
        (Effect::External, (504, "outcome-unknown"), 1),
        (REPEATABLE, (502, "upstream-failed"), 3),
        (Effect::Transactional, (502, "upstream-failed"), 3),
    ] {
        let ledger = Ledger::default();
        let made = ledger.clone();
        let service = service_fn(move |request: Request<Body>| {
            let made = made.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&body[..], b"{}", "the service is given the whole request");
                made.add("charge");
                Err::<Response<Body>, _>(Unreachable)
            }
        });
        let idempotency = layer(memory()).effect(effect).build().unwrap();
        let service = idempotency.layer(service);
        let request = || request().map(|_| Body::from("{}"));
        let first = send_to(&service, request()).await.unwrap();
        is_problem(&first, status, code);
        for _ in 0..2 {
            let retry = send_to(&service, request()).await.unwrap();
            assert_eq!(retry.code(), code, "{effect:?}");
        }
        assert_eq!(ledger.len(), runs, "{effect:?}");

        let mut unkeyed = request();
        unkeyed.headers_mut().remove("idempotency-key");
        let passed = send_to(&service, unkeyed).await;
        assert!(matches!(passed, Err(Unreachable)), "what is not covered passes untouched");
    }
}

/// Fails to become ready once; then it works.
#[derive(Clone)]
struct Overloaded {
    failed: Arc<Mutex<bool>>,
    ledger: Ledger,
}

impl Service<Request<Body>> for Overloaded {
    type Response = Response<Body>;
    type Error = Unreachable;
    type Future = std::future::Ready<Result<Response<Body>, Unreachable>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Unreachable>> {
        let had_failed = std::mem::replace(&mut *self.failed.lock().unwrap(), true);
        Poll::Ready(if had_failed { Ok(()) } else { Err(Unreachable) })
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.ledger.add("charge");
        std::future::ready(Ok(Response::new(Body::from("charged"))))
    }
}

#[tokio::test]
async fn a_service_that_never_saw_the_request_gives_the_key_free() {
    let (ledger, failed) = (Ledger::default(), Arc::default());
    let idempotency = layer(memory()).build().unwrap();
    let service = idempotency.layer(Overloaded { failed, ledger: ledger.clone() });
    let request = || request().map(|_| Body::from("{}"));
    is_problem(&send_to(&service, request()).await.unwrap(), 502, "upstream-failed");
    assert_eq!(send_to(&service, request()).await.unwrap().text(), "charged");
    assert!(send_to(&service, request()).await.unwrap().is_replay());
    assert_eq!(ledger.len(), 1);
}

#[derive(Debug)]
struct Unreachable;

async fn send_to<S, E>(service: &S, request: Request<Body>) -> Result<Reply, E>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = E> + Clone,
    E: fmt::Debug,
{
    let (head, body) = service.clone().oneshot(request).await?.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    Ok(Reply { status: head.status, headers: head.headers, body, trailers })
}

#[tokio::test(start_paused = true)]
async fn an_overdue_run_is_unknown_until_its_late_end_is_replayed() {
    let gate = Gate::new();
    let (max_run, held) = (Duration::from_millis(300), gate.clone());
    let charges = Charges::new(
        |layer| layer.lease(LEASE).max_run(max_run),
        move |number| {
            let gate = held.clone();
            async move {
                gate.pass().await;
                created(number)
            }
        },
    );
    let start = Instant::now();
    is_problem(&charges.send().await, 504, "outcome-unknown");
    assert_eq!(start.elapsed(), max_run, "told in time");
    is_problem(&charges.send().await, 409, "in-progress");
    sleep(LEASE).await;
    is_problem(&charges.send().await, 409, "outcome-unknown");
    assert_eq!(charges.engine.unsettled(), 1, "it still runs");
    gate.open();
    eventually(async || charges.engine.unsettled() == 0).await;
    is_replay(&charges.send().await, "charge 1");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_run_of_a_repeatable_effect_may_be_taken_over() {
    let gate = Gate::new();
    let (max_run, held) = (Duration::from_millis(300), gate.clone());
    let charges = Charges::new(
        |layer| layer.effect(REPEATABLE).lease(LEASE).max_run(max_run),
        move |number| {
            let gate = held.clone();
            async move {
                if number == 1 {
                    gate.pass().await;
                }
                created(number)
            }
        },
    );
    is_problem(&charges.send().await, 504, "upstream-failed");
    is_problem(&charges.send().await, 409, "in-progress");
    sleep(LEASE).await;
    is_answer(&charges.send().await, "charge 2");
    gate.open();
    eventually(async || charges.engine.unsettled() == 0).await;
    is_replay(&charges.send().await, "charge 2");
    assert_eq!(charges.ledger.len(), 2, "and the late end of the first changes nothing");
}

/// The time of a run is bounded also while a store that hangs is asked to renew its claim.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_delay_what_an_overdue_run_is_told() {
    let (store, ledger, gate) = (memory(), Ledger::default(), Gate::new());
    let faulty = FaultyStore::new(store.clone(), None);
    let (made, mute, held) = (ledger.clone(), faulty.clone(), gate.clone());
    let handler = async move || {
        made.add("charge");
        mute.set_mute(true);
        held.pass().await;
        mute.set_mute(false);
        created(1)
    };
    let max_run = Duration::from_millis(300);
    let idempotency = layer(faulty).lease(LEASE).max_run(max_run).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let start = Instant::now();
    is_problem(&send(&app, request()).await, 504, "outcome-unknown");
    let told_after = start.elapsed();
    gate.open();
    eventually(async || status(&store).await == Some(Status::Succeeded)).await;
    is_replay(&send(&app, request()).await, "charge 1");
    assert_eq!(ledger.len(), 1);
    assert_eq!(told_after, max_run, "whatever the store does");
}

// -------------------------------------------------------------------- slow and strange answers

#[tokio::test(start_paused = true)]
async fn the_claim_of_a_slow_handler_is_renewed_while_it_trickles() {
    let charges = Charges::new(
        |layer| layer.lease(LEASE),
        |_| async {
            sleep(LEASE * 2).await;
            let (sender, body) = Pieces::channel();
            tokio::spawn(async move {
                for piece in ["sl", "ow", "ly"] {
                    sleep(LEASE).await;
                    sender.send(data(piece)).unwrap();
                }
            });
            in_pieces(body)
        },
    );
    let app = charges.app.clone();
    let first = tokio::spawn(async move { send(&app, request()).await });
    let mut refused = 0;
    let replay = loop {
        sleep(LEASE / 2).await;
        let reply = charges.send().await;
        if reply.is_replay() {
            break reply;
        }
        is_problem(&reply, 409, "in-progress");
        refused += 1;
    };
    assert!(refused >= 8, "{refused} retries met it, in four times its lease");
    is_replay(&replay, "slowly");
    is_answer(&first.await.unwrap(), "slowly");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_is_passed_on_as_it_comes_and_never_run_again() {
    let (events, body) = Pieces::channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let charges = Charges::new(
        |layer| layer,
        move |_| {
            let body = body.lock().unwrap().take().unwrap();
            async move { ([("content-type", "text/event-stream")], AxumBody::new(body)).into_response() }
        },
    );
    let mut response = charges.app.clone().oneshot(request()).await.unwrap();
    assert_eq!((response.status().as_u16(), charges.engine.unsettled()), (200, 0));
    is_problem(&charges.send().await, 409, "result-unavailable");
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(data(event)).unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    events.send(broken()).unwrap();
    assert!(response.body_mut().frame().await.unwrap().is_err(), "the client sees that it broke");
    is_problem(&charges.send().await, 409, "result-unavailable");
    assert_eq!(charges.ledger.len(), 1);
}

/// What is too large to be kept has ended when it is passed on; what broke before has not.
#[tokio::test(start_paused = true)]
async fn a_large_answer_that_breaks_off_is_not_a_success_to_anybody() {
    for (pieces, first, retry) in
        [(3, None, "result-unavailable"), (1, Some((504, "outcome-unknown")), "outcome-unknown")]
    {
        let charges = Charges::new(
            |layer| layer.max_inline(10).max_response(25),
            move |_| async move {
                let pieces = (0..pieces).map(|_| data("ten bytes!")).chain([broken()]);
                in_pieces(Pieces::of(pieces))
            },
        );
        let response = charges.app.clone().oneshot(request()).await.unwrap();
        match first {
            None => assert!(response.into_body().collect().await.is_err(), "it is seen to break"),
            Some((status, _)) => assert_eq!(response.status(), status),
        }
        for _ in 0..2 {
            is_problem(&charges.send().await, 409, retry);
        }
        assert_eq!(charges.ledger.len(), 1);
    }
}

#[tokio::test]
async fn an_answer_or_a_request_without_a_body_is_whole() {
    for (answered, length) in [(204, None), (201, None), (201, Some(0)), (304, Some(512))] {
        let charges = Charges::new(
            |layer| layer,
            move |_| async move {
                let mut response = StatusCode::from_u16(answered).unwrap().into_response();
                response.headers_mut().remove(header::CONTENT_LENGTH);
                if let Some(length) = length {
                    response.headers_mut().insert(header::CONTENT_LENGTH, u64::into(length));
                }
                response
            },
        );
        let request = || post("/charges", "k", AxumBody::empty());
        let first = send(&charges.app, request()).await;
        let replay = send(&charges.app, request()).await;
        for reply in [&first, &replay] {
            assert_eq!((reply.status.as_u16(), reply.text()), (answered, ""));
        }
        // Without a word of the handler the router says 0.
        let length = length.unwrap_or(0).to_string();
        assert_eq!(first.header("content-length"), Some(&*length), "{answered}");
        assert_eq!(replay.header("content-length"), Some(&*length), "{answered}");
        assert!(replay.is_replay() && charges.ledger.len() == 1, "{answered}: {replay:?}");
    }
}

// -------------------------------------------------------------------------- what is run again

#[tokio::test(start_paused = true)]
async fn failures_of_a_repeatable_effect_are_passed_on_and_run_again_for_a_while() {
    for failure in [500, 502, 503, 504, 599] {
        let charges = Charges::new(
            |layer| layer.effect(REPEATABLE),
            move |number| async move {
                match number {
                    3 => created(number),
                    _ => (StatusCode::from_u16(failure).unwrap(), "failed").into_response(),
                }
            },
        );
        for _ in 0..2 {
            let failed = charges.send().await;
            assert_eq!((failed.status.as_u16(), failed.text()), (failure, "failed"));
            assert!(!failed.is_replay() && failed.header("idempotency-completed").is_none());
        }
        is_answer(&charges.send().await, "charge 3");
        is_replay(&charges.send().await, "charge 3");
        assert_eq!(charges.ledger.len(), 3);
    }
    // Downstream forgets the key in the end.
    let charges = Charges::new(|layer| layer.effect(REPEATABLE), |_| NoAnswer::BreaksOff.answer());
    is_problem(&charges.send().await, 502, "upstream-failed");
    sleep(HOUR).await;
    charges.stays_unknown().await;
}

/// How a transactional handler ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    With(u16),
    ByPanic,
    BrokenOff,
    TooLate,
}

/// A transaction of the user's: the effect and the end of the claim are one commit.
async fn commit(store: &Arc<MemoryStore>, ledger: &Ledger, claim: &Claim) {
    let outcome = Outcome::inline(201, b"committed".to_vec()).header("x-of", b"the commit");
    let engine = Engine::new(store.clone());
    let settled = engine.settle((**claim).clone(), Ending::Succeeded(outcome)).await.unwrap();
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    ledger.add("charge");
}

/// A service whose handler commits, or does not, and then ends somehow.
fn transactional(store: &Arc<MemoryStore>, ledger: &Ledger, commits: bool, ends: Ends) -> Router {
    let (own, ledger) = (store.clone(), ledger.clone());
    let handler = async move |claim: Claim| {
        if commits {
            commit(&own, &ledger, &claim).await;
        }
        match ends {
            Ends::With(status) => {
                (StatusCode::from_u16(status).unwrap(), "not the stored one").into_response()
            }
            Ends::ByPanic => NoAnswer::PanicsLater.answer().await,
            Ends::BrokenOff => NoAnswer::BreaksOff.answer().await,
            Ends::TooLate => {
                sleep(LEASE * 4).await;
                created(1)
            }
        }
    };
    let idempotency = layer(store.clone()).effect(Effect::Transactional).lease(LEASE);
    let idempotency = idempotency.max_run(LEASE * 3).build().unwrap();
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

#[tokio::test(start_paused = true)]
async fn the_answer_that_a_transaction_committed_is_sent_whatever_the_handler_says() {
    let answered = [201, 303, 404, 429, 500, 503].map(Ends::With);
    for ends in answered.into_iter().chain([Ends::ByPanic, Ends::BrokenOff]) {
        let (store, ledger) = (memory(), Ledger::default());
        let app = transactional(&store, &ledger, true, ends);
        let first = send(&app, request()).await;
        is_answer(&first, "committed");
        assert_eq!(first.header("x-of"), Some("the commit"), "{ends:?}");
        assert!(!first.is_replay(), "{ends:?}");
        let replay = send(&app, request()).await;
        is_replay(&replay, "committed");
        for name in ["idempotency-completed", "idempotency-expires"] {
            assert!(first.header(name).is_some() && first.header(name) == replay.header(name));
        }
        assert_eq!(ledger.len(), 1, "{ends:?}");
    }
    let (store, ledger) = (memory(), Ledger::default());
    let app = transactional(&store, &ledger, true, Ends::TooLate);
    is_problem(&send(&app, request()).await, 504, "upstream-failed");
    is_replay(&send(&app, request()).await, "committed");
    assert_eq!(ledger.len(), 1, "the commit counts, not the time that the rest took");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_without_a_commit_is_run_again() {
    let own_reply = [500, 503].map(|status| (Ends::With(status), (status, "")));
    let refused = [(429, 429), (403, 403)].map(|(end, told)| (Ends::With(end), (told, "")));
    let ours = [
        (Ends::With(200), (500, "not-committed")),
        (Ends::With(303), (500, "not-committed")),
        (Ends::ByPanic, (502, "upstream-failed")),
        (Ends::BrokenOff, (502, "upstream-failed")),
        (Ends::TooLate, (504, "upstream-failed")),
    ];
    for (ends, told) in own_reply.into_iter().chain(refused).chain(ours) {
        let (store, ledger) = (memory(), Ledger::default());
        let failing = transactional(&store, &ledger, false, ends);
        let first = send(&failing, request()).await;
        assert_eq!((first.status.as_u16(), &*first.code()), told, "{ends:?}");
        if !told.1.is_empty() {
            assert_eq!(first.json()["retryable"], true, "{ends:?}");
        }
        // The lease of what is too late must be over.
        sleep(LEASE * 2).await;
        let committing = transactional(&store, &ledger, true, Ends::With(201));
        is_answer(&send(&committing, request()).await, "committed");
        is_replay(&send(&failing, request()).await, "committed");
        assert_eq!(ledger.len(), 1, "{ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_ends_a_transactional_operation_without_a_commit() {
    let (store, ledger) = (memory(), Ledger::default());
    let app = transactional(&store, &ledger, false, Ends::With(404));
    for is_replay in [false, true] {
        let reply = send(&app, request()).await;
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (404, is_replay));
    }
    let committing = transactional(&store, &ledger, true, Ends::With(201));
    assert_eq!(send(&committing, request()).await.status, 404, "refused is refused");
    assert_eq!(ledger.len(), 0);
}

#[tokio::test]
async fn the_answer_that_a_handler_stored_itself_is_sent() {
    let engine = Engine::new(memory());
    let settling = engine.clone();
    let handler = async move |claim: Claim| {
        let stored = Outcome::inline(201, b"stored".to_vec());
        settling.settle((*claim).clone(), Ending::Succeeded(stored)).await.unwrap();
        "returned"
    };
    let idempotency = layer_on(&engine).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    for is_replay in [false, true] {
        let reply = send(&app, request()).await;
        assert_eq!((reply.status.as_u16(), reply.text()), (201, "stored"));
        assert_eq!(reply.is_replay(), is_replay);
    }
}

// -------------------------------------------------------------------- clients that disconnect

/// Lets others go first before and after every call, so that there are many points to leave at.
struct Yielding(Arc<MemoryStore>);

async fn yielding<T>(call: impl Future<Output = T>) -> T {
    yield_now().await;
    yield_now().await;
    let answer = call.await;
    yield_now().await;
    yield_now().await;
    answer
}

impl Store for Yielding {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(yielding(self.0.swap(change)))
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(yielding(self.0.get(id)))
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.0.sweep(limit)
    }
}

/// Polls a future so often and drops it at once; `None`: it was not ready by then.
async fn dropped_after<F: Future>(mut polls: u32, future: F) -> Option<F::Output> {
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

/// A service in which everything takes several turns, with the engine that looks after it.
fn many_turns(effect: Effect) -> (Router, Engine, Ledger) {
    let (store, ledger) = (memory(), Ledger::default());
    let engine = Engine::new(Yielding(store.clone()));
    let made = ledger.clone();
    let handler = async move |claim: Claim, body: String| {
        assert_eq!(body, "{}");
        yield_now().await;
        match effect {
            Effect::Transactional => commit(&store, &made, &claim).await,
            _ => drop(made.add("charge")),
        }
        yield_now().await;
        let (sender, body) = Pieces::channel();
        tokio::spawn(async move {
            for piece in ["comm", "itted"] {
                yield_now().await;
                sender.send(data(piece)).unwrap();
            }
        });
        in_pieces(body)
    };
    let idempotency = layer_on(&engine).effect(effect).lease(LEASE).build().unwrap();
    (Router::new().route("/charges", on_post(handler)).layer(idempotency), engine, ledger)
}

/// The request, whose body also takes its turns.
fn slow_request() -> Request<AxumBody> {
    let (sender, body) = Pieces::channel();
    tokio::spawn(async move {
        for piece in ["{", "}"] {
            yield_now().await;
            // Nobody may be left to read it.
            let _ = sender.send(data(piece));
        }
    });
    post("/charges", "k", AxumBody::new(body))
}

#[tokio::test(start_paused = true)]
async fn a_client_may_leave_at_every_await_point() {
    for effect in [Effect::External, REPEATABLE, Effect::Transactional] {
        for retries_at_once in [false, true] {
            let mut polls = 0;
            while !left_after(polls, effect, retries_at_once).await {
                polls += 1;
            }
            assert!(polls >= 8, "only {polls} points to leave at: {effect:?}");
        }
    }
}

/// One client leaves and comes back. Whether it was there until the end.
async fn left_after(polls: u32, effect: Effect, retries_at_once: bool) -> bool {
    let (app, engine, ledger) = many_turns(effect);
    let response = dropped_after(polls, app.clone().oneshot(slow_request())).await;
    let was_there = response.is_some();
    drop(response);
    if retries_at_once {
        let retry = send(&app, slow_request()).await;
        let is_defined = retry.status == StatusCode::CREATED || retry.code() == "in-progress";
        assert!(is_defined, "after {polls} polls: {retry:?}");
        assert!(ledger.len() <= 1, "after {polls} polls");
    }
    eventually(async || engine.unsettled() == 0).await;
    let effects = ledger.len();
    let retry = send(&app, slow_request()).await;
    is_answer(&retry, "committed");
    assert_eq!(retry.is_replay(), effects == 1, "after {polls} polls");
    assert_eq!(ledger.len(), 1, "after {polls} polls of {effect:?}");
    is_replay(&send(&app, request()).await, "committed");
    assert_eq!(engine.unsettled(), 0);
    was_there
}

#[tokio::test(start_paused = true)]
async fn a_waiter_may_leave_at_every_await_point() {
    for polls in 0.. {
        let (store, ledger, gate) = (memory(), Ledger::default(), Gate::new());
        let engine = Engine::new(Yielding(store.clone()));
        let (made, held) = (ledger.clone(), gate.clone());
        let handler = async move || {
            let number = made.add("charge");
            held.pass().await;
            created(number)
        };
        let idempotency = layer_on(&engine).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        let sent = app.clone();
        let first = tokio::spawn(async move { send(&sent, request()).await });
        gate.reached().await;
        let waiter = dropped_after(polls, app.clone().oneshot(preferring("wait=5"))).await;
        let sent = app.clone();
        let other = tokio::spawn(async move { send(&sent, preferring("wait=5")).await });
        yield_now().await;
        gate.open();
        is_answer(&first.await.unwrap(), "charge 1");
        is_replay(&other.await.unwrap(), "charge 1");
        assert_eq!((ledger.len(), engine.unsettled()), (1, 0), "after {polls} polls");
        if let Some(response) = waiter {
            assert_eq!(response.unwrap().status(), 409, "its patience was over before the run");
            assert!(polls >= 5, "only {polls} points to leave at");
            break;
        }
    }
}

// -------------------------------------------------------------------------- stores that fail

/// How a call to a store goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It fails and does nothing.
    Fails,
    /// It does its work, and the reply is lost.
    LosesReply,
    /// It does its work and never answers.
    Hangs,
    /// The reply is lost, and then it fails.
    DoesItAndDies,
}

/// A store whose calls go wrong from one on and until another.
#[derive(Clone)]
struct Dying {
    inner: Arc<MemoryStore>,
    plan: Arc<Mutex<Plan>>,
}

struct Plan {
    calls: usize,
    faulty: Range<usize>,
    fault: Fault,
}

impl Dying {
    fn new(fault: Fault, faulty: Range<usize>) -> Self {
        Self { inner: memory(), plan: Arc::new(Mutex::new(Plan { calls: 0, faulty, fault })) }
    }

    /// From now on nothing goes wrong. Whether anything did.
    fn heal(&self) -> bool {
        let mut plan = self.plan.lock().unwrap();
        let went_wrong = plan.calls >= plan.faulty.start;
        plan.faulty = 0..0;
        went_wrong
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = {
            let mut plan = self.plan.lock().unwrap();
            plan.calls += 1;
            let is_first = plan.calls == plan.faulty.start;
            match plan.faulty.contains(&plan.calls) {
                true if plan.fault == Fault::DoesItAndDies && !is_first => Some(Fault::Fails),
                is_faulty => is_faulty.then_some(plan.fault),
            }
        };
        let lost = || Err(StoreError::Unavailable("injected".into()));
        match fault {
            None => call.await,
            Some(Fault::Fails) => lost(),
            Some(Fault::LosesReply | Fault::DoesItAndDies) => call.await.and_then(|_| lost()),
            Some(Fault::Hangs) => {
                let _ = call.await;
                std::future::pending().await
            }
        }
    }
}

impl Store for Dying {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.call(self.inner.swap(change)))
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(self.call(self.inner.get(id)))
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.inner.sweep(limit)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_may_die_at_every_call() {
    for effect in [Effect::External, Effect::Transactional] {
        for fault in [Fault::Fails, Fault::LosesReply, Fault::Hangs, Fault::DoesItAndDies] {
            for length in [1, 2, 3, 4, usize::MAX / 2] {
                let mut call = 1;
                while died_at(fault, call..call + length, effect).await {
                    call += 1;
                }
                assert!(call > 5, "only {call} calls to the store: {fault:?}");
            }
        }
    }
}

/// One operation whose store fails for a while. Whether it did before the answer came.
async fn died_at(fault: Fault, calls: Range<usize>, effect: Effect) -> bool {
    let context = format!("{fault:?} {calls:?} {effect:?}");
    let (store, ledger) = (Dying::new(fault, calls), Ledger::default());
    let engine = Engine::new(store.clone());
    let (made, database) = (ledger.clone(), store.inner.clone());
    let handler = async move |claim: Claim| {
        // Several renewals.
        sleep(LEASE * 2).await;
        match effect {
            Effect::Transactional => commit_if_owner(&database, &made, &claim).await,
            _ => created(made.add("charge")),
        }
    };
    let idempotency = layer_on(&engine).effect(effect).lease(LEASE).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);

    let first = send(&app, request()).await;
    let (effects_when_told, durable) = (ledger.len(), status(&store.inner).await);
    let died = store.heal();
    match first.code().as_str() {
        "" => {
            is_answer(&first, "charge 1");
            assert_eq!(durable, Some(Status::Succeeded), "an answer is durable: {context}");
        }
        "store-unavailable" => assert_eq!((effects_when_told, first.status.as_u16()), (0, 503)),
        "outcome-unknown" => assert_eq!(first.status, 503, "the store is being retried: {context}"),
        "lease-lost" => assert_eq!(first.status, 409),
        code => panic!("{context}: {code} is no answer for this"),
    }
    let codes = Code::ALL.map(Code::as_str);
    assert!(first.code().is_empty() || codes.contains(&&*first.code()), "{first:?}");

    eventually(async || engine.unsettled() == 0).await;
    sleep(LEASE * 2).await;
    let retry = send(&app, request()).await;
    let again = send(&app, request()).await;
    if effect == Effect::External && fault == Fault::DoesItAndDies && ledger.len() == 0 {
        // A claim that nobody could give back while its lease lasted: it counts by its effect.
        is_problem(&retry, 409, "outcome-unknown");
        is_problem(&again, 409, "outcome-unknown");
        return died;
    }
    is_answer(&retry, "charge 1");
    is_replay(&again, "charge 1");
    assert_eq!(retry.is_replay(), effects_when_told == 1, "{context}");
    assert_eq!(ledger.len(), 1, "{context}");
    died
}

/// Commits with the user's own connection to the database, which does not fail; or rolls back.
async fn commit_if_owner(
    store: &Arc<MemoryStore>,
    made: &Ledger,
    claim: &Claim,
) -> Response<AxumBody> {
    let outcome = Outcome::inline(201, b"charge 1".to_vec());
    let ending = Ending::Succeeded(outcome);
    match Engine::new(store.clone()).settle((**claim).clone(), ending).await {
        Ok(Settled::Stored { .. }) => created(made.add("charge")),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_fails_open_says_that_it_did() {
    let (store, ledger) = (memory(), Ledger::default());
    let faulty = FaultyStore::new(store.clone(), None);
    let made = ledger.clone();
    let handler = async move |claim: Option<Claim>| {
        let mut response = created(made.add("charge"));
        let is_claimed = HeaderValue::from_static(if claim.is_some() { "yes" } else { "no" });
        response.headers_mut().insert("x-claimed", is_claimed);
        let forged = HeaderValue::from_static("forged");
        response.headers_mut().insert("onceward-unprotected", forged);
        response
    };
    let open = layer(faulty.clone()).pass_when_store_is_down().build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(open);
    faulty.set_down(true);
    let alarms = telemetry::UNPROTECTED.count();
    let unprotected = send(&app, request()).await;
    is_answer(&unprotected, "charge 1");
    assert_eq!(unprotected.header("onceward-unprotected"), Some("store-unavailable"));
    assert_eq!(unprotected.header("x-claimed"), Some("no"));
    assert!(unprotected.header("idempotency-completed").is_none(), "nothing was kept");
    assert!(telemetry::UNPROTECTED.count() > alarms, "somebody is told");
    faulty.set_down(false);
    let protected = send(&app, post("/charges", "another", "{}")).await;
    is_answer(&protected, "charge 2");
    assert_eq!(protected.header("onceward-unprotected"), None, "{protected:?}");
    assert_eq!(protected.header("x-claimed"), Some("yes"));
    assert_eq!(ledger.len(), 2);
}

/// A store that is up and says that newer software has run it is not a store that is down.
#[tokio::test(start_paused = true)]
async fn a_route_that_fails_open_does_not_run_what_newer_software_has_recorded() {
    let (store, ledger) = (memory(), Ledger::default());
    let newer = Engine::new(store.clone());
    let fingerprints = Fingerprint::from_parts(9, [9; 32]).into();
    let terms = Terms::of(Effect::External).build().unwrap();
    let asked = Asked { operation: charge("k"), fingerprints, terms };
    let Ok(Verdict::Run(claim)) = newer.admit(asked).await else { panic!("the key is free") };
    ledger.add("charge by newer software");
    let outcome = Outcome::inline(201, b"charge 1".to_vec());
    newer.settle(claim, Ending::Succeeded(outcome)).await.unwrap();

    let made = ledger.clone();
    let handler = async move || created(made.add("charge"));
    let open = layer(store.clone()).pass_when_store_is_down().build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(open);
    let reply = send(&app, request()).await;
    assert_eq!(ledger.len(), 1, "it was run before, and the store says so: {reply:?}");
    is_problem(&reply, 503, "store-unavailable");
}

// ---------------------------------------------------------------------------- two processes

/// A process that charges behind a gate.
fn process(
    store: impl Store,
    ledger: &Ledger,
    gate: &Gate,
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> Router {
    let (made, gate) = (ledger.clone(), gate.clone());
    let handler = async move |claim: Claim| {
        made.add("charge");
        gate.pass().await;
        (StatusCode::CREATED, format!("attempt {}", claim.attempt()))
    };
    let idempotency = choose(layer(store).lease(LEASE)).build().unwrap();
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_answer_of_another_process() {
    let (store, ledger, gate) = (memory(), Ledger::default(), Gate::new());
    let a = process(store.clone(), &ledger, &gate, |layer| layer);
    let wait = InFlight::Wait(Duration::from_secs(10));
    let b = process(store, &ledger, &gate, |layer| layer.in_flight(wait));
    let first = tokio::spawn(async move { send(&a, request()).await });
    gate.reached().await;
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let b = b.clone();
            tokio::spawn(async move { send(&b, request()).await })
        })
        .collect();
    sleep(LEASE * 5).await;
    let start = Instant::now();
    gate.open();
    is_answer(&first.await.unwrap(), "attempt 1");
    for waiter in waiters {
        is_replay(&waiter.await.unwrap(), "attempt 1");
    }
    assert!(start.elapsed() <= Duration::from_millis(250), "soon after: {:?}", start.elapsed());
    assert_eq!(ledger.len(), 1);
}

/// The first process hangs and cannot renew: its waiter elsewhere learns what that means.
#[tokio::test(start_paused = true)]
async fn a_waiter_outlives_the_process_that_it_waits_for() {
    for effect in [Effect::External, REPEATABLE] {
        let (store, ledger) = (memory(), Ledger::default());
        let cut = FaultyStore::new(store.clone(), None);
        let (gate_a, gate_b) = (Gate::new(), Gate::new());
        let a = process(cut.clone(), &ledger, &gate_a, |layer| layer.effect(effect));
        let wait = InFlight::Wait(Duration::from_secs(10));
        let b = process(store, &ledger, &gate_b, |layer| layer.effect(effect).in_flight(wait));
        let first = tokio::spawn(async move { send(&a, request()).await });
        gate_a.reached().await;
        cut.set_down(true);
        gate_b.open();
        let waiter = send(&b, request()).await;
        if effect == Effect::External {
            is_problem(&waiter, 409, "outcome-unknown");
        } else {
            is_answer(&waiter, "attempt 2");
            assert!(!waiter.is_replay(), "it became the one that runs it");
        }
        cut.set_down(false);
        gate_a.open();
        let first = first.await.unwrap();
        if effect == Effect::External {
            is_answer(&first, "attempt 1");
            is_replay(&send(&b, request()).await, "attempt 1");
            assert_eq!(ledger.len(), 1, "the late truth wins");
        } else {
            is_problem(&first, 409, "lease-lost");
            is_replay(&send(&b, request()).await, "attempt 2");
            assert_eq!(ledger.len(), 2, "what is repeatable was repeated once");
        }
    }
}

// ------------------------------------------------------------------------------ the machinery

#[tokio::test]
async fn a_layer_inside_a_layer_is_refused_and_runs_nothing() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = async move || created(made.add("charge"));
    let outer = layer(memory()).build().unwrap();
    let same_engine = outer.with(|layer| layer.operation("inner")).unwrap();
    let other_engine = layer(memory()).build().unwrap();
    for (key, inner) in [("one", same_engine), ("other", other_engine)] {
        let routes = Router::new().route("/charges", on_post(handler.clone()));
        let app = routes.layer(inner).layer(outer.clone());
        let reply = send(&app, post("/charges", key, "{}")).await;
        is_problem(&reply, 500, "misconfigured");
        let unkeyed = Request::post("/charges").body(AxumBody::empty()).unwrap();
        assert_eq!(send(&app, unkeyed).await.status, 201, "what is not covered passes both");
    }
    assert_eq!(ledger.len(), 2, "only the two without a key");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_executions_whose_clients_are_gone() {
    let gate = Gate::new();
    let held = gate.clone();
    let charges = Charges::new(
        |layer| layer,
        move |number| {
            let gate = held.clone();
            async move {
                gate.pass().await;
                created(number)
            }
        },
    );
    let app = charges.app.clone();
    let client = tokio::spawn(async move { send(&app, request()).await });
    gate.reached().await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    let engine = charges.engine.clone();
    let drain = tokio::spawn(async move { engine.drain(HOUR).await });
    yield_now().await;
    sleep(Duration::from_secs(60)).await;
    assert!(!drain.is_finished(), "it waits for the handler");
    let refused = send(&charges.app, post("/charges", "another", "{}")).await;
    is_problem(&refused, 503, "overloaded");
    gate.open();
    assert_eq!(drain.await.unwrap().abandoned, 0);
    assert_eq!(status(&charges.store).await, Some(Status::Succeeded), "it was settled before");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test]
async fn a_hyper_server_needs_no_axum() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = service_fn(move |request: Request<Body>| {
        let made = made.clone();
        async move {
            let claim = request.extensions().get::<Claim>().cloned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let number = made.add("charge");
            let attempt = claim.map_or(0, |claim| claim.attempt());
            let text = format!("charge {number}, attempt {attempt}, {} bytes", body.len());
            Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes())))
        }
    });
    let service = layer(memory()).build().unwrap().layer(handler);
    let service = service.map_request(|request: Request<Incoming>| request.map(Body::new));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let send = async |key: &str, body: &str| {
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{key}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        String::from_utf8(raw(address, request.as_bytes()).await).unwrap()
    };
    let first = send("idempotency-key: k\r\n", "12345").await;
    assert!(first.ends_with("charge 1, attempt 1, 5 bytes"), "{first}");
    let replay = send("idempotency-key: \"k\"\r\n", "12345").await;
    assert!(replay.ends_with("charge 1, attempt 1, 5 bytes"), "{replay}");
    assert!(replay.contains("idempotent-replayed: true") && !first.contains("replayed"));
    let other = send("idempotency-key: k\r\n", "54321").await;
    assert!(other.starts_with("HTTP/1.1 422 ") && other.contains("key-reused"), "{other}");
    assert_eq!(ledger.len(), 1);
    let unkeyed = send("", "1").await;
    assert!(unkeyed.ends_with("charge 2, attempt 0, 1 bytes"), "{unkeyed}");
}
