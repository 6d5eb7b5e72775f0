//! A commit that waits for the standby, and is told to wait no longer.

use onceward::{Effect, Store, StoreError, stores::postgres::PostgresStore};

use crate::pair::{Pair, asked};

/// The server answers such a commit with success and a mere notice; the record can be gone after a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_wait_was_cancelled_is_not_known() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    let store = PostgresStore::connect(&pair.url(&database)).await.unwrap();
    let claiming = onceward::Admission::new(
        asked(Effect::External, "k"),
        onceward::Fence::from_random([1; 16]),
        onceward::Execution::from_bytes([2; 16]),
    );
    pair.standby.pause();
    let change = claiming.change().clone();
    let swapping = tokio::spawn(async move { store.swap(&change).await });
    let swapped = tokio::task::spawn_blocking(move || {
        let pid = pair.waiting_commit();
        assert_eq!(pair.primary.sql(&format!("SELECT pg_cancel_backend({pid})")), "t");
        pair
    })
    .await
    .unwrap();
    let answer = swapping.await.unwrap();
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    swapped.standby.resume();
}
