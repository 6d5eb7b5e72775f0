//! Trap 3: of many that come at once, one runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, response::IntoResponse as _, routing::post as on_post};
use onceward::{
    Digest, Status, Store, StoreError,
    protocol::{Found, Record},
    server::{IdempotencyBuilder, InFlight},
    store::{
        BoxFuture, Change, Inspect as _, Note, NoteKind, PURGE_MARGIN, Purge, Swap,
        memory::MemoryStore,
    },
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    server_support::{Gate, Ledger, Reply, charge, layer, memory, post, send, status, stored},
    traps::fixture::{DAY, HOUR, charging},
};

/// The same request 200 times at once, spread over processes.
async fn two_hundred(apps: &[Router], key: &'static str) -> Vec<Reply> {
    let barrier = Arc::new(Barrier::new(200));
    let mut requests = JoinSet::new();
    for app in apps.iter().cycle().take(200) {
        let (app, barrier) = (app.clone(), barrier.clone());
        requests.spawn(async move {
            barrier.wait().await;
            send(&app, post("/charges", key, "{}")).await
        });
    }
    requests.join_all().await
}

/// One of them ran; the others were given its answer or told to ask later.
fn one_ran(replies: &[Reply], body: &str) {
    let (created, refused): (Vec<_>, Vec<_>) =
        replies.iter().partition(|reply| reply.status == StatusCode::CREATED);
    assert!(created.iter().all(|reply| reply.text() == body), "{created:?}");
    assert_eq!(created.iter().filter(|reply| !reply.is_replay()).count(), 1, "one first answer");
    assert!(refused.iter().all(|reply| reply.code() == "in-progress"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_3_one_atomic_claim() {
    of_two_hundred_first_requests_one_runs().await;
    of_two_hundred_waiters_one_runs().await;
    an_expired_record_is_claimed_once().await;
    a_released_record_is_claimed_once().await;
    a_record_that_is_purged_meanwhile_is_claimed_once().await;
    one_waiter_runs_what_the_first_released().await;
    a_lost_claim_that_finds_nothing_never_runs().await;
}

/// Two processes, whose handlers answer at once: some requests meet a finished operation.
fn two_processes(
    store: &Arc<MemoryStore>,
    ledger: &Ledger,
    choose: impl Fn(IdempotencyBuilder) -> IdempotencyBuilder,
) -> [Router; 2] {
    [(); 2].map(|()| {
        let ledger = ledger.clone();
        let handler = async move || {
            let number = ledger.add("charge");
            tokio::task::yield_now().await;
            (StatusCode::CREATED, format!("charge {number}"))
        };
        let idempotency = choose(layer(store.clone())).build().unwrap();
        Router::new().route("/charges", on_post(handler)).layer(idempotency)
    })
}

async fn of_two_hundred_first_requests_one_runs() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    one_ran(&two_hundred(&apps, "k").await, "charge 1");
    assert_eq!(ledger.len(), 1);
}

async fn of_two_hundred_waiters_one_runs() {
    let (ledger, store) = (Ledger::default(), memory());
    let wait = InFlight::Wait(Duration::from_secs(10));
    let apps = two_processes(&store, &ledger, |layer| layer.in_flight(wait));
    let replies = two_hundred(&apps, "k").await;
    one_ran(&replies, "charge 1");
    assert!(replies.iter().all(|reply| reply.status == StatusCode::CREATED), "all were answered");
    assert_eq!(ledger.len(), 1);
}

async fn an_expired_record_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    send(&apps[0], post("/charges", "k", "{}")).await;
    store.age(&charge("k").digest(), DAY + HOUR);
    assert_eq!(status(&store, "k").await, Some(Status::Expired));
    one_ran(&two_hundred(&apps, "k").await, "charge 2");
    assert_eq!(ledger.len(), 2);
}

async fn a_released_record_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let refusing = async || StatusCode::TOO_MANY_REQUESTS;
    let idempotency = layer(store.clone()).build().unwrap();
    let refusing = Router::new().route("/charges", on_post(refusing)).layer(idempotency);
    send(&refusing, post("/charges", "k", "{}")).await;
    assert_eq!(status(&store, "k").await, Some(Status::Released));
    let apps = two_processes(&store, &ledger, |layer| layer);
    one_ran(&two_hundred(&apps, "k").await, "charge 1");
    assert_eq!(ledger.len(), 1);
}

async fn a_record_that_is_purged_meanwhile_is_claimed_once() {
    let (ledger, store) = (Ledger::default(), memory());
    let apps = two_processes(&store, &ledger, |layer| layer);
    send(&apps[0], post("/charges", "k", "{}")).await;
    let id = charge("k").digest();
    store.age(&id, PURGE_MARGIN);
    let Record { fence, execution, .. } = stored(&store, "k").await.unwrap().record;
    let purging = store.clone();
    let purge = tokio::spawn(async move {
        let note = Note::of_protocol(NoteKind::Purge, execution);
        purging.purge(&id, fence, &note).await.unwrap()
    });
    let replies = two_hundred(&apps, "k").await;
    assert_eq!(purge.await.unwrap(), Purge::Purged);
    // The purge came before, between or after them.
    let ran = replies.iter().filter(|reply| reply.status == 201 && !reply.is_replay()).count();
    assert!(ran <= 1 && ledger.len() == 1 + ran, "{ran} ran, {} effects", ledger.len());
    let last = send(&apps[1], post("/charges", "k", "{}")).await;
    assert_eq!((last.text(), ledger.len()), ("charge 2", 2), "once after the purge");
}

async fn one_waiter_runs_what_the_first_released() {
    let (ledger, store) = (Ledger::default(), memory());
    let (gate, is_first) = (Gate::closed(), Arc::new(AtomicBool::new(true)));
    let apps = [(); 2].map(|()| {
        let (ledger, gate, is_first) = (ledger.clone(), gate.clone(), is_first.clone());
        let handler = async move || {
            if is_first.swap(false, Ordering::SeqCst) {
                gate.pass().await;
                return StatusCode::TOO_MANY_REQUESTS.into_response();
            }
            (StatusCode::CREATED, format!("charge {}", ledger.add("charge"))).into_response()
        };
        let wait = InFlight::Wait(Duration::from_secs(10));
        let idempotency = layer(store.clone()).in_flight(wait).build().unwrap();
        Router::new().route("/charges", on_post(handler)).layer(idempotency)
    });
    let waiting = apps.clone();
    let waiters = tokio::spawn(async move { two_hundred(&waiting, "k").await });
    gate.reached().await;
    assert_eq!(ledger.len(), 0);
    gate.open();
    let replies = waiters.await.unwrap();
    let (refused, answered): (Vec<_>, Vec<_>) =
        replies.into_iter().partition(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.len(), 1, "only whoever ran it hears that");
    one_ran(&answered, "charge 1");
    assert_eq!(ledger.len(), 1);
}

/// Every claim comes too late, and there is never anything to be found.
struct TooLate;

impl Store for TooLate {
    fn swap<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async { Ok(Swap::Conflict(Found::Nothing)) })
    }

    fn get<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(async { Ok(Found::Nothing) })
    }

    fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}

async fn a_lost_claim_that_finds_nothing_never_runs() {
    let ledger = Ledger::default();
    let app = charging(&ledger, &Gate::closed(), layer(TooLate).build().unwrap());
    let reply = send(&app, post("/charges", "k", "{}")).await;
    assert_eq!((reply.status.as_u16(), &*reply.code()), (409, "in-progress"));
    assert_eq!(ledger.len(), 0);
}
