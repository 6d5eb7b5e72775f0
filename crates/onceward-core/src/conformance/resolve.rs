//! How an unknown outcome is left because somebody found out.

use super::*;
use crate::{Change, Resolution, Resolve, ResolveError, State, Status, Swap};

/// Somebody found out that it happened: duplicates get the answer, the late owner changes nothing.
pub async fn applied_resolution_ends_an_unknown_outcome<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for (status, ending) in
        [(201, None), (402, None), (201, Some(Ending::Unknown)), (402, Some(Ending::Unknown))]
    {
        let sample = Sample::new(Effect::External);
        let owner = claim(bench, &store, &sample).await;
        match ending {
            Some(ending) => assert!(matches!(
                settle(bench, &store, &owner, ending).await,
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

/// Somebody found out that it did not and cannot happen; before that is certain nothing is freed.
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
    let Err(ResolveError::TooEarly { left }) = refused else { panic!("too early: {refused:?}") };
    assert!(!left.is_zero() && left <= at_most, "{left:?} of {at_most:?} are left");
}

async fn is_freed<B: Bench>(bench: &B, store: &B::Store, sample: &Sample, owner: &Claim) {
    let stored = read(store, &sample.id()).await;
    let change = propose(sample, Resolution::Never, &stored);
    let at = resolved(store, &change.expect("it is late enough")).await;
    let stored = read(store, &sample.id()).await;
    assert_eq!(stored.record.state, State::Released);
    assert_eq!(stored.expires_at(), Some(at.plus(LEASE)));
    fails_to_change(bench, store, owner).await;
    let next = run(ask(bench, store, sample, b'b').await);
    assert_eq!(next.attempt(), 1, "the key is new, whatever it is used for");
    fails_to_change(bench, store, owner).await;
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
    let settled = settle(bench, &store, &owner, Ending::Succeeded(answer(201))).await;
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
        assert_eq!(refused, Err(ResolveError::NotUnknown(status)));
    }
}

pub(super) fn propose(
    sample: &Sample,
    resolution: Resolution,
    stored: &Stored,
) -> Result<Change, ResolveError> {
    Resolve {
        id: sample.id(),
        resolution,
        terms: &sample.terms,
        fence: fresh_fence(),
        execution: Execution::from_bytes(fresh_bytes()),
        actor: Some("ada"),
        reason: Some("the provider says so"),
    }
    .of(stored)
}

async fn resolved<S: Store>(store: &S, change: &Change) -> Timestamp {
    match store.swap(change).await.expect("the store answers") {
        Swap::Stored { at } => at,
        other => panic!("expected to resolve, got {other:?}"),
    }
}
