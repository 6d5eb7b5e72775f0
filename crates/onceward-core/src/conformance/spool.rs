//! Answers that are kept beside their record.

use super::*;
use crate::{Spool, SpoolId, StoredBody};

/// Chunks are found again by operation and fence, may be written twice, and go as a whole.
pub async fn spooled_chunks_are_kept_by_operation_and_fence<B: Bench<Store: Spool>>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let [id, other] =
        [fresh_fence(), fresh_fence()].map(|fence| SpoolId { operation: sample.id(), fence });
    let chunk = |byte: u8| alloc::vec![byte; 256 << 10];
    for (of, index, byte) in [(id, 0, 1), (id, 1, 2), (id, 1, 2), (other, 0, 3)] {
        store.put(&of, index, &chunk(byte)).await.expect("the store answers");
    }
    assert_eq!(store.chunk(&id, 0).await, Ok(Some(chunk(1))));
    assert_eq!(store.chunk(&id, 1).await, Ok(Some(chunk(2))));
    assert_eq!(store.chunk(&id, 2).await, Ok(None));
    assert_eq!(store.chunk(&other, 0).await, Ok(Some(chunk(3))));
    store.discard(&id).await.expect("the store answers");
    assert_eq!(store.chunk(&id, 0).await, Ok(None));
    assert_eq!(store.chunk(&other, 0).await, Ok(Some(chunk(3))), "another answer's chunks stay");
}

/// Chunks live as long as the record that carries their fence.
pub async fn sweep_drops_chunks_with_their_record<B: Bench<Store: Spool>>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    let fence = fresh_fence();
    let id = SpoolId { operation: sample.id(), fence };
    store.put(&id, 0, b"chunk").await.expect("the store answers");
    store.sweep(1000).await.expect("the store answers");
    assert_eq!(store.chunk(&id, 0).await, Ok(Some(b"chunk".to_vec())), "its record may still come");

    let body = StoredBody::Spooled { length: 5, digest: [7; 32] };
    let outcome = Outcome { body, ..answer(201) };
    let settlement = claim.settle(Ending::Succeeded(outcome.clone()), fence);
    store.swap(settlement.change()).await.expect("the store answers");
    let Verdict::Replay(replay) = ask(bench, &store, &sample, b'a').await else {
        panic!("an ended operation is replayed");
    };
    assert_eq!((replay.outcome, replay.fence), (outcome, fence), "the replay tells where they are");

    bench.age(&store, &sample.id(), RETAIN + HOUR + SECOND).await;
    assert_eq!(store.sweep(1000).await, Ok(1));
    let later = store.sweep(1000).await;
    assert_eq!(later, Ok(0));
}
