//! Transactions that outlive their handler.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::IntoResponse as _;
use onceward::{CommitError, Status};
use tokio::task::JoinHandle;

use crate::{
    commit::shop::{CommitMethod, Shop},
    server_support::{Gate, ask, created, eventually, is_charged, is_problem, is_replayed},
};

const LEASE: Duration = Duration::from_secs(30);

/// A handler that returns while its transaction is still open elsewhere, with the end proposed.
fn leaking(shop: &Shop, gate: &Gate, commits: bool) -> axum::Router {
    let gate = gate.clone();
    shop.app(move |till, claim| {
        let gate = gate.clone();
        async move {
            if claim.attempt() > 1 {
                return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
            }
            let mut transaction = till.begin_charge().await;
            let completed = claim.complete_in(&mut transaction, created("charge 1")).await;
            tokio::spawn(async move {
                gate.pass().await;
                match commits {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
            });
            completed
        }
    })
}

/// The client is not told of success while nobody knows: it hears of it when it asks again.
#[tokio::test]
async fn a_transaction_that_is_committed_after_its_handler_has_returned_counts() {
    let (shop, gate) = (Shop::new(), Gate::closed());
    let app = leaking(&shop, &gate, true);
    let first = ask(&app, "k").await;
    is_problem(&first, 503, "outcome-unknown");
    assert_eq!(first.json()["retryable"], true);
    // Nobody can take over what a transaction holds, however long.
    shop.clock.advance(LEASE * 2);
    gate.open();
    eventually(async || shop.status("k").await == Some(Status::Succeeded)).await;
    let retry = ask(&app, "k").await;
    is_charged(&retry, "charge 1");
    is_replayed(&app, "k", &retry).await;
    assert_eq!(shop.charges(), 1);
}

/// The client is not told of success while nobody knows; its retry runs when nothing happened.
#[tokio::test]
async fn a_transaction_that_is_rolled_back_after_its_handler_has_returned_is_no_success() {
    let (shop, gate) = (Shop::new(), Gate::closed());
    let app = leaking(&shop, &gate, false);
    is_problem(&ask(&app, "k").await, 503, "outcome-unknown");
    gate.open();
    eventually(async || shop.status("k").await == Some(Status::FailedRetryable)).await;
    let retry = ask(&app, "k").await;
    is_charged(&retry, "charge 1");
    is_replayed(&app, "k", &retry).await;
    assert_eq!(shop.charges(), 1);
}

/// The client is told what the commit says, or that nobody knows: never of success before it.
#[tokio::test]
async fn a_transaction_that_is_ended_in_the_same_moment_is_waited_for() {
    for commits in [true, false] {
        let (shop, gate) = (Shop::new(), Gate::closed());
        let app = leaking(&shop, &gate, commits);
        gate.open();
        let first = ask(&app, "k").await;
        match (first.status.as_u16(), commits) {
            (201, true) => is_charged(&first, "charge 1"),
            (500, false) => is_problem(&first, 500, "not-committed"),
            // This machine was too busy to end it within the second that a client waits.
            _ => is_problem(&first, 503, "outcome-unknown"),
        }
        let ended = if commits { Status::Succeeded } else { Status::FailedRetryable };
        eventually(async || shop.status("k").await == Some(ended)).await;
        let retry = ask(&app, "k").await;
        is_charged(&retry, "charge 1");
        is_replayed(&app, "k", &retry).await;
        assert_eq!(shop.charges(), 1, "commits: {commits}");
    }
}

/// The client is told that nothing was committed, and so it stays: the claim is over for the task.
#[tokio::test]
async fn a_task_that_outlives_its_handler_cannot_end_the_operation_any_more() {
    for way in CommitMethod::ALL {
        let (shop, gate) = (Shop::new(), Gate::closed());
        let leaked: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
        let (inside, task) = (gate.clone(), leaked.clone());
        let app = shop.app(move |till, claim| {
            let (gate, task) = (inside.clone(), task.clone());
            async move {
                if claim.attempt() > 1 {
                    let completed =
                        till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
                    return completed.into_response();
                }
                *task.lock().unwrap() = Some(tokio::spawn(async move {
                    gate.pass().await;
                    for over in [CommitError::Twice, CommitError::LeaseLost] {
                        let late = till.charge(way, &claim, created("too late")).await;
                        assert_eq!(late.unwrap_err(), over);
                        gate.pass().await;
                    }
                }));
                created("not yet")
            }
        });
        is_problem(&ask(&app, "k").await, 500, "not-committed");
        gate.open();
        // Once before the retry, and once after it.
        gate.reached().await;
        gate.reached().await;
        assert_eq!(shop.charges(), 0, "{way:?}");
        let retry = ask(&app, "k").await;
        is_charged(&retry, "charge 1");
        gate.open();
        gate.open();
        let task = leaked.lock().unwrap().take().unwrap();
        task.await.unwrap();
        is_replayed(&app, "k", &retry).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}
