//! Commits that are forgotten, fail, come without their claim, or are contradicted afterwards.

use axum::{
    Router,
    http::{Response, StatusCode},
    response::IntoResponse as _,
    routing::post as on_post,
};
use onceward::{
    CommitError, Effect,
    server::{Claim, Completed},
};
use rusqlite::DropBehavior;

use super::{is_charged_once, is_mended_by_a_retry};
use crate::{
    commit::shop::{CommitMethod, Shop, Till, begin_charge_blocking},
    server_support::{Pieces, ask, broken, created, is_charged, is_problem, layer},
};

/// The client never hears of a charge whose transaction was dropped with its proposed end.
#[tokio::test]
async fn a_commit_that_is_forgotten_after_complete_in_is_no_success() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
            }
            if blocking {
                let body = move |connection: &mut rusqlite::Connection| {
                    let transaction = begin_charge_blocking(connection);
                    claim.complete_in_blocking(&transaction, created("forgotten"))
                };
                return till.blocking(body).await;
            }
            let mut transaction = till.begin_charge().await;
            claim.complete_in(&mut transaction, created("forgotten")).await
        });
        is_mended_by_a_retry(&shop, &app, 500, "not-committed").await;
    }
}

/// The client never hears of a charge whose transaction was dropped and whose claim never ended.
#[tokio::test]
async fn a_handler_that_neither_completes_nor_commits_is_no_success() {
    for status in [200, 201, 204, 303] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                let completed =
                    till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
                return completed.into_response();
            }
            drop(till.begin_charge().await);
            StatusCode::from_u16(status).unwrap().into_response()
        });
        is_mended_by_a_retry(&shop, &app, 500, "not-committed").await;
    }
}

/// The client never hears of a charge by a future that nobody awaited.
#[tokio::test]
async fn complete_in_that_is_not_awaited_proposes_nothing() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till
                .charge(CommitMethod::Commit, &claim, created("charge 1"))
                .await
                .into_response();
        }
        let mut transaction = till.begin_charge().await;
        drop(claim.complete_in(&mut transaction, created("never")));
        drop(claim.commit(transaction, created("never")));
        created("never")
    });
    is_mended_by_a_retry(&shop, &app, 500, "not-committed").await;
}

/// A charge whose COMMIT the database refuses: it fails when the constraint is checked.
fn with_an_orphan(shop: &Shop) {
    let tables = "CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE invoices (
            customer INTEGER NOT NULL REFERENCES customers DEFERRABLE INITIALLY DEFERRED)";
    shop.till.connect().execute_batch(tables).unwrap();
}

const ORPHAN: &str = "INSERT INTO invoices (customer) VALUES (7)";

async fn charge_an_orphan(till: Till, claim: Claim, way: CommitMethod) -> Result<(), CommitError> {
    let answer = || created("charge 1");
    match way {
        CommitMethod::Commit => {
            let mut transaction = till.begin_charge().await;
            sqlx::query(ORPHAN).execute(&mut *transaction).await?;
            claim.commit(transaction, answer()).await.map(drop)
        }
        CommitMethod::CompleteIn => {
            let mut transaction = till.begin_charge().await;
            sqlx::query(ORPHAN).execute(&mut *transaction).await?;
            let _ = claim.complete_in(&mut transaction, answer()).await?;
            transaction.commit().await.map_err(CommitError::from)
        }
        CommitMethod::CommitBlocking | CommitMethod::CompleteInBlocking => {
            let body = move |connection: &mut rusqlite::Connection| {
                connection.pragma_update(None, "foreign_keys", true)?;
                let transaction = begin_charge_blocking(connection);
                transaction.execute(ORPHAN, [])?;
                if way == CommitMethod::CommitBlocking {
                    return claim.commit_blocking(transaction, answer()).map(drop);
                }
                let _ = claim.complete_in_blocking(&transaction, answer())?;
                transaction.commit().map_err(CommitError::from)
            };
            till.blocking(body).await
        }
    }
}

/// The client never hears of a charge whose COMMIT failed, whatever its handler answers then.
#[tokio::test]
async fn a_commit_that_fails_is_no_success() {
    for way in CommitMethod::ALL {
        for (ignores, status) in [(false, 503), (true, 500)] {
            let shop = Shop::new();
            with_an_orphan(&shop);
            let app = shop.app(move |till, claim| async move {
                if claim.attempt() > 1 {
                    let completed = till.charge(way, &claim, created("charge 1")).await;
                    return completed.into_response();
                }
                let error = charge_an_orphan(till, claim, way).await.unwrap_err();
                assert!(matches!(error, CommitError::NotCommitted(_)), "{way:?}: {error:?}");
                assert!(error.to_string().contains("FOREIGN KEY"), "{way:?}: {error}");
                if ignores { created("charge 1") } else { error.into_response() }
            });
            is_mended_by_a_retry(&shop, &app, status, "not-committed").await;
        }
    }
}

/// The client is told to ask again, although it happened: this charges twice, and only the handler
/// can help it, by ending its claim in the same transaction.
#[tokio::test]
async fn an_effect_that_is_committed_without_its_claim_is_not_protected() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till
                .charge(CommitMethod::Commit, &claim, created("charge 2"))
                .await
                .into_response();
        }
        till.begin_charge().await.commit().await.unwrap();
        created("charge 1")
    });
    is_problem(&ask(&app, "k").await, 500, "not-committed");
    assert_eq!(shop.charges(), 1, "it was never said that it was not charged");
    is_charged(&ask(&app, "k").await, "charge 2");
    assert_eq!(shop.charges(), 2);
}

const BUG: &str = "a bug of the handler (expected by this test)";

/// The client never hears of a charge that a panic took away, and always of one that it did not.
#[tokio::test]
async fn a_panic_before_the_commit_rolls_back_and_one_after_it_changes_nothing() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            let completed: Result<Completed, CommitError> = match claim.attempt() {
                1 => {
                    let _transaction = till.begin_charge().await;
                    panic!("{BUG}");
                }
                2 => {
                    let mut transaction = till.begin_charge().await;
                    let _ = claim.complete_in(&mut transaction, created("never")).await.unwrap();
                    panic!("{BUG}");
                }
                3 => {
                    let body = move |connection: &mut rusqlite::Connection| {
                        let transaction = begin_charge_blocking(connection);
                        let answer = created("never");
                        let _ = claim.complete_in_blocking(&transaction, answer).unwrap();
                        panic!("{BUG}");
                    };
                    till.blocking(body).await
                }
                _ => {
                    let _ = till.charge(way, &claim, created("charge 1")).await.unwrap();
                    panic!("{BUG}");
                }
            };
            completed
        });
        for attempt in 1..=3 {
            is_problem(&ask(&app, "k").await, 502, "upstream-failed");
            assert_eq!(shop.charges(), 0, "{way:?}, attempt {attempt}");
        }
        is_charged_once(&shop, &app).await;
    }
}

/// The client is sent what is stored, whatever is done to the answer on its way out.
#[tokio::test]
async fn what_a_layer_makes_of_the_answer_afterwards_is_not_sent() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let till = shop.till.clone();
        let handler = async move |claim: Claim| till.charge(way, &claim, created("charge 1")).await;
        let spoil = |_| async { (StatusCode::IM_A_TEAPOT, [("x-of", "a layer")], "spoilt") };
        let idempotency = layer(shop.store.clone()).effect(Effect::Transactional).build().unwrap();
        let app = Router::new()
            .route("/charges", on_post(handler))
            .layer(axum::middleware::map_response(spoil as fn(Response<_>) -> _))
            .layer(idempotency);
        is_charged_once(&shop, &app).await;
    }
}

/// The client hears of the charge that was committed, even if its handler speaks of failure.
#[tokio::test]
async fn a_handler_that_contradicts_its_commit_is_not_believed() {
    for way in CommitMethod::ALL {
        for status in [200, 503] {
            let shop = Shop::new();
            let app = shop.app(move |till, claim| async move {
                let _ = till.charge(way, &claim, created("charge 1")).await.unwrap();
                (StatusCode::from_u16(status).unwrap(), "something else")
            });
            is_charged_once(&shop, &app).await;
        }
    }
}

/// The client never hears of failure while the effect is kept: nothing of it is committed.
#[tokio::test]
async fn commit_blocking_that_fails_rolls_back_even_if_a_dropped_transaction_would_commit() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till.charge(CommitMethod::CommitBlocking, &claim, created("charge 1")).await;
        }
        let body = move |connection: &mut rusqlite::Connection| {
            let mut transaction = begin_charge_blocking(connection);
            transaction.set_drop_behavior(DropBehavior::Commit);
            let answer = created(axum::body::Body::new(Pieces::of([broken()])));
            claim.commit_blocking(transaction, answer)
        };
        till.blocking(body).await
    });
    is_mended_by_a_retry(&shop, &app, 503, "not-committed").await;
}
