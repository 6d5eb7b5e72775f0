//! Trap 2: whoever has lost its claim changes nothing any more.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, http::StatusCode, response::IntoResponse as _, routing::post as on_post};
use onceward::{
    Effect, Status, Store, Timestamp,
    conformance::FaultyStore,
    protocol::{Meaning, Record, Ttl},
    server::Claim,
    store::memory::MemoryStore,
};

use crate::{
    server_support::{Gate, Ledger, eventually, layer, memory, post, send, status, stored},
    traps::fixture::{HOUR, charging},
};

const LEASE: Duration = Duration::from_millis(100);

/// What is stored, without the time that passes between two readings of it.
async fn durable(store: &impl Store, key: &str) -> (Record, Timestamp, Option<Timestamp>) {
    let stored = stored(store, key).await.unwrap();
    let expires_at = stored.expires_at();
    (Record { ttl: Ttl::Never, ..stored.record }, stored.updated_at, expires_at)
}

/// Owner A past its lease, B took over: whatever A still writes changes nothing.
///
/// The commit of A's own transaction comes with the stores that can have one, and is tested there.
#[tokio::test(start_paused = true)]
async fn trap_2_fencing_on_every_write() {
    // Complete, fail for good, release, fail to be run again, declare unknown.
    for (answered, meaning) in
        [(201, None), (402, None), (429, None), (500, None), (201, Some(Meaning::Unknown))]
    {
        for ended in [true, false] {
            a_zombie_changes_nothing(answered, meaning, ended).await;
        }
    }
}

async fn a_zombie_changes_nothing(answered: u16, meaning: Option<Meaning>, ended: bool) {
    let (ledger, store) = (Ledger::default(), memory());
    // A's connection to the store is cut while it runs; B's is not.
    let cut = FaultyStore::new(store.clone(), None);
    let repeatable = |store: FaultyStore<Arc<MemoryStore>>| {
        layer(store).effect(Effect::Repeatable { within: HOUR }).lease(LEASE).build().unwrap()
    };
    let (gate_a, gate_b) = (Gate::closed(), Gate::closed());
    let (made, gate) = (ledger.clone(), gate_a.clone());
    let claim_of_a = Arc::new(Mutex::new(None));
    let keep = claim_of_a.clone();
    let handler = async move |claim: Claim| {
        made.add("charge by A");
        *keep.lock().unwrap() = Some(claim);
        gate.pass().await;
        let mut response = StatusCode::from_u16(answered).unwrap().into_response();
        meaning.map(|meaning| response.extensions_mut().insert(meaning));
        response
    };
    let a = Router::new().route("/charges", on_post(handler)).layer(repeatable(cut.clone()));
    let b = charging(&ledger, &gate_b, repeatable(FaultyStore::new(store.clone(), None)));

    let request = || post("/charges", "k", "{}");
    let (sent_to_a, sent_to_b) = (a.clone(), b.clone());
    let first = tokio::spawn(async move { send(&sent_to_a, request()).await });
    gate_a.reached().await;
    cut.set_down(true);
    tokio::time::sleep(LEASE * 2).await;
    let second = tokio::spawn(async move { send(&sent_to_b, request()).await });
    gate_b.reached().await;
    assert_eq!(stored(&store, "k").await.unwrap().record.attempts, 2, "B took over");
    if ended {
        gate_b.open();
        eventually(async || status(&store, "k").await == Some(Status::Succeeded)).await;
    }

    let before = durable(&store, "k").await;
    cut.set_down(false);
    // A's renewal finds that it is too late.
    let claim_of_a = claim_of_a.lock().unwrap().take().unwrap();
    eventually(async || claim_of_a.is_lost()).await;
    assert_eq!(claim_of_a.time_left(), Duration::ZERO, "A is told to stop");
    let after_renewal = durable(&store, "k").await;
    // Nor does what A ends with.
    gate_a.open();
    let answer = first.await.unwrap();
    assert_eq!((answer.status, &*answer.code()), (StatusCode::CONFLICT, "lease-lost"));
    let after_end = durable(&store, "k").await;
    for after in [after_renewal, after_end] {
        match ended {
            true => assert_eq!(after, before, "byte for byte, after {answered} {meaning:?}"),
            // B renews its own lease meanwhile.
            false => assert_eq!(after.0, before.0, "after {answered} {meaning:?}"),
        }
    }

    if !ended {
        gate_b.open();
    }
    let answer = second.await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.text()), (201, "charge 2"));
    for app in [&a, &b] {
        let replay = send(app, request()).await;
        assert!(replay.is_replay() && replay.text() == "charge 2", "{replay:?}");
    }
    assert_eq!(ledger.len(), 2, "what is repeatable was run by A and by B, and by nobody else");
}
