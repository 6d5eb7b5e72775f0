//! Commits whose future is dropped at every point: record and effect are both there, or neither.

use std::time::Duration;

use axum::{http::StatusCode, response::IntoResponse as _};
use onceward::{Ending, Engine, Outcome, Status};

use crate::{
    commit::engine::claim,
    commit::shop::{CommitMethod, Shop, Till},
    server_support::{ask, created, dropped_after, is_charged, is_problem, is_replayed},
};

/// Waits until whatever was open is committed or rolled back: nobody else may write before.
async fn is_over(till: &Till) {
    till.begin().await.rollback().await.unwrap();
}

#[tokio::test]
async fn a_commit_of_the_engine_that_is_dropped_leaves_both_or_neither() {
    let shop = Shop::new();
    let engine = Engine::new(shop.store.clone());
    let (mut committed, mut finished) = (0, 0);
    for polls in 0.. {
        let key = format!("dropped-after-{polls}");
        let claim = claim(&engine, &key).await;
        let transaction = shop.till.begin_charge().await;
        let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
        let done = dropped_after(polls, engine.commit(&claim, transaction, ending)).await;
        is_over(&shop.till).await;
        let is_stored = shop.status(&key).await == Some(Status::Succeeded);
        committed += usize::from(is_stored);
        assert_eq!(shop.charges(), committed, "after {polls} polls: both or neither");
        if let Some(done) = done {
            done.unwrap();
            assert!(is_stored, "after {polls} polls");
            finished += 1;
        }
        if finished == 5 {
            assert!(polls > 5, "there are points to leave at");
            return;
        }
    }
}

/// A handler whose commit is cut off, as by a time-out, and which then says that it failed.
#[tokio::test]
async fn what_the_client_is_told_after_a_dropped_commit_is_what_was_committed() {
    for in_pieces in [false, true] {
        let shop = Shop::new();
        let mut finished = 0;
        for (number, polls) in (1..).zip(0..) {
            let app = shop.service(
                |layer| layer.spool(shop.store.clone()).max_inline(4),
                move |till, claim| async move {
                    if claim.attempt() > 1 {
                        return till
                            .charge(CommitMethod::Commit, &claim, created("charge 1"))
                            .await
                            .into_response();
                    }
                    let charge = async {
                        if in_pieces {
                            return till
                                .charge(CommitMethod::CompleteIn, &claim, created("charge 1"))
                                .await;
                        }
                        claim.commit(till.begin_charge().await, created("charge 1")).await
                    };
                    match dropped_after(polls, charge).await {
                        Some(completed) => completed.into_response(),
                        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    }
                },
            );
            let key = format!("dropped-after-{polls}");
            let first = ask(&app, &key).await;
            match first.status.as_u16() {
                201 => assert_eq!(shop.charges(), number, "after {polls} polls: it was told"),
                503 => assert_eq!(shop.charges(), number - 1, "after {polls} polls: nothing was"),
                other => panic!("{other} after {polls} polls"),
            }
            let retry = ask(&app, &key).await;
            is_charged(&retry, "charge 1");
            is_replayed(&app, &key, &retry).await;
            assert_eq!(shop.charges(), number, "after {polls} polls: once");
            finished += u32::from(first.status == 201);
            if finished == 4 {
                assert!(polls > 4, "there are points to leave at");
                break;
            }
        }
    }
}

/// As `tokio::time::timeout` would, at moments that no poll chooses.
#[tokio::test]
async fn a_commit_that_runs_into_a_time_out_is_told_as_it_ended() {
    let shop = Shop::new();
    for number in 1..=20 {
        let patience = Duration::from_micros(100 * u64::try_from(number).unwrap());
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                return till
                    .charge(CommitMethod::Commit, &claim, created("charge 1"))
                    .await
                    .into_response();
            }
            let transaction = till.begin_charge().await;
            let commit = claim.commit(transaction, created("charge 1"));
            match tokio::time::timeout(patience, commit).await {
                Ok(completed) => completed.into_response(),
                Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        });
        let key = number.to_string();
        let first = ask(&app, &key).await;
        match first.status.as_u16() {
            201 => is_charged(&first, "charge 1"),
            other => assert_eq!(other, 504),
        }
        let retry = ask(&app, &key).await;
        is_charged(&retry, "charge 1");
        assert_eq!((retry.is_replay(), shop.charges()), (first.status == 201, number));
    }
}

/// A handler that is dropped with everything it holds: its layer is told to stop at once.
#[tokio::test]
async fn a_handler_that_gives_up_between_complete_in_and_commit_has_done_nothing() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till
                .charge(CommitMethod::Commit, &claim, created("charge 1"))
                .await
                .into_response();
        }
        let charge = async {
            let mut transaction = till.begin_charge().await;
            let _ = claim.complete_in(&mut transaction, created("never")).await.unwrap();
            std::future::pending::<()>().await;
            transaction.commit().await.unwrap();
        };
        let cut_off = tokio::time::timeout(Duration::from_millis(50), charge).await;
        assert!(cut_off.is_err());
        created("never")
    });
    is_problem(&ask(&app, "k").await, 500, "not-committed");
    is_charged(&ask(&app, "k").await, "charge 1");
    assert_eq!(shop.charges(), 1);
}
