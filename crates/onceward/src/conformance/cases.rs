//! The rules of the drivers themselves.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use onceward_core::{
    Claim, Effect, Ending, Found, Request, Settled, Status, Store, Stored, Terms, Verdict,
    conformance::{Bench, Sample, answer},
};
use tokio::time::{Instant, sleep};

use super::{Faulty, FaultyStore};
use crate::{
    AdmitError, Engine,
    engine::{Renewal, Unsettled},
};

const LONG: Duration = Duration::from_secs(30);
/// How long one call to a store that does not answer takes.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

struct Rig<B: Bench> {
    store: B::Store,
    faulty: FaultyStore<B::Store>,
    engine: Engine,
    sample: Sample,
}

impl<B: Bench> Rig<B> {
    async fn new(bench: &B, faulty: Option<Faulty>) -> Self {
        let store = bench.open().await;
        let faulty = FaultyStore::new(store.clone(), faulty);
        let engine = Engine::new(faulty.clone()).settle_patience(LONG);
        Self { store, faulty, engine, sample: Sample::new(Effect::External) }
    }

    fn request(&self) -> Request {
        self.sample.request(b'a')
    }

    async fn claim(&self) -> Claim {
        match self.engine.admit(self.request()).await {
            Ok(Verdict::Run(claim)) => claim,
            other => panic!("expected to run, got {other:?}"),
        }
    }

    async fn stored(&self) -> Option<Box<Stored>> {
        match self.store.get(&self.sample.id()).await.expect("the store answers") {
            Found::Record(stored) => Some(stored),
            _ => None,
        }
    }

    async fn status(&self) -> Option<Status> {
        self.stored().await.map(|stored| stored.status())
    }

    /// Waits until the record has this status; a background task brings it there.
    async fn reaches(&self, status: Status) {
        let end = Instant::now() + LONG;
        while self.status().await != Some(status) {
            let found = self.stored().await;
            assert!(Instant::now() < end, "expected {status}, found {found:?} after {LONG:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn succeeded() -> Ending {
    Ending::Succeeded(answer(201))
}

/// The future of a settlement may be dropped unpolled: the operation still ends.
pub async fn settlement_outlives_its_caller<B: Bench>(bench: &B) {
    let rig = Rig::new(bench, Some(Faulty::FailsCalls)).await;
    let claim = rig.claim().await;
    drop(rig.engine.settle(claim, succeeded()));
    rig.reaches(Status::Succeeded).await;
}

/// The caller hears that the outcome is open; the settlement goes on until it is stored.
pub async fn settlement_is_retried_until_the_store_is_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench, None).await;
    let claim = rig.claim().await;
    rig.faulty.set_down(true);
    let impatient = rig.engine.clone().settle_patience(Duration::from_millis(100));
    assert_eq!(impatient.settle(claim, succeeded()).await, Err(Unsettled));
    assert_eq!(rig.status().await, Some(Status::InProgress));
    rig.faulty.set_down(false);
    rig.reaches(Status::Succeeded).await;
}

/// No caller gets "settled" before a store call said so.
pub async fn settlement_is_acknowledged_only_when_durable<B: Bench>(bench: &B) {
    for faulty in [None, Some(Faulty::FailsCalls), Some(Faulty::LosesReplies)] {
        let rig = Rig::new(bench, faulty).await;
        let claim = rig.claim().await;
        let Ok(Settled::Stored { at }) = rig.engine.settle(claim, succeeded()).await else {
            panic!("the owner settles");
        };
        let stored = rig.stored().await.expect("it is stored");
        assert_eq!((stored.status(), stored.updated_at), (Status::Succeeded, at), "{faulty:?}");
    }
}

/// The client went away while its claim was under way: no execution runs, so the key is free again.
pub async fn dropped_admission_gives_its_claim_back<B: Bench>(bench: &B) {
    let mut rig = Rig::new(bench, None).await;
    rig.engine = rig.engine.call_timeout(CALL_TIMEOUT);
    rig.faulty.set_mute(true);
    {
        let mut admission = pin!(rig.engine.admit(rig.request()));
        let mut context = Context::from_waker(Waker::noop());
        while rig.stored().await.is_none() {
            assert!(matches!(admission.as_mut().poll(&mut context), Poll::Pending));
            sleep(Duration::from_millis(1)).await;
        }
    }
    rig.faulty.set_mute(false);
    rig.reaches(Status::Released).await;
    assert_eq!(rig.claim().await.attempt(), 1);
}

/// All replies were lost: no execution runs, so the engine gives the key back.
pub async fn admission_without_answer_gives_its_claim_back<B: Bench>(bench: &B) {
    let mut rig = Rig::new(bench, None).await;
    rig.engine = rig.engine.call_timeout(CALL_TIMEOUT);
    rig.faulty.set_mute(true);
    let (engine, request) = (rig.engine.clone(), rig.request());
    let task = bench.spawn(async move { engine.admit(request).await });
    while rig.stored().await.is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        rig.status().await,
        Some(Status::InProgress),
        "claimed, and the engine does not know"
    );
    // Muted calls time out one by one; the store then fails, so that the admission gives up.
    rig.faulty.set_down(true);
    rig.faulty.set_mute(false);
    let verdict = task.await;
    assert!(matches!(verdict, Err(AdmitError::Store(_))), "nothing may run: {verdict:?}");
    rig.faulty.set_down(false);
    rig.reaches(Status::Released).await;
}

/// A change that was delayed on its way lands after the admission gave up: the engine gives it back too.
pub async fn claim_that_lands_late_is_given_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench, None).await;
    rig.faulty.set_down(true);
    let verdict = rig.engine.admit(rig.request()).await;
    assert!(matches!(verdict, Err(AdmitError::Store(_))), "{verdict:?}");
    assert_eq!(rig.engine.unsettled(), 1, "a task looks after it");
    rig.faulty.set_down(false);
    assert_eq!(rig.claim().await.attempt(), 1, "another request is not held up");
    let end = Instant::now() + LONG;
    while rig.engine.unsettled() > 0 {
        assert!(Instant::now() < end, "another claim is there: nothing more can land");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.status().await, Some(Status::InProgress), "and that one is left alone");
}

/// A record of newer software is an error at once, and no background work is left.
pub async fn definite_error_is_not_repeated<B: Bench>(bench: &B) {
    let rig = Rig::new(bench, None).await;
    let fingerprints = onceward_core::Fingerprint::from_parts(200, [1; 32]).into();
    let newer = Request { fingerprints, ..rig.request() };
    let Ok(Verdict::Run(_)) = rig.engine.admit(newer).await else { panic!("the key is free") };
    let swaps = rig.faulty.swaps();
    let error = rig.engine.admit(rig.request()).await;
    let Err(AdmitError::Store(onceward_core::StoreError::Newer(_))) = error else {
        panic!("it must not be compared: {error:?}");
    };
    assert_eq!(rig.faulty.swaps(), swaps + 1);
    assert_eq!(rig.engine.unsettled(), 0);
}

/// A claim that was taken over hears of it at the next renewal.
pub async fn lost_renewal_is_told<B: Bench>(bench: &B) {
    for faulty in [None, Some(Faulty::FailsCalls), Some(Faulty::LosesReplies)] {
        let mut rig = Rig::new(bench, faulty).await;
        rig.sample = Sample::new(Effect::Transactional);
        let claim = rig.claim().await;
        let renewed = rig.engine.renew(&claim).await;
        assert!(matches!(renewed, Ok(Renewal::Renewed { .. })), "{renewed:?}");
        bench.age(&rig.store, &rig.sample.id(), LONG).await;
        assert_eq!(rig.claim().await.attempt(), 2);
        let renewed = rig.engine.renew(&claim).await;
        assert!(matches!(renewed, Ok(Renewal::Lost(Found::Record(_)))), "{renewed:?}");
    }
}

/// Shutdown waits for what is under way, and admits nothing new.
pub async fn drain_waits_for_settlements<B: Bench>(bench: &B) {
    let rig = Rig::new(bench, None).await;
    let claim = rig.claim().await;
    rig.faulty.set_down(true);
    drop(rig.engine.settle(claim, succeeded()));
    let engine = rig.engine.clone();
    let drain = bench.spawn(async move { engine.drain(LONG).await });
    sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.engine.admit(rig.request()).await, Err(AdmitError::Draining));
    rig.faulty.set_down(false);
    assert_eq!(drain.await.abandoned, 0);
    assert_eq!(rig.status().await, Some(Status::Succeeded), "settled before drain returned");
}

/// Shutdown is bounded: what cannot be settled is counted, and ends with its lease.
pub async fn drain_gives_up_after_its_patience<B: Bench>(bench: &B) {
    let mut rig = Rig::new(bench, None).await;
    let lease = Duration::from_millis(500);
    let terms = Terms::of(Effect::External).lease(lease).build().expect("valid terms");
    rig.sample = rig.sample.on(terms);
    let claim = rig.claim().await;
    rig.faulty.set_down(true);
    drop(rig.engine.settle(claim, succeeded()));
    let alarms = crate::telemetry::SETTLEMENT_ABANDONED.count();
    assert_eq!(rig.engine.drain(Duration::from_millis(50)).await.abandoned, 1);
    assert!(
        crate::telemetry::SETTLEMENT_ABANDONED.count() > alarms,
        "and the operator gets an alarm"
    );
    rig.reaches(Status::Unknown).await;
}
