//! Stores that fail, at every call.

use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{HeaderValue, Response, StatusCode},
    response::IntoResponse as _,
    routing::post as on_post,
};
use onceward::{
    Digest, Effect, Ending, Engine, Fingerprint, Outcome, Request as Asked, Status, Store,
    StoreError, Terms, Verdict,
    conformance::FaultyStore,
    protocol::{Found, Settled},
    server::{Claim, Code},
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
    telemetry,
};
use tokio::time::sleep;

use crate::{
    executions::charges::{LEASE, created, is_answer, is_replay, layer_on, request, status},
    server_support::{Ledger, charge, eventually, is_problem, layer, memory, post, send},
};

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
        // Several renewals; those of a transactional effect come half as often.
        sleep(LEASE * 4).await;
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
