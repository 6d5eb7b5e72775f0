//! A commit that waits for the standby, and is told to wait no longer.
//!
//! The server answers it with success and a mere warning, and what it wrote can be gone after a failover.

use std::time::Duration;

use onceward::{
    CommitError, Effect, Ending, Engine, Execution, Outcome, Store, StoreError, Verdict,
    protocol::{Admission, Fence},
    store::postgres::PostgresStore,
};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_postgres::NoTls;

use crate::pair::{Pair, asked};

/// Cancels the commit that waits for the standby, which stays away.
async fn cancel(pair: Pair) -> Pair {
    let cancelling = spawn_blocking(move || {
        let pid = pair.waiting_commit();
        assert_eq!(pair.primary.sql(&format!("SELECT pg_cancel_backend({pid})")), "t");
        pair
    });
    cancelling.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_wait_was_cancelled_is_not_known() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    let store = PostgresStore::connect(&pair.url(&database)).await.unwrap();
    let fence = Fence::from_random([1; 16]);
    let execution = Execution::from_bytes([2; 16]);
    let claiming = Admission::new(asked(Effect::External, "k"), fence, execution);
    pair.standby.pause();
    let change = claiming.change().clone();
    let swapping = tokio::spawn(async move { store.swap(&change).await });
    let pair = cancel(pair).await;
    let answer = swapping.await.unwrap();
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    pair.standby.resume();
}

/// The warning goes to whoever drives the user's connection, and the store does not hear it.
#[tokio::test(flavor = "multi_thread")]
async fn a_users_commit_whose_wait_was_cancelled_is_no_success_before_the_standby_has_it() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    database.sql("CREATE TABLE charge (cents bigint)");
    let url = pair.url(&database);
    let store = PostgresStore::connect(&url).await.unwrap();
    let engine = Engine::new(store).call_timeout(Duration::from_secs(2));
    let Ok(Verdict::Run(claim)) = engine.admit(asked(Effect::Transactional, "k")).await else {
        panic!("the key is free");
    };
    let (mut shop, driver) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(driver);

    pair.standby.pause();
    let mut committing: JoinHandle<Result<(), CommitError>> = tokio::spawn(async move {
        let transaction = shop.transaction().await?;
        transaction.execute("INSERT INTO charge (cents) VALUES (500)", &[]).await?;
        let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
        engine.commit(&claim, transaction, ending).await
    });
    let pair = cancel(pair).await;
    if let Ok(early) = timeout(Duration::from_secs(4), &mut committing).await {
        let early = early.unwrap();
        assert!(matches!(early, Err(CommitError::Doubtful(_))), "{early:?}");
    }
    pair.standby.resume();
}
