//! How an operator ends an unknown outcome, and gives keys back.

use super::*;
use crate::{Change, Force, Repair, RepairError, RepairKind, Resolution, State, Status, Swap};

/// An operator found out that it happened: duplicates get the answer, the late owner changes nothing.
pub async fn applied_resolution_ends_an_unknown_outcome<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for (status, ending) in
        [(201, None), (402, None), (201, Some(Ending::Unknown)), (402, Some(Ending::Unknown))]
    {
        let sample = Sample::new(Effect::External);
        let owner = claim(bench, &store, &sample).await;
        match ending {
            Some(ending) => assert!(matches!(
                bench.settle(&store, &owner, ending).await,
                Settled::Stored { .. }
            )),
            None => bench.age(&store, &sample.id(), LEASE).await,
        }
        let before = read(&store, &sample.id()).await;
        let change = propose(&sample, Resolution::Applied(answer(status)), &before);
        let change = change.expect("an unknown outcome can be resolved");
        let at = resolved(&store, &change).await;

        let after = read(&store, &sample.id()).await;
        let ttl = after.record.ttl;
        assert_eq!(after.record, Record { ttl, ..change.next }, "kept as it was proposed");
        assert_eq!(after.record.started, before.record.started);
        assert_eq!(after.expires_at(), Some(at.plus(RETAIN)), "retention counts from now on");
        let verdict = ask(bench, &store, &sample, b'a').await;
        let Verdict::Replay(replay) = verdict else { panic!("a duplicate replays: {verdict:?}") };
        assert_eq!((replay.outcome, replay.completed_at), (answer(status), at));
        fails_to_change(bench, &store, &owner).await;
    }
}

/// An operator found out that it did not and cannot happen; before that is certain nothing is freed.
pub async fn never_resolution_frees_the_key_but_not_too_early<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let sample = Sample::new(Effect::External);
    let owner = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    is_too_early(&store, &sample, sample.terms.max_run()).await;
    bench.age(&store, &sample.id(), sample.terms.max_run() - SECOND * 20).await;
    is_too_early(&store, &sample, SECOND * 20).await;
    bench.age(&store, &sample.id(), SECOND * 20).await;
    is_freed(bench, &store, &sample, &owner).await;

    // It is counted from the last write, because the time of the last claim is not stored.
    let sample = Sample::new(Effect::Transactional);
    let zombie = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), HOUR).await;
    let owner = ended(bench, &store, &sample, Ending::Unknown).await;
    assert_eq!(owner.attempt(), 2);
    is_too_early(&store, &sample, sample.terms.max_run() + LEASE).await;
    bench.age(&store, &sample.id(), sample.terms.max_run() + LEASE).await;
    is_freed(bench, &store, &sample, &owner).await;
    fails_to_change(bench, &store, &zombie).await;
}

async fn is_too_early<S: Store>(store: &S, sample: &Sample, at_most: Duration) {
    let stored = read(store, &sample.id()).await;
    let refused = propose(sample, Resolution::Never, &stored);
    let Err(RepairError::TooEarly { left }) = refused else { panic!("too early: {refused:?}") };
    assert!(!left.is_zero() && left <= at_most, "{left:?} of {at_most:?} are left");
}

async fn is_freed<B: Bench>(bench: &B, store: &B::Store, sample: &Sample, owner: &Claim) {
    let stored = read(store, &sample.id()).await;
    let change = propose(sample, Resolution::Never, &stored);
    let at = resolved(store, &change.expect("it is late enough")).await;
    let stored = read(store, &sample.id()).await;
    assert_eq!(stored.record.state, State::Released);
    assert_eq!(stored.expires_at(), Some(at.plus(LEASE)));
    is_free(bench, store, sample, owner).await;
}

/// What runs or has ended needs no resolution, and one that comes too late changes nothing.
pub async fn resolution_of_a_running_operation_is_refused<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let sample = Sample::new(Effect::External);
    let owner = claim(bench, &store, &sample).await;
    is_refused(&store, &sample, Status::InProgress).await;

    // The owner comes back between reading and resolving: it alone knows the truth.
    bench.age(&store, &sample.id(), LEASE).await;
    let unknown = read(&store, &sample.id()).await;
    let late = propose(&sample, Resolution::Applied(answer(200)), &unknown);
    let late = late.expect("an unknown outcome can be resolved");
    let settled = bench.settle(&store, &owner, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    let before = essence(&store, &sample.id()).await;
    let swap = store.swap(&late).await.expect("the store answers");
    assert!(matches!(swap, Swap::Conflict(Found::Record(_))), "{swap:?}");
    assert_eq!(essence(&store, &sample.id()).await, before, "the resolution came too late");
    is_refused(&store, &sample, Status::Succeeded).await;

    let sample = Sample::new(Effect::Transactional);
    claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    is_refused(&store, &sample, Status::Interrupted).await;
}

async fn is_refused<S: Store>(store: &S, sample: &Sample, status: Status) {
    let stored = read(store, &sample.id()).await;
    for resolution in [Resolution::Applied(answer(201)), Resolution::Never] {
        let refused = propose(sample, resolution, &stored);
        assert_eq!(refused, Err(RepairError::NotUnknown(status)));
    }
}

/// An operator's word counts also while the owner runs, and at once: the owner is fenced off.
pub async fn forced_resolution_fences_a_running_owner_off<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for (effect, age) in
        [(Effect::External, SECOND), (Effect::Transactional, LEASE), (REPEATABLE, LEASE)]
    {
        let sample = Sample::new(effect);
        let owner = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), age).await;
        let before = read(&store, &sample.id()).await;
        let word = Resolution::Applied(answer(201));
        let change = propose_by(Force::Yes, &sample, word, &before).expect("it is forced");
        resolved(&store, &change).await;
        let verdict = ask(bench, &store, &sample, b'a').await;
        assert!(matches!(verdict, Verdict::Replay(_)), "a duplicate replays: {verdict:?}");
        fails_to_change(bench, &store, &owner).await;
        let ended = read(&store, &sample.id()).await;
        let again = propose_by(Force::Yes, &sample, Resolution::Never, &ended);
        assert_eq!(again, Err(RepairError::NotUnknown(Status::Succeeded)), "no force ends an end");

        let sample = Sample::new(effect);
        let owner = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), age).await;
        let before = read(&store, &sample.id()).await;
        let change = propose_by(Force::Yes, &sample, Resolution::Never, &before);
        resolved(&store, &change.expect("it is forced")).await;
        is_free(bench, &store, &sample, &owner).await;
    }
}

/// An operator gives a key back of which nothing happened: the next request under it runs.
pub async fn operators_release_gives_the_key_back<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for effect in [Effect::External, Effect::Transactional] {
        let sample = Sample::new(effect);
        let owner = ended(bench, &store, &sample, Ending::FailedRetryable).await;
        is_released(bench, &store, Force::No, &sample, &owner).await;
    }
    let sample = Sample::new(Effect::Transactional);
    let owner = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    is_released(bench, &store, Force::No, &sample, &owner).await;
}

/// While it runs, or may have happened, only force releases the key; unknown and ended are not its
/// business.
pub async fn release_of_what_may_have_happened_needs_force<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for (effect, age, refusal) in [
        (Effect::External, SECOND, RepairError::InProgress),
        (Effect::Transactional, SECOND, RepairError::InProgress),
        (REPEATABLE, LEASE, RepairError::MayHaveHappened),
    ] {
        let sample = Sample::new(effect);
        let owner = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), age).await;
        let before = read(&store, &sample.id()).await;
        assert_eq!(propose_release(Force::No, &sample, &before), Err(refusal));
        is_released(bench, &store, Force::Yes, &sample, &owner).await;
    }
    let failed = Sample::new(REPEATABLE);
    ended(bench, &store, &failed, Ending::FailedRetryable).await;
    let before = read(&store, &failed.id()).await;
    let refused = propose_release(Force::No, &failed, &before);
    assert_eq!(refused, Err(RepairError::MayHaveHappened));

    for (ending, refusal) in [
        (Ending::Unknown, RepairError::Unknown),
        (Ending::Succeeded(answer(201)), RepairError::Ended(Status::Succeeded)),
        (Ending::FailedFinal(answer(402)), RepairError::Ended(Status::FailedFinal)),
        (Ending::Released, RepairError::Free(Status::Released)),
    ] {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, ending).await;
        let before = read(&store, &sample.id()).await;
        for force in [Force::No, Force::Yes] {
            assert_eq!(propose_release(force, &sample, &before), Err(refusal));
        }
    }
}

async fn is_released<B: Bench>(
    bench: &B,
    store: &B::Store,
    force: Force,
    sample: &Sample,
    owner: &Claim,
) {
    let before = read(store, &sample.id()).await;
    let change = propose_release(force, sample, &before);
    let at = resolved(store, &change.expect("it may be released")).await;
    let stored = read(store, &sample.id()).await;
    assert_eq!(stored.record.state, State::Released);
    assert_eq!(stored.expires_at(), Some(at.plus(LEASE)));
    is_free(bench, store, sample, owner).await;
}

/// The next request runs, whatever it means, and the old owner changes nothing before or after it.
async fn is_free<B: Bench>(bench: &B, store: &B::Store, sample: &Sample, owner: &Claim) {
    fails_to_change(bench, store, owner).await;
    let next = run(ask(bench, store, sample, b'b').await);
    assert_eq!(next.attempt(), 1, "the key is new, whatever it is used for");
    fails_to_change(bench, store, owner).await;
}

fn propose_release(force: Force, sample: &Sample, stored: &Stored) -> Result<Change, RepairError> {
    repair(force, sample, RepairKind::Release, stored)
}

pub(super) fn propose(
    sample: &Sample,
    resolution: Resolution,
    stored: &Stored,
) -> Result<Change, RepairError> {
    propose_by(Force::No, sample, resolution, stored)
}

fn propose_by(
    force: Force,
    sample: &Sample,
    resolution: Resolution,
    stored: &Stored,
) -> Result<Change, RepairError> {
    repair(force, sample, RepairKind::Resolve(resolution), stored)
}

fn repair(
    force: Force,
    sample: &Sample,
    kind: RepairKind,
    stored: &Stored,
) -> Result<Change, RepairError> {
    let (fence, execution) = (fresh_fence(), Execution::from_bytes(fresh_bytes()));
    let (terms, actor, reason) = (&sample.terms, Some("ada"), Some("the provider says so"));
    Repair { id: sample.id(), kind, terms, fence, execution, actor, reason, force }.of(stored)
}

async fn resolved<S: Store>(store: &S, change: &Change) -> Timestamp {
    match store.swap(change).await.expect("the store answers") {
        Swap::Stored { at } => at,
        other => panic!("expected to resolve, got {other:?}"),
    }
}
