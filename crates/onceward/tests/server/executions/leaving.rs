//! Clients that disconnect, at every point.

use std::{future::Future, sync::Arc};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{Request, StatusCode},
    routing::post as on_post,
};
use onceward::{
    Digest, Effect, Engine, Store, StoreError,
    protocol::Found,
    server::Claim,
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
};
use tokio::task::yield_now;
use tower::ServiceExt as _;

use crate::{
    executions::charges::{
        LEASE, REPEATABLE, commit, created, in_pieces, is_answer, is_replay, layer_on, preferring,
        request,
    },
    server_support::{Gate, Ledger, Pieces, data, dropped_after, eventually, memory, post, send},
};

/// Lets others go first before and after every call, so that there are many points to leave at.
struct Yielding(Arc<MemoryStore>);

async fn yielding<T>(call: impl Future<Output = T>) -> T {
    yield_now().await;
    yield_now().await;
    let answer = call.await;
    yield_now().await;
    yield_now().await;
    answer
}

impl Store for Yielding {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(yielding(self.0.swap(change)))
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(yielding(self.0.get(id)))
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.0.sweep(limit)
    }
}

/// A service in which everything takes several turns, with the engine that looks after it.
fn many_turns(effect: Effect) -> (Router, Engine, Ledger) {
    let (store, ledger) = (memory(), Ledger::default());
    let engine = Engine::new(Yielding(store.clone()));
    let made = ledger.clone();
    let handler = async move |claim: Claim, body: String| {
        assert_eq!(body, "{}");
        yield_now().await;
        match effect {
            Effect::Transactional => commit(&store, &made, &claim).await,
            _ => drop(made.add("charge")),
        }
        yield_now().await;
        let (sender, body) = Pieces::channel();
        tokio::spawn(async move {
            for piece in ["comm", "itted"] {
                yield_now().await;
                sender.send(data(piece)).unwrap();
            }
        });
        in_pieces(body)
    };
    let idempotency = layer_on(&engine).effect(effect).lease(LEASE).build().unwrap();
    (Router::new().route("/charges", on_post(handler)).layer(idempotency), engine, ledger)
}

/// The request, whose body also takes its turns.
fn slow_request() -> Request<AxumBody> {
    let (sender, body) = Pieces::channel();
    tokio::spawn(async move {
        for piece in ["{", "}"] {
            yield_now().await;
            // Nobody may be left to read it.
            let _ = sender.send(data(piece));
        }
    });
    post("/charges", "k", AxumBody::new(body))
}

#[tokio::test(start_paused = true)]
async fn a_client_may_leave_at_every_await_point() {
    for effect in [Effect::External, REPEATABLE, Effect::Transactional] {
        for retries_at_once in [false, true] {
            let mut polls = 0;
            while !left_after(polls, effect, retries_at_once).await {
                polls += 1;
            }
            assert!(polls >= 8, "only {polls} points to leave at: {effect:?}");
        }
    }
}

/// One client leaves and comes back. Whether it was there until the end.
async fn left_after(polls: u32, effect: Effect, retries_at_once: bool) -> bool {
    let (app, engine, ledger) = many_turns(effect);
    let response = dropped_after(polls, app.clone().oneshot(slow_request())).await;
    let was_there = response.is_some();
    drop(response);
    if retries_at_once {
        let retry = send(&app, slow_request()).await;
        let is_defined = retry.status == StatusCode::CREATED || retry.code() == "in-progress";
        assert!(is_defined, "after {polls} polls: {retry:?}");
        assert!(ledger.len() <= 1, "after {polls} polls");
    }
    eventually(async || engine.unsettled() == 0).await;
    let effects = ledger.len();
    let retry = send(&app, slow_request()).await;
    is_answer(&retry, "committed");
    assert_eq!(retry.is_replay(), effects == 1, "after {polls} polls");
    assert_eq!(ledger.len(), 1, "after {polls} polls of {effect:?}");
    is_replay(&send(&app, request()).await, "committed");
    assert_eq!(engine.unsettled(), 0);
    was_there
}

#[tokio::test(start_paused = true)]
async fn a_waiter_may_leave_at_every_await_point() {
    for polls in 0.. {
        let (store, ledger, gate) = (memory(), Ledger::default(), Gate::closed());
        let engine = Engine::new(Yielding(store.clone()));
        let (made, held) = (ledger.clone(), gate.clone());
        let handler = async move || {
            let number = made.add("charge");
            held.pass().await;
            created(number)
        };
        let idempotency = layer_on(&engine).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        let sent = app.clone();
        let first = tokio::spawn(async move { send(&sent, request()).await });
        gate.reached().await;
        let waiter = dropped_after(polls, app.clone().oneshot(preferring("wait=5"))).await;
        let sent = app.clone();
        let other = tokio::spawn(async move { send(&sent, preferring("wait=5")).await });
        yield_now().await;
        gate.open();
        is_answer(&first.await.unwrap(), "charge 1");
        is_replay(&other.await.unwrap(), "charge 1");
        assert_eq!((ledger.len(), engine.unsettled()), (1, 0), "after {polls} polls");
        if let Some(response) = waiter {
            assert_eq!(response.unwrap().status(), 409, "its patience was over before the run");
            assert!(polls >= 5, "only {polls} points to leave at");
            break;
        }
    }
}
