//! Services that give up waiting for an answer, and what becomes of it when it comes: rule 12.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body as AxumBody;
use http::{Response, StatusCode};
use onceward::{
    Body, Effect, Outcome, Resolution, Status, Terms,
    engine::RepairRequest,
    protocol::{Cause, Force},
    server::{CompleteWithin, Idempotency, IdempotencyBuilder, InFlight, NoAnswer},
};
use tokio::time::{Instant, sleep};

use crate::{
    executions::charges::{Charges, REPEATABLE, created, in_pieces, is_replay, layer_on, status},
    server_support::{
        Gate, Pieces, Reply, charge, data, eventually, is_problem, memory, post, send, stored,
    },
};

const WITHIN: Duration = Duration::from_secs(2);
const WAIT: InFlight = InFlight::Wait(Duration::from_secs(5));
const LEASE: Duration = Duration::from_secs(30);

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Charges whose answer is late: it comes when the gate opens.
struct Late {
    charges: Charges,
    gate: Gate,
    is_left: Arc<AtomicBool>,
}

impl Late {
    fn new(
        choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
        answer: fn() -> Option<Response<Body>>,
    ) -> Self {
        let (gate, is_left) = (Gate::closed(), Arc::new(AtomicBool::new(false)));
        let (held, leaving) = (gate.clone(), is_left.clone());
        let choose = |layer: IdempotencyBuilder| choose(layer.lease(LEASE).in_flight(WAIT));
        let charges = Charges::new(choose, move |_| {
            let (held, leaving) = (held.clone(), Dropped(leaving.clone()));
            let late = async move {
                let _leaving = leaving;
                held.pass().await;
                answer()
            };
            let cause = Cause::NoAnswer { within: WITHIN, awaited_until: None };
            let response = NoAnswer::new(cause).until_answered(late).into_response();
            async { response.map(AxumBody::new) }
        });
        Self { charges, gate, is_left }
    }

    async fn begin(
        choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
        answer: fn() -> Option<Response<Body>>,
    ) -> Self {
        let late = Self::new(choose, answer);
        let first = late.charges.send().await;
        is_problem(&first, 504, "outcome-unknown");
        assert_eq!(cause(&first), "no answer in 2 s");
        late
    }

    fn is_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst)
    }

    /// What a duplicate hears, and whether it had to wait.
    async fn ask(&self) -> (Reply, bool) {
        let asked = Instant::now();
        let reply = self.charges.send().await;
        (reply, asked.elapsed() >= Duration::from_secs(5))
    }
}

fn cause(reply: &Reply) -> String {
    reply.json()["cause"].as_str().unwrap_or_default().to_owned()
}

fn charged() -> Option<Response<Body>> {
    Some(created(1).map(Body::new))
}

fn failed() -> Option<Response<Body>> {
    let mut response = Response::new(Body::from("bad gateway"));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    Some(response)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_is_replayed() {
    let late = Late::begin(|layer| layer, charged).await;
    let (reply, has_waited) = late.ask().await;
    is_problem(&reply, 409, "outcome-unknown");
    assert!(has_waited, "the answer may come at any time");
    late.gate.open();
    is_replay(&late.charges.send().await, "charge 1");
    assert_eq!(late.charges.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_tells_nothing_or_does_not_come_is_not_waited_for_any_longer() {
    let lost = "connection lost after the request was sent";
    for (answer, why) in
        [(failed as fn() -> _, "upstream answered 502"), ((|| None) as fn() -> _, lost)]
    {
        let late = Late::begin(|layer| layer, answer).await;
        late.gate.open();
        eventually(async || late.charges.engine.unsettled() == 0).await;
        let (reply, has_waited) = late.ask().await;
        is_problem(&reply, 409, "outcome-unknown");
        assert_eq!((&*cause(&reply), has_waited), (why, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_listening_and_nobody_waits_for_it() {
    let late = Late::begin(|layer| layer, charged).await;
    let begun = Instant::now();
    let drained = late.charges.engine.drain(Duration::from_secs(60)).await;
    assert_eq!((drained.abandoned, begun.elapsed()), (0, Duration::ZERO));
    assert!(late.is_left());
    let stored = stored(&late.charges.store, "k").await.unwrap();
    assert_eq!(stored.cause(), Some(Cause::NoAnswer { within: WITHIN, awaited_until: None }));
}

#[tokio::test(start_paused = true)]
async fn an_operators_word_ends_listening() {
    let late = Late::begin(|layer| layer, charged).await;
    let terms = Terms::of(Effect::External).build().unwrap();
    let unknown = stored(&late.charges.store, "k").await.unwrap();
    let resolution = Resolution::Applied(Outcome::inline(202, b"operator".to_vec()));
    let why = RepairRequest {
        terms: &terms,
        actor: Some("ada"),
        reason: Some("seen in the ledger"),
        force: Force::No,
    };
    let id = charge("k").digest();
    late.charges.engine.resolve(id, &unknown, resolution, why).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    assert!(late.is_left(), "its connection is closed");
    late.gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(late.charges.send().await.text(), "operator");
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_renewed_while_it_listens() {
    let late = Late::begin(|layer| layer, charged).await;
    let before = stored(&late.charges.store, "k").await.unwrap();
    sleep(LEASE * 3).await;
    let after = stored(&late.charges.store, "k").await.unwrap();
    assert_eq!((before.updated_at, before.record), (after.updated_at, after.record));
    assert!(!late.is_left());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_run_again_is_not_listened_for() {
    for effect in [Effect::Transactional, REPEATABLE] {
        let late = Late::new(|layer| layer.effect(effect), charged);
        is_problem(&late.charges.send().await, 504, "upstream-failed");
        assert!(late.is_left(), "{effect:?}");
        assert_eq!(status(&late.charges.store).await, Some(Status::FailedRetryable));
    }
}

#[tokio::test(start_paused = true)]
async fn listening_ends_with_the_time_of_the_run() {
    let late = Late::begin(|layer| layer.max_run(LEASE), charged).await;
    sleep(LEASE).await;
    eventually(async || late.is_left()).await;
    let (reply, has_waited) = late.ask().await;
    is_problem(&reply, 409, "outcome-unknown");
    assert!(!has_waited);
}

#[tokio::test(start_paused = true)]
async fn listeners_have_a_bound() {
    let late = Late::begin(|layer| layer.max_late(0), charged).await;
    assert!(late.is_left());
    let (reply, has_waited) = late.ask().await;
    is_problem(&reply, 409, "outcome-unknown");
    assert!(!has_waited, "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_complete_in_time_is_late() {
    for (wait, text) in [(WITHIN / 2, None), (WITHIN * 2, Some("no answer in 2 s"))] {
        let charges = Charges::new(
            |layer| layer.in_flight(WAIT),
            move |_| async move {
                let begun = Instant::now();
                let (sender, body) = Pieces::channel();
                tokio::spawn(async move {
                    sender.send(data("charge ")).unwrap();
                    sleep(wait).await;
                    sender.send(data("1")).unwrap();
                });
                let mut response = in_pieces(body);
                let within = CompleteWithin::since(begun, WITHIN);
                response.extensions_mut().insert(within);
                response
            },
        );
        let first = charges.send().await;
        match text {
            None => assert_eq!(first.text(), "charge 1"),
            Some(why) => assert_eq!(cause(&first), why),
        }
        is_replay(&charges.send().await, "charge 1");
    }
}

/// What its connection has not sent of it is still there.
#[tokio::test(start_paused = true)]
async fn a_request_counts_while_its_answer_is_listened_for() {
    let late = Late::new(|layer| layer, charged);
    let large = vec![b'x'; 1 << 20];
    let first = send(&late.charges.app, post("/charges", "k", large.clone())).await;
    is_problem(&first, 504, "outcome-unknown");
    let beside = layer_on(&late.charges.engine).build().unwrap();
    let is_free = || beside.memory_of(None).nothing().grow_to(Idempotency::MAX_BUFFERED);
    assert!(!is_free());
    late.gate.open();
    eventually(async || is_free()).await;
}

/// A configuration that is read again makes new layers: what bounds the process stays.
#[tokio::test(start_paused = true)]
async fn layers_on_one_engine_count_together() {
    let engine = onceward::Engine::new(memory());
    let [one, other] = [(); 2].map(|()| layer_on(&engine).build().unwrap());
    let mut held = one.memory_of(None).nothing();
    assert!(held.grow_to(Idempotency::MAX_BUFFERED));
    assert!(!other.memory_of(None).nothing().grow_to(1));
    drop(held);
    assert!(other.memory_of(None).nothing().grow_to(1));
}

/// It has run: without memory its answer is kept, and its client asks again.
#[tokio::test(start_paused = true)]
async fn an_answer_for_which_there_is_no_memory_is_kept() {
    let large = "x".repeat(300 << 10);
    let text = large.clone();
    let charges = Charges::new(
        |layer| layer.max_inline(large.len()),
        move |_| {
            let text = text.clone();
            async { Response::new(AxumBody::from(text)) }
        },
    );
    let other = layer_on(&charges.engine).build().unwrap();
    let mut held = other.memory_of(None).nothing();
    assert!(held.grow_to(Idempotency::MAX_BUFFERED - 1000));
    let first = charges.send().await;
    is_problem(&first, 503, "outcome-unknown");
    assert_eq!(first.json()["retryable"], true);
    drop(held);
    let again = charges.send().await;
    assert!(again.is_replay() && again.text() == large, "{:?}", again.status);
}

/// It tells nothing and is not kept: to ask again would not bring it.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_for_whose_answer_there_is_no_memory_says_so() {
    let charges = Charges::new(
        |layer| layer,
        |_| async {
            let mut response = Response::new(AxumBody::from("x".repeat(300 << 10)));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        },
    );
    let beside = layer_on(&charges.engine).build().unwrap();
    let mut held = beside.memory_of(None).nothing();
    assert!(held.grow_to(Idempotency::MAX_BUFFERED - 1000));
    let first = charges.send().await;
    is_problem(&first, 504, "outcome-unknown");
    assert_eq!(first.header("onceward-outcome"), Some("unknown"));
    assert_eq!(
        (&*cause(&first), &first.json()["retryable"]),
        ("upstream answered 502", &false.into())
    );
}
