//! Transactions that the store begins: in line with its own, and with the write lock.

use std::time::{Duration, Instant};

use onceward::{CommitError, server::Claim, store::memory::MemoryStore};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    commit::shop::{Shop, Till, service_on},
    server_support::{ask, created, is_charged, is_problem, is_replayed},
};

const INSERT: &str = "INSERT INTO charges (note) VALUES ('a charge')";

async fn charge(till: Till, claim: Claim) -> Result<onceward::server::Completed, CommitError> {
    let mut transaction = claim.begin(&till.pool).await?;
    sqlx::query(INSERT).execute(&mut *transaction).await?;
    claim.commit(transaction, created("charge 1")).await
}

async fn charge_blocking(
    till: Till,
    claim: Claim,
) -> Result<onceward::server::Completed, CommitError> {
    let charging = spawn_blocking(move || {
        let mut connection = till.connect();
        let transaction = claim.begin_blocking(&mut connection)?;
        transaction.execute(INSERT, [])?;
        claim.commit_blocking(transaction, created("charge 1"))
    });
    charging.await.unwrap()
}

#[tokio::test]
async fn a_transaction_that_the_claim_begins_ends_with_it() {
    let shop = Shop::new();
    for (app, key) in [(shop.app(charge), "async"), (shop.app(charge_blocking), "blocking")] {
        let first = ask(&app, key).await;
        is_charged(&first, "charge 1");
        is_replayed(&app, key, &first).await;
    }
    assert_eq!(shop.charges(), 2);
}

#[tokio::test]
async fn a_transaction_that_was_begun_and_dropped_is_rolled_back_and_its_turn_is_over() {
    let shop = Shop::new();
    let mut transaction = shop.store.begin(&shop.till.pool).await.unwrap();
    sqlx::query(INSERT).execute(&mut *transaction).await.unwrap();
    drop(transaction);
    let mut connection = shop.till.connect();
    let transaction = shop.store.begin_blocking(&mut connection).unwrap();
    transaction.execute(INSERT, []).unwrap();
    drop(transaction);
    assert_eq!(shop.charges(), 0);
    let transaction = shop.store.begin(&shop.till.pool).await.unwrap();
    transaction.commit().await.unwrap();
}

/// It began with the write lock: nobody can write between what it reads and what it writes.
#[tokio::test]
async fn a_transaction_that_reads_first_does_not_find_its_snapshot_outdated() {
    let shop = Shop::new();
    let mut transaction = shop.store.begin(&shop.till.pool).await.unwrap();
    sqlx::query("SELECT count(*) FROM charges").fetch_one(&mut *transaction).await.unwrap();
    let other = shop.till.connect();
    other.busy_timeout(Duration::ZERO).unwrap();
    assert!(other.execute(INSERT, []).is_err(), "the lock is held");
    sqlx::query(INSERT).execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(shop.charges(), 1);
}

/// The store's own writes wait in the same line, and go on when the turn is over.
#[tokio::test]
async fn the_store_waits_for_a_transaction_and_goes_on_after_it() {
    let shop = Shop::new();
    let app = shop.app(charge);
    let held = shop.store.begin(&shop.till.pool).await.unwrap();
    let asked = tokio::spawn(async move { ask(&app, "k").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished(), "its claim waits in line");
    held.commit().await.unwrap();
    let first = timeout(Duration::from_secs(30), asked).await.unwrap().unwrap();
    is_charged(&first, "charge 1");
    assert_eq!(shop.charges(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_charges_at_once_all_get_their_turn() {
    let shop = Shop::new();
    let apps = [shop.app(charge), shop.app(charge_blocking)];
    let asked: Vec<_> = (0..40)
        .map(|number| {
            let app = apps[number % 2].clone();
            tokio::spawn(async move { ask(&app, &format!("k{number}")).await })
        })
        .collect();
    for reply in asked {
        is_charged(&reply.await.unwrap(), "charge 1");
    }
    assert_eq!(shop.charges(), 40);
}

/// A turn is a courtesy: whoever holds it for ever holds nobody up for longer than the lock would.
#[tokio::test]
async fn a_turn_that_does_not_end_is_passed_after_the_busy_timeout() {
    let shop = Shop::with(|builder| builder.busy_timeout(Duration::from_millis(100)));
    let held = shop.store.begin(&shop.till.pool).await.unwrap();
    let start = Instant::now();
    let mut connection = shop.till.connect();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let begun = shop.store.begin_blocking(&mut connection).map(drop);
    assert!(begun.is_err(), "SQLite's own lock is what keeps it safe");
    assert!(start.elapsed() >= Duration::from_millis(100));
    drop(held);
}

/// SQLite ends a transaction by itself after some errors, as when the disk is full; sqlx then takes the
/// connection for one with a transaction for ever.
#[tokio::test]
async fn a_pool_recovers_from_transactions_that_sqlite_has_ended_by_itself() {
    let shop = Shop::new();
    let unique = "CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)";
    shop.till.connect().execute_batch(unique).unwrap();
    for _ in 0..20 {
        let mut transaction = shop.store.begin(&shop.till.pool).await.unwrap();
        let again = sqlx::query("INSERT OR ROLLBACK INTO once VALUES (1)");
        assert!(again.execute(&mut *transaction).await.is_err(), "it is there already");
    }
    let app = shop.app(charge);
    is_charged(&ask(&app, "k").await, "charge 1");
}

#[tokio::test]
async fn a_claim_of_another_kind_of_store_begins_nothing() {
    let shop = Shop::new();
    let app = service_on(MemoryStore::not_durable(), shop.till.clone(), |layer| layer, charge);
    is_problem(&ask(&app, "k").await, 500, "misconfigured");
    assert_eq!(shop.charges(), 0);
}
