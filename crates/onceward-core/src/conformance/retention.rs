//! Clock, sweep, durability and size.

use super::*;
use crate::{State, Status, Swap};

/// A ttl is written as a length and read back as what is left by the store's clock.
pub async fn times_are_counted_by_the_stores_clock<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), SECOND * 10).await;
    let stored = read(&store, &sample.id()).await;
    let Ttl::For(left) = stored.record.ttl else { panic!("a lease ends") };
    assert!(left <= LEASE - SECOND * 10, "{left:?} of the lease are left after 10 s");
    assert!(stored.age() >= SECOND * 10);
    assert!(stored.updated_at <= stored.read_at);

    let Settled::Stored { at } = bench.settle(&store, &claim, Ending::Succeeded(answer(201))).await
    else {
        panic!("the owner settles");
    };
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.updated_at, at, "the swap tells the time that is stored");
    assert_eq!(stored.expires_at(), Some(at.plus(RETAIN)), "read back exactly");
}

/// Native expiry or a sweep must never take a claim: its effect may have happened.
pub async fn claim_long_past_its_lease_is_still_returned<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for effect in [Effect::External, Effect::Transactional, REPEATABLE] {
        let sample = Sample::new(effect);
        let claim = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), RETAIN * 30).await;
        assert_eq!(store.sweep(1000).await, Ok(0), "{effect:?}");
        let stored = read(&store, &sample.id()).await;
        assert_eq!(stored.record.fence, claim.fence());
        assert_eq!(stored.record.state, State::InProgress);
    }
}

/// Ended, retention over, and another hour on top.
pub async fn sweep_deletes_only_ended_records_past_the_margin<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for ending in endings().into_iter().chain([Ending::Released]) {
        let sample = Sample::new(Effect::External);
        let ttl = if ending == Ending::Released { LEASE } else { RETAIN };
        ended(bench, &store, &sample, ending.clone()).await;
        bench.age(&store, &sample.id(), ttl + HOUR - SECOND * 30).await;
        assert_eq!(store.sweep(1000).await, Ok(0), "{ending:?} is kept for an hour more");
        bench.age(&store, &sample.id(), SECOND * 31).await;
        assert_eq!(store.sweep(1000).await, Ok(1), "{ending:?} is over");
        assert!(is_absent(&store, &sample.id()).await);
        assert_eq!(claim(bench, &store, &sample).await.attempt(), 1, "the key is new");
    }
    let sample = Sample::new(Effect::External);
    ended(bench, &store, &sample, Ending::Unknown).await;
    bench.age(&store, &sample.id(), RETAIN * 1000).await;
    assert_eq!(store.sweep(1000).await, Ok(0), "an unknown outcome is not swept");

    let bounded = Terms::of(Effect::External).unknown_retain(RETAIN).build().expect("valid terms");
    let sample = Sample::new(Effect::External).on(bounded);
    ended(bench, &store, &sample, Ending::Unknown).await;
    bench.age(&store, &sample.id(), RETAIN + HOUR + SECOND).await;
    assert_eq!(store.sweep(1000).await, Ok(1), "unless a retention for it was set");
}

/// A sweep is cut into pieces by its caller, so that it never holds up claims.
pub async fn sweep_keeps_to_its_limit<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for _ in 0..25 {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, Ending::Succeeded(answer(201))).await;
        bench.age(&store, &sample.id(), RETAIN + HOUR + SECOND).await;
    }
    for expected in [10, 10, 5, 0] {
        assert_eq!(store.sweep(10).await, Ok(expected));
    }
}

/// What was acknowledged is there after a restart, in every state.
pub async fn records_survive_a_reopen<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let running = Sample::new(Effect::External);
    claim(bench, &store, &running).await;
    let mut samples = alloc::vec![running];
    for ending in endings().into_iter().chain([Ending::Released, Ending::Unknown]) {
        let sample = Sample::new(REPEATABLE);
        ended(bench, &store, &sample, ending).await;
        samples.push(sample);
    }
    let mut before = Vec::new();
    for sample in &samples {
        before.push(essence(&store, &sample.id()).await);
    }
    let Some(store) = bench.reopen(store).await else { return };
    for (sample, before) in samples.iter().zip(before) {
        assert_eq!(essence(&store, &sample.id()).await, before);
    }
}

/// An empty answer, many headers and a body far above the inline limit come back whole.
pub async fn large_records_are_kept_whole<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let mut wide = Outcome::inline(200, Vec::new());
    for index in 0..1000u32 {
        wide = wide.header(&format!("x-{index}"), &index.to_be_bytes().repeat(8));
    }
    let large = (0..8u32 << 20).map(|index| (index ^ index >> 9).to_le_bytes()[0]).collect();
    for outcome in [Outcome::inline(204, Vec::new()), wide, Outcome::inline(200, large)] {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, Ending::Succeeded(outcome.clone())).await;
        let stored = read(&store, &sample.id()).await;
        assert_eq!(stored.status(), Status::Succeeded);
        assert!(stored.record.state == State::Succeeded(outcome), "kept whole");
    }
    let name = "n".repeat(OperationName::MAX_BYTES);
    let value = "v".repeat(Scope::MAX_PART_BYTES);
    let key = Key::new(&"k".repeat(Key::MAX_BYTES)).expect("a valid key");
    let sample = Sample { operation: operation(&value, &name, key), terms: terms(REPEATABLE) };
    claim(bench, &store, &sample).await;
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.record.scope, *sample.operation.scope());
    assert_eq!(stored.record.operation, *sample.operation.name());
    let swap = store.swap(sample.admission(b'a').change()).await.expect("the store answers");
    assert!(matches!(swap, Swap::Conflict(Found::Record(_))));
}
