//! Ends that are proposed twice, in savepoints, or when the transaction is over already.

use axum::response::IntoResponse as _;
use onceward::{CommitError, StoreError, store::Transactional as _};
use sqlx::Connection as _;

use super::is_charged_once;
use crate::{
    commit::shop::{CommitMethod, Shop, begin_charge_blocking},
    server_support::{ask, created, is_problem},
};

/// The client hears of the first end, whatever a second one would have been.
#[tokio::test]
async fn a_second_end_in_one_transaction_is_refused_and_the_first_counts() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if blocking {
                let body = move |connection: &mut rusqlite::Connection| {
                    let transaction = begin_charge_blocking(connection);
                    let completed = claim.complete_in_blocking(&transaction, created("charge 1"));
                    let twice = claim.complete_in_blocking(&transaction, created("charge 2"));
                    assert_eq!(twice.unwrap_err(), CommitError::Twice);
                    transaction.commit().unwrap();
                    completed
                };
                return till.blocking(body).await;
            }
            let mut transaction = till.begin_charge().await;
            let completed = claim.complete_in(&mut transaction, created("charge 1")).await;
            let twice = claim.complete_in(&mut transaction, created("charge 2")).await;
            assert_eq!(twice.unwrap_err(), CommitError::Twice);
            transaction.commit().await.unwrap();
            completed
        });
        is_charged_once(&shop, &app).await;
    }
}

/// The client hears of the first end: the transaction of the second is rolled back.
#[tokio::test]
async fn a_second_commit_in_another_transaction_is_refused_and_rolled_back() {
    for first in CommitMethod::ALL {
        for second in [CommitMethod::CompleteIn, CommitMethod::CommitBlocking] {
            let shop = Shop::new();
            let app = shop.app(move |till, claim| async move {
                let completed = till.charge(first, &claim, created("charge 1")).await;
                let twice = till.charge(second, &claim, created("charge 2")).await;
                assert_eq!(twice.unwrap_err(), CommitError::Twice);
                completed
            });
            is_charged_once(&shop, &app).await;
        }
    }
}

/// The client hears of the end that was committed, not of the one that went with its savepoint.
#[tokio::test]
async fn an_end_that_was_rolled_back_with_its_savepoint_may_be_proposed_again() {
    for rolls_back in [true, false] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            let mut transaction = till.begin_charge().await;
            let mut savepoint = transaction.begin().await?;
            sqlx::query("INSERT INTO charges (note) VALUES ('a mistake')")
                .execute(&mut *savepoint)
                .await?;
            let _ = claim.complete_in(&mut savepoint, created("a mistake")).await?;
            match rolls_back {
                true => savepoint.rollback().await?,
                false => drop(savepoint),
            }
            claim.commit(transaction, created("charge 1")).await
        });
        is_charged_once(&shop, &app).await;
    }
}

/// The client never hears of a charge in a savepoint, whose end is not the end of its transaction.
#[tokio::test]
async fn the_commit_of_a_savepoint_is_refused() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        let mut transaction = till.begin_charge().await;
        let savepoint = transaction.begin().await?;
        let completed = claim.commit(savepoint, created("charge 1")).await;
        assert_eq!(completed.as_ref().unwrap_err(), &CommitError::Savepoint);
        completed
    });
    for _ in 0..2 {
        is_problem(&ask(&app, "k").await, 500, "misconfigured");
    }
    assert_eq!(shop.charges(), 0);
}

/// Nobody knows what such a handler has written since, so it is not run again.
async fn is_unknown_for_ever(shop: &Shop, app: &axum::Router) {
    is_problem(&ask(app, "k").await, 504, "outcome-unknown");
    is_problem(&ask(app, "k").await, 409, "outcome-unknown");
    assert_eq!(shop.status("k").await, Some(onceward::Status::Unknown));
}

/// What is written after SQLite has rolled back by itself is committed alone; a retry would double it.
#[tokio::test]
async fn an_effect_after_a_rollback_that_was_not_heeded_is_not_repeated() {
    for way in [CommitMethod::Commit, CommitMethod::CommitBlocking] {
        let shop = Shop::new();
        let unique = "CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)";
        shop.till.connect().execute_batch(unique).unwrap();
        let app = shop.app(move |till, claim| async move {
            let charge = "INSERT INTO charges (note) VALUES ('alone')";
            let once = "INSERT OR ROLLBACK INTO once VALUES (1)";
            if way == CommitMethod::Commit {
                let mut transaction = till.begin().await;
                assert!(sqlx::query(once).execute(&mut *transaction).await.is_err());
                sqlx::query(charge).execute(&mut *transaction).await?;
                return claim.commit(transaction, created("charge 1")).await;
            }
            till.blocking(move |connection| {
                let transaction = connection.transaction()?;
                assert!(transaction.execute(once, []).is_err());
                transaction.execute(charge, [])?;
                claim.commit_blocking(transaction, created("charge 1"))
            })
            .await
        });
        is_unknown_for_ever(&shop, &app).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

/// The client never hears of a charge that SQLite has rolled back by itself: the record would be
/// committed alone.
#[tokio::test]
async fn a_claim_does_not_end_on_a_connection_of_sqlx_whose_transaction_is_over() {
    let shop = Shop::new();
    let unique = "CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)";
    shop.till.connect().execute_batch(unique).unwrap();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till
                .charge(CommitMethod::Commit, &claim, created("charge 1"))
                .await
                .into_response();
        }
        let mut transaction = till.begin_charge().await;
        let again = sqlx::query("INSERT OR ROLLBACK INTO once VALUES (1)");
        assert!(again.execute(&mut *transaction).await.is_err(), "it is there already");
        claim.commit(transaction, created("charge 1")).await.into_response()
    });
    is_unknown_for_ever(&shop, &app).await;
    assert_eq!(shop.charges(), 0);
}

/// The client never hears of a charge that was rolled back: sqlx does so to the outer transaction
/// when a savepoint cannot be begun.
#[tokio::test]
async fn a_claim_does_not_end_in_a_transaction_that_sqlx_has_rolled_back() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till
                .charge(CommitMethod::Commit, &claim, created("charge 1"))
                .await
                .into_response();
        }
        let mut transaction = till.begin_charge().await;
        assert!(transaction.begin_with("BEGIN IMMEDIATE").await.is_err(), "there are no two");
        claim.commit(transaction, created("charge 1")).await.into_response()
    });
    is_unknown_for_ever(&shop, &app).await;
    assert_eq!(shop.charges(), 0);
}

/// The client never hears of a charge that SQLite has rolled back by itself.
#[tokio::test]
async fn a_claim_does_not_end_on_a_connection_of_rusqlite_whose_transaction_is_over() {
    for way in [CommitMethod::CommitBlocking, CommitMethod::CompleteInBlocking] {
        let shop = Shop::new();
        let unique = "CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)";
        shop.till.connect().execute_batch(unique).unwrap();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                return till.charge(way, &claim, created("charge 1")).await;
            }
            let body = move |connection: &mut rusqlite::Connection| {
                let transaction = begin_charge_blocking(connection);
                let again = transaction.execute("INSERT OR ROLLBACK INTO once VALUES (1)", []);
                assert!(again.is_err(), "it is there already");
                let answer = created("charge 1");
                let completed = match way {
                    CommitMethod::CommitBlocking => claim.commit_blocking(transaction, answer),
                    _ => claim.complete_in_blocking(&transaction, answer),
                };
                let error = completed.as_ref().unwrap_err().to_string();
                assert!(error.contains("no transaction is open"), "{error}");
                completed
            };
            till.blocking(body).await
        });
        is_unknown_for_ever(&shop, &app).await;
        assert_eq!(shop.charges(), 0);
    }
}

/// A connection without a transaction would commit the record alone.
#[tokio::test]
async fn a_swap_on_a_connection_of_sqlx_without_a_transaction_is_refused() {
    let shop = Shop::new();
    let change = crate::commit::engine::claiming("k");
    let mut connection = shop.till.pool.acquire().await.unwrap();
    let swap = shop.store.swap_in(&mut *connection, &change).await;
    assert!(matches!(swap, Err(StoreError::NotOpen(_))), "{swap:?}");
    assert_eq!(shop.status("k").await, None);
}

#[tokio::test]
async fn a_swap_on_a_connection_of_rusqlite_without_a_transaction_is_refused() {
    let shop = Shop::new();
    let swap =
        shop.store.swap_in_blocking(&shop.till.connect(), &crate::commit::engine::claiming("k"));
    assert!(matches!(swap, Err(StoreError::NotOpen(_))), "{swap:?}");
    assert_eq!(shop.status("k").await, None);
}
