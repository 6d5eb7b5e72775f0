//! Two processes on one store.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::post as on_post};
use onceward::{
    Effect, Store,
    conformance::FaultyStore,
    server::{Claim, IdempotencyBuilder, InFlight},
};
use tokio::time::{Instant, sleep};

use crate::{
    executions::charges::{LEASE, REPEATABLE, is_answer, is_replay, request},
    server_support::{Gate, Ledger, is_problem, layer, memory, send},
};

/// A process that charges behind a gate.
fn process(
    store: impl Store,
    ledger: &Ledger,
    gate: &Gate,
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> Router {
    let (made, gate) = (ledger.clone(), gate.clone());
    let handler = async move |claim: Claim| {
        made.add("charge");
        gate.pass().await;
        (StatusCode::CREATED, format!("attempt {}", claim.attempt()))
    };
    let idempotency = choose(layer(store).lease(LEASE)).build().unwrap();
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_answer_of_another_process() {
    let (store, ledger, gate) = (memory(), Ledger::default(), Gate::closed());
    let a = process(store.clone(), &ledger, &gate, |layer| layer);
    let wait = InFlight::Wait(Duration::from_secs(10));
    let b = process(store, &ledger, &gate, |layer| layer.in_flight(wait));
    let first = tokio::spawn(async move { send(&a, request()).await });
    gate.reached().await;
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let b = b.clone();
            tokio::spawn(async move { send(&b, request()).await })
        })
        .collect();
    sleep(LEASE * 5).await;
    let start = Instant::now();
    gate.open();
    is_answer(&first.await.unwrap(), "attempt 1");
    for waiter in waiters {
        is_replay(&waiter.await.unwrap(), "attempt 1");
    }
    assert!(start.elapsed() <= Duration::from_millis(250), "soon after: {:?}", start.elapsed());
    assert_eq!(ledger.len(), 1);
}

/// The first process hangs and cannot renew: its waiter elsewhere learns what that means.
#[tokio::test(start_paused = true)]
async fn a_waiter_outlives_the_process_that_it_waits_for() {
    for effect in [Effect::External, REPEATABLE] {
        let (store, ledger) = (memory(), Ledger::default());
        let cut = FaultyStore::new(store.clone(), None);
        let (gate_a, gate_b) = (Gate::closed(), Gate::closed());
        let a = process(cut.clone(), &ledger, &gate_a, |layer| layer.effect(effect));
        let wait = InFlight::Wait(Duration::from_secs(10));
        let b = process(store, &ledger, &gate_b, |layer| layer.effect(effect).in_flight(wait));
        let first = tokio::spawn(async move { send(&a, request()).await });
        gate_a.reached().await;
        cut.set_down(true);
        gate_b.open();
        let waiter = send(&b, request()).await;
        if effect == Effect::External {
            is_problem(&waiter, 409, "outcome-unknown");
        } else {
            is_answer(&waiter, "attempt 2");
            assert!(!waiter.is_replay(), "it became the one that runs it");
        }
        cut.set_down(false);
        gate_a.open();
        let first = first.await.unwrap();
        if effect == Effect::External {
            is_answer(&first, "attempt 1");
            is_replay(&send(&b, request()).await, "attempt 1");
            assert_eq!(ledger.len(), 1, "the late truth wins");
        } else {
            is_problem(&first, 409, "lease-lost");
            is_replay(&send(&b, request()).await, "attempt 2");
            assert_eq!(ledger.len(), 2, "what is repeatable was repeated once");
        }
    }
}
