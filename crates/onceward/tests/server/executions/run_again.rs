//! What is run again, and what has ended by its own commit.

use std::sync::Arc;

use axum::{Router, http::StatusCode, response::IntoResponse as _, routing::post as on_post};
use onceward::{Effect, Ending, Engine, Outcome, server::Claim, store::memory::MemoryStore};
use tokio::time::sleep;

use crate::{
    executions::charges::{
        Charges, HOUR, LEASE, NoAnswer, REPEATABLE, commit, created, is_answer, is_replay,
        layer_on, request,
    },
    server_support::{Ledger, is_problem, layer, memory, send},
};

#[tokio::test(start_paused = true)]
async fn failures_of_a_repeatable_effect_are_passed_on_and_run_again_for_a_while() {
    for failure in [500, 502, 503, 504, 599] {
        let charges = Charges::new(
            |layer| layer.effect(REPEATABLE),
            move |number| async move {
                match number {
                    3 => created(number),
                    _ => (StatusCode::from_u16(failure).unwrap(), "failed").into_response(),
                }
            },
        );
        for _ in 0..2 {
            let failed = charges.send().await;
            assert_eq!((failed.status.as_u16(), failed.text()), (failure, "failed"));
            assert!(!failed.is_replay() && failed.header("idempotency-completed").is_none());
        }
        is_answer(&charges.send().await, "charge 3");
        is_replay(&charges.send().await, "charge 3");
        assert_eq!(charges.ledger.len(), 3);
    }
    // Downstream forgets the key in the end.
    let charges = Charges::new(|layer| layer.effect(REPEATABLE), |_| NoAnswer::BreaksOff.answer());
    is_problem(&charges.send().await, 502, "upstream-failed");
    sleep(HOUR).await;
    charges.stays_unknown().await;
}

/// How a transactional handler ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    With(u16),
    ByPanic,
    BrokenOff,
    TooLate,
}

/// A service whose handler commits, or does not, and then ends somehow.
fn transactional(store: &Arc<MemoryStore>, ledger: &Ledger, commits: bool, ends: Ends) -> Router {
    let (own, ledger) = (store.clone(), ledger.clone());
    let handler = async move |claim: Claim| {
        if commits {
            commit(&own, &ledger, &claim).await;
        }
        match ends {
            Ends::With(status) => {
                (StatusCode::from_u16(status).unwrap(), "not the stored one").into_response()
            }
            Ends::ByPanic => NoAnswer::PanicsLater.answer().await,
            Ends::BrokenOff => NoAnswer::BreaksOff.answer().await,
            Ends::TooLate => {
                sleep(LEASE * 4).await;
                created(1)
            }
        }
    };
    let idempotency = layer(store.clone()).effect(Effect::Transactional).lease(LEASE);
    let idempotency = idempotency.max_run(LEASE * 3).build().unwrap();
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

#[tokio::test(start_paused = true)]
async fn the_answer_that_a_transaction_committed_is_sent_whatever_the_handler_says() {
    let answered = [201, 303, 404, 429, 500, 503].map(Ends::With);
    for ends in answered.into_iter().chain([Ends::ByPanic, Ends::BrokenOff]) {
        let (store, ledger) = (memory(), Ledger::default());
        let app = transactional(&store, &ledger, true, ends);
        let first = send(&app, request()).await;
        is_answer(&first, "committed");
        assert_eq!(first.header("x-of"), Some("the commit"), "{ends:?}");
        assert!(!first.is_replay(), "{ends:?}");
        let replay = send(&app, request()).await;
        is_replay(&replay, "committed");
        for name in ["idempotency-completed", "idempotency-expires"] {
            assert!(first.header(name).is_some() && first.header(name) == replay.header(name));
        }
        assert_eq!(ledger.len(), 1, "{ends:?}");
    }
    let (store, ledger) = (memory(), Ledger::default());
    let app = transactional(&store, &ledger, true, Ends::TooLate);
    is_problem(&send(&app, request()).await, 504, "upstream-failed");
    is_replay(&send(&app, request()).await, "committed");
    assert_eq!(ledger.len(), 1, "the commit counts, not the time that the rest took");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_without_a_commit_is_run_again() {
    let own_reply = [500, 503].map(|status| (Ends::With(status), (status, "")));
    let refused = [(429, 429), (403, 403)].map(|(end, told)| (Ends::With(end), (told, "")));
    let ours = [
        (Ends::With(200), (500, "not-committed")),
        (Ends::With(303), (500, "not-committed")),
        (Ends::ByPanic, (502, "upstream-failed")),
        (Ends::BrokenOff, (502, "upstream-failed")),
        (Ends::TooLate, (504, "upstream-failed")),
    ];
    for (ends, told) in own_reply.into_iter().chain(refused).chain(ours) {
        let (store, ledger) = (memory(), Ledger::default());
        let failing = transactional(&store, &ledger, false, ends);
        let first = send(&failing, request()).await;
        assert_eq!((first.status.as_u16(), &*first.code()), told, "{ends:?}");
        if !told.1.is_empty() {
            assert_eq!(first.json()["retryable"], true, "{ends:?}");
        }
        // The lease of what is too late must be over.
        sleep(LEASE * 2).await;
        let committing = transactional(&store, &ledger, true, Ends::With(201));
        is_answer(&send(&committing, request()).await, "committed");
        is_replay(&send(&failing, request()).await, "committed");
        assert_eq!(ledger.len(), 1, "{ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_ends_a_transactional_operation_without_a_commit() {
    let (store, ledger) = (memory(), Ledger::default());
    let app = transactional(&store, &ledger, false, Ends::With(404));
    for is_replay in [false, true] {
        let reply = send(&app, request()).await;
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (404, is_replay));
    }
    let committing = transactional(&store, &ledger, true, Ends::With(201));
    assert_eq!(send(&committing, request()).await.status, 404, "refused is refused");
    assert_eq!(ledger.len(), 0);
}

#[tokio::test]
async fn the_answer_that_a_handler_stored_itself_is_sent() {
    let engine = Engine::new(memory());
    let settling = engine.clone();
    let handler = async move |claim: Claim| {
        let stored = Outcome::inline(201, b"stored".to_vec());
        settling.settle((*claim).clone(), Ending::Succeeded(stored)).await.unwrap();
        "returned"
    };
    let idempotency = layer_on(&engine).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    for is_replay in [false, true] {
        let reply = send(&app, request()).await;
        assert_eq!((reply.status.as_u16(), reply.text()), (201, "stored"));
        assert_eq!(reply.is_replay(), is_replay);
    }
}
