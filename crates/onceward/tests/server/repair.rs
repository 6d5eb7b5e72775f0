//! "A fixed bug still replays its 500": what docs/layer.md says about freeing its key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing};
use onceward::{
    Digest, Store as _,
    clock::ManualClock,
    protocol::Found,
    store::{Inspect as _, Note, NoteKind, Purge, Trail as _, memory::MemoryStore},
};

use crate::server_support::{Ledger, layer, post, send};

#[tokio::test]
async fn a_fixed_bug_replays_its_500_until_its_key_is_freed() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
    let (ledger, fixed) = (Ledger::default(), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (ledger, fixed) = (ledger.clone(), fixed.clone());
        async move || match fixed.load(Ordering::SeqCst) {
            true => (StatusCode::CREATED, format!("charge {}", ledger.add("charge"))),
            false => (StatusCode::INTERNAL_SERVER_ERROR, "bug 4711".to_owned()),
        }
    };
    let idempotency = layer(store.clone()).build().unwrap();
    let app = Router::new().route("/charges", routing::post(handler)).layer(idempotency);
    let ask = async || send(&app, post("/charges", "k", "{}")).await;

    let first = ask().await;
    fixed.store(true, Ordering::SeqCst);
    let retry = ask().await;
    assert_eq!((retry.status, retry.is_replay(), &retry.body), (first.status, true, &first.body));

    let id: Digest = first.header("onceward-operation").unwrap().parse().unwrap();
    let Found::Record(stored) = store.get(&id).await.unwrap() else { panic!("it is remembered") };
    let note = Note {
        kind: NoteKind::Purge,
        execution: stored.record.execution,
        actor: Some("ada".into()),
        reason: Some("500 from bug 4711, no charge at the provider".into()),
    };
    let purge = async || store.purge(&id, stored.record.fence, &note).await.unwrap();
    assert_eq!(purge().await, Purge::Recent, "a claim may still be on its way");
    clock.advance(Duration::from_secs(61));
    assert_eq!(purge().await, Purge::Purged);

    let again = ask().await;
    assert_eq!((again.status, again.text(), ledger.len()), (StatusCode::CREATED, "charge 1", 1));
    assert!(ask().await.is_replay());
    assert_eq!(ledger.len(), 1);
    let trail = store.trail(&id).await.unwrap();
    assert_eq!(trail.last().unwrap().note, note, "who freed the key, and why, is kept");
}
