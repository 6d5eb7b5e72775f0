//! Runs that take longer than they may.

use std::time::Duration;

use axum::{Router, routing::post as on_post};
use onceward::{Status, conformance::FaultyStore};
use tokio::time::{Instant, sleep};

use crate::{
    executions::charges::{
        Charges, LEASE, REPEATABLE, created, is_answer, is_replay, request, status,
    },
    server_support::{Gate, Ledger, eventually, is_problem, layer, memory, send},
};

#[tokio::test(start_paused = true)]
async fn an_overdue_run_is_unknown_until_its_late_end_is_replayed() {
    let gate = Gate::closed();
    let (max_run, held) = (Duration::from_millis(300), gate.clone());
    let charges = Charges::new(
        |layer| layer.lease(LEASE).max_run(max_run),
        move |number| {
            let gate = held.clone();
            async move {
                gate.pass().await;
                created(number)
            }
        },
    );
    let start = Instant::now();
    is_problem(&charges.send().await, 504, "outcome-unknown");
    assert_eq!(start.elapsed(), max_run, "told in time");
    is_problem(&charges.send().await, 409, "in-progress");
    sleep(LEASE).await;
    is_problem(&charges.send().await, 409, "outcome-unknown");
    assert_eq!(charges.engine.unsettled(), 1, "it still runs");
    gate.open();
    eventually(async || charges.engine.unsettled() == 0).await;
    is_replay(&charges.send().await, "charge 1");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_run_of_a_repeatable_effect_may_be_taken_over() {
    let gate = Gate::closed();
    let (max_run, held) = (Duration::from_millis(300), gate.clone());
    let charges = Charges::new(
        |layer| layer.effect(REPEATABLE).lease(LEASE).max_run(max_run),
        move |number| {
            let gate = held.clone();
            async move {
                if number == 1 {
                    gate.pass().await;
                }
                created(number)
            }
        },
    );
    is_problem(&charges.send().await, 504, "upstream-failed");
    is_problem(&charges.send().await, 409, "in-progress");
    sleep(LEASE).await;
    is_answer(&charges.send().await, "charge 2");
    gate.open();
    eventually(async || charges.engine.unsettled() == 0).await;
    is_replay(&charges.send().await, "charge 2");
    assert_eq!(charges.ledger.len(), 2, "and the late end of the first changes nothing");
}

/// The time of a run is bounded also while a store that hangs is asked to renew its claim.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_delay_what_an_overdue_run_is_told() {
    let (store, ledger, gate) = (memory(), Ledger::default(), Gate::closed());
    let faulty = FaultyStore::new(store.clone(), None);
    let (made, mute, held) = (ledger.clone(), faulty.clone(), gate.clone());
    let handler = async move || {
        made.add("charge");
        mute.set_mute(true);
        held.pass().await;
        mute.set_mute(false);
        created(1)
    };
    let max_run = Duration::from_millis(300);
    let idempotency = layer(faulty).lease(LEASE).max_run(max_run).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let start = Instant::now();
    is_problem(&send(&app, request()).await, 504, "outcome-unknown");
    let told_after = start.elapsed();
    gate.open();
    eventually(async || status(&store).await == Some(Status::Succeeded)).await;
    is_replay(&send(&app, request()).await, "charge 1");
    assert_eq!(ledger.len(), 1);
    assert_eq!(told_after, max_run, "whatever the store does");
}
