//! The fence rule, settlement, and what happens to answers that were lost.

use super::*;
use crate::{Cause, Settlement, SettlementStep, State, Swap};

/// After its end a claim can do nothing any more, not even end once more.
pub async fn ending_a_claim_moves_its_fence<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for first in endings().into_iter().chain([Ending::Released]) {
        let sample = Sample::new(Effect::Transactional);
        let claim = ended(bench, &store, &sample, first).await;
        assert_ne!(read(&store, &sample.id()).await.record.fence, claim.fence());
        fails_to_change(bench, &store, &claim).await;
    }
}

/// Owner A past its lease, B took over: whatever A still sends, B's record stays identical.
pub async fn fenced_off_owner_changes_nothing<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::Transactional));
    let zombie = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    let owner = claim(bench, &store, &sample).await;
    fails_to_change(bench, &store, &zombie).await;
    let settled = bench.settle(&store, &owner, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    fails_to_change(bench, &store, &zombie).await;

    // Also when the record went and came back: a fence is never used twice.
    bench.age(&store, &sample.id(), RETAIN + HOUR + SECOND).await;
    assert_eq!(store.sweep(10).await, Ok(1));
    claim(bench, &store, &sample).await;
    fails_to_change(bench, &store, &zombie).await;
    fails_to_change(bench, &store, &owner).await;
}

pub(super) async fn fails_to_change<B: Bench>(bench: &B, store: &B::Store, claim: &Claim) {
    let before = essence(store, &claim.id()).await;
    let renewed = store.swap(&claim.renew()).await.expect("the store answers");
    assert!(matches!(renewed, Swap::Conflict(Found::Record(_))), "renew: {renewed:?}");
    for ending in endings().into_iter().chain([Ending::Released, Ending::Unknown]) {
        let settled = bench.settle(store, claim, ending.clone()).await;
        assert!(matches!(settled, Settled::FencedOff(_)), "{ending:?}: {settled:?}");
    }
    assert_eq!(essence(store, &claim.id()).await, before, "a write under an old fence is lost");
}

/// Renewing may be repeated, because it changes nothing but the time.
pub async fn renewal_keeps_the_fence_and_restarts_the_lease<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    for _ in 0..2 {
        bench.age(&store, &sample.id(), LEASE - SECOND).await;
        let renewed = store.swap(&claim.renew()).await.expect("the store answers");
        assert!(matches!(renewed, Swap::Stored { .. }), "{renewed:?}");
    }
    // Past its lease an unclaimed record may still be renewed by its owner: no request took over.
    bench.age(&store, &sample.id(), LEASE * 2).await;
    let renewed = store.swap(&claim.renew()).await.expect("the store answers");
    assert!(matches!(renewed, Swap::Stored { .. }), "{renewed:?}");
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.record.fence, claim.fence());
    assert!(!stored.record.ttl.is_over(), "the lease runs again");
    let settled = bench.settle(&store, &claim, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
}

/// A stored Unknown yields to the execution it came from, and to no other; renewing never counts.
pub async fn late_truth_wins_over_unknown<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for ending in endings().into_iter().chain([Ending::Released]) {
        let sample = Sample::new(Effect::External);
        let claim = ended(bench, &store, &sample, Ending::Unknown).await;
        let renewed = store.swap(&claim.renew()).await.expect("the store answers");
        assert!(matches!(renewed, Swap::Conflict(_)), "a renewal is no truth: {renewed:?}");
        let settled = bench.settle(&store, &claim, ending.clone()).await;
        assert!(matches!(settled, Settled::Stored { .. }), "{ending:?}: {settled:?}");
        let state = read(&store, &sample.id()).await.record.state;
        assert_ne!(state, State::Unknown, "{ending:?}");
    }

    let sample = Sample::new(Effect::Transactional);
    let zombie = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    ended(bench, &store, &sample, Ending::Unknown).await;
    let settled = bench.settle(&store, &zombie, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Settled::FencedOff(_)), "another execution's: {settled:?}");
}

/// The process that listened for a late answer says how that ended: no duplicate waits for it any more.
pub async fn late_cause_replaces_an_older_one<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    let until = claim.claimed_at().plus(HOUR);
    let awaited = Cause::NoAnswer { within: LEASE, awaited_until: Some(until) };
    let end = async |cause: Option<Cause>| {
        let ending = claim.settle(Ending::Unknown, fresh_fence());
        let mut ending = cause.into_iter().fold(ending, Settlement::because);
        loop {
            let swap = store.swap(ending.change()).await.expect("the store answers");
            match ending.next(swap) {
                SettlementStep::Swap(next) => ending = next,
                SettlementStep::Done(settled) => {
                    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
                    return read(&store, &sample.id()).await;
                }
            }
        }
    };
    assert!(end(Some(awaited)).await.answer_awaited().is_some());
    assert_eq!(end(None).await.cause(), Some(awaited), "it says nothing new");
    for cause in [Cause::Answered(504), Cause::NoAnswer { within: LEASE, awaited_until: None }] {
        let stored = end(Some(cause)).await;
        assert_eq!((stored.cause(), stored.answer_awaited()), (Some(cause), None));
    }
}

/// A lease that is over changes nothing in the store: the owner may still tell what happened.
pub async fn late_owner_settles_a_computed_unknown<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), HOUR).await;
    assert!(matches!(ask(bench, &store, &sample, b'a').await, Verdict::Unknown(Some(_))));
    let settled = bench.settle(&store, &claim, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    assert!(matches!(ask(bench, &store, &sample, b'a').await, Verdict::Replay(_)));
}

/// The reply was lost and the change is sent again: the conflict shows our own fence.
pub async fn repeated_change_is_recognised_by_its_fence<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let admission = sample.admission(b'a');
    store.swap(admission.change()).await.expect("the store answers");
    let again = store.swap(admission.change()).await.expect("the store answers");
    assert!(matches!(again, Swap::Conflict(Found::Record(_))), "{again:?}");
    let Step::Done(verdict) = admission.next(again) else { panic!("it is the claim") };
    let claim = run(verdict);

    let settlement = claim.settle(Ending::Succeeded(answer(201)), fresh_fence());
    let Ok(Swap::Stored { at }) = store.swap(settlement.change()).await else {
        panic!("the owner settles");
    };
    let again = store.swap(settlement.change()).await.expect("the store answers");
    let step = settlement.next(again);
    assert_eq!(step, SettlementStep::Done(Settled::Stored { at }), "it was our own write");
}

/// A claim whose reply was lost for longer than its lease must not run without one.
pub async fn recognised_claim_past_its_lease_is_renewed_first<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let admission = sample.admission(b'a');
    store.swap(admission.change()).await.expect("the store answers");
    bench.age(&store, &sample.id(), LEASE * 2).await;
    let claim = run(drive(&store, admission).await);
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.record.fence, claim.fence());
    assert!(!stored.record.ttl.is_over(), "the lease runs before the operation does");
    assert_eq!(claim.attempt(), 1);
}

/// Its first run may have had its effect: the fingerprint and the first claim's time must stay.
pub async fn rerun_of_a_repeatable_effect_cannot_release_the_key<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(REPEATABLE));
    let first = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    let started_at = read(&store, &sample.id()).await.started_at();
    assert!(started_at < first.claimed_at());
    ended(bench, &store, &sample, Ending::Released).await;
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.record.state, State::FailedRetryable);
    assert_eq!(stored.started_at(), started_at);
    assert_eq!(ask(bench, &store, &sample, b'b').await, Verdict::Mismatch);
    assert_eq!(claim(bench, &store, &sample).await.attempt(), 3);
}
