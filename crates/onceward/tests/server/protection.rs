//! What the layer keeps of answers, and how many operations one caller may have open.

use std::time::Duration;

use axum::{Router, body::Body, routing::post as on_post};
use http::{HeaderMap, HeaderValue, Response};
use onceward::{
    Outcome, Resolution, State, Store as _,
    protocol::{Found, StoredBody},
    server::{Idempotency, IdempotencyBuilder, Redaction, Resource},
    store::memory::MemoryStore,
};

use crate::server_support::{Gate, Ledger, Reply, charge, eventually, layer, post, send};

/// A service that waits at a gate where a request says so.
fn gated(options: &IdempotencyBuilder, ledger: &Ledger, gate: &Gate) -> Router {
    let (ledger, gate) = (ledger.clone(), gate.clone());
    let handler = async move |headers: HeaderMap| {
        let number = ledger.add("charge");
        if headers.contains_key("x-slow") {
            gate.pass().await;
        }
        format!("receipt {number}")
    };
    Router::new().route("/charges", on_post(handler)).layer(options.clone().build().unwrap())
}

fn slow(key: &str) -> http::Request<Body> {
    let mut request = post("/charges", key, "{}");
    request.headers_mut().insert("x-slow", HeaderValue::from_static("1"));
    request
}

async fn ask(app: &Router, key: &str) -> Reply {
    send(app, post("/charges", key, "{}")).await
}

fn start(app: &Router, key: &str) -> tokio::task::JoinHandle<Reply> {
    let (app, request) = (app.clone(), slow(key));
    tokio::spawn(async move { send(&app, request).await })
}

#[tokio::test]
async fn the_quota_holds_at_the_limit_and_is_given_back_at_the_end() {
    let (ledger, gate) = (Ledger::default(), Gate::closed());
    let options = layer(MemoryStore::not_durable()).max_open(3);
    let app = gated(&options, &ledger, &gate);
    let done = ask(&app, "done").await;
    let mut running = Vec::new();
    for key in ["a", "b"] {
        running.push(start(&app, key));
        gate.reached().await;
    }
    assert_eq!(ask(&app, "below").await.status, 200);
    running.push(start(&app, "c"));
    gate.reached().await;
    for _ in 0..2 {
        let refused = ask(&app, "d").await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (429, "too-many-open"));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(ask(&app, "a").await.code(), "in-progress", "a duplicate is told what it is");
    assert!(ask(&app, "done").await.is_replay() && done.status == 200);
    let mismatch = send(&app, post("/charges", "done", "other")).await;
    assert_eq!(mismatch.code(), "key-reused");
    let mut bob = post("/charges", "d", "{}");
    bob.headers_mut().insert("x-caller", HeaderValue::from_static("bob"));
    assert_eq!(send(&app, bob).await.status, 200, "another scope has its own");
    assert_eq!(ledger.len(), 6);
    gate.open();
    eventually(async || running.iter().any(tokio::task::JoinHandle::is_finished)).await;
    assert_eq!(ask(&app, "d").await.status, 200, "nothing was bound by the refusals");
    gate.open();
    gate.open();
    for running in running {
        assert_eq!(running.await.unwrap().status, 200);
    }
}

/// Twenty at once, for two places: the store hears of all of them, and two run.
#[tokio::test]
async fn the_quota_holds_when_all_come_at_once() {
    let (ledger, gate) = (Ledger::default(), Gate::closed());
    let store = std::sync::Arc::new(MemoryStore::not_durable());
    let app = gated(&layer(store.clone()).max_open(2), &ledger, &gate);
    let all: Vec<_> = (0..20).map(|number| start(&app, &format!("k{number}"))).collect();
    gate.reached().await;
    gate.reached().await;
    eventually(async || all.iter().filter(|one| one.is_finished()).count() == 18).await;
    assert_eq!(ledger.len(), 2);
    (0..20).for_each(|_| gate.open());
    let mut codes = Vec::new();
    for (number, one) in all.into_iter().enumerate() {
        let reply = one.await.unwrap();
        if reply.status != 200 {
            codes.push(reply.code());
            let found = store.get(&charge(&format!("k{number}")).digest()).await.unwrap();
            let is_free = match found {
                Found::Nothing => true,
                Found::Record(stored) => stored.record.state == State::Released,
                Found::Unreadable { .. } => false,
            };
            assert!(is_free, "nothing is bound");
        }
    }
    assert_eq!(codes, vec!["too-many-open"; 18]);
}

#[tokio::test(start_paused = true)]
async fn what_is_overdue_does_not_count() {
    let (ledger, gate) = (Ledger::default(), Gate::closed());
    let options = layer(MemoryStore::not_durable()).max_open(1).max_run(Duration::from_secs(30));
    let app = gated(&options, &ledger, &gate);
    let hung = start(&app, "hung");
    gate.reached().await;
    assert_eq!(ask(&app, "k").await.code(), "too-many-open");
    let told = hung.await.unwrap();
    assert_eq!((told.status.as_u16(), told.code().as_str()), (504, "outcome-unknown"));
    assert_eq!(
        ask(&app, "k").await.status,
        200,
        "its outcome is unknown, and it runs on by itself"
    );
}

/// A service that answers with a secret, and its store.
fn telling(choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> (Router, Ledger) {
    let ledger = Ledger::default();
    let telling = ledger.clone();
    let handler = async move || {
        let number = telling.add("charge");
        let mut response = Response::new(Body::from(format!("secret {number}")));
        for (name, value) in
            [("location", "/charges/7"), ("x-open", "1"), ("etag", "\"e\""), ("x-secret", "s")]
        {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        // A service may say so, but it is not believed.
        response.headers_mut().insert("onceward-redacted", HeaderValue::from_static("true"));
        response
    };
    let options = choose(layer(MemoryStore::not_durable()));
    let app = Router::new().route("/charges", on_post(handler)).layer(options.build().unwrap());
    (app, ledger)
}

fn hide(outcome: &mut Outcome) -> Redaction {
    outcome.status = 299;
    outcome.body = StoredBody::Inline(b"hidden".to_vec());
    Redaction::Redacted
}

#[tokio::test]
async fn what_is_stored_is_what_the_redaction_left() {
    let (app, ledger) = telling(|options| options.redact(hide));
    let first = ask(&app, "k").await;
    assert_eq!((first.text(), first.header("onceward-redacted")), ("secret 1", None));
    assert_eq!(first.header("etag"), Some("\"e\""));
    let again = ask(&app, "k").await;
    assert!(again.is_replay());
    assert_eq!((again.status, again.text()), (first.status, "hidden"), "the status stays");
    assert_eq!((again.header("onceward-redacted"), again.header("etag")), (Some("true"), None));
    assert_eq!(again.header("x-open"), Some("1"));
    assert_eq!(ledger.len(), 1);
}

#[tokio::test]
async fn what_a_redaction_leaves_alone_is_replayed_as_it_is() {
    let (app, _) = telling(|options| options.redact(|_| Redaction::Unchanged));
    let (first, again) = (ask(&app, "k").await, ask(&app, "k").await);
    assert!(again.is_replay() && again.body == first.body);
    assert_eq!((again.header("onceward-redacted"), again.header("etag")), (None, Some("\"e\"")));
}

#[tokio::test]
async fn what_cannot_be_redacted_is_not_kept() {
    type Redact = fn(&mut Outcome) -> Redaction;
    let cases: [(Redact, Option<&str>); 2] =
        [(|_| Redaction::NotKept, Some("/charges/7")), (|_| panic!("a bug of the service"), None)];
    for (redact, location) in cases {
        let (app, ledger) = telling(|options| options.redact(redact));
        assert_eq!(ask(&app, "k").await.text(), "secret 1");
        for _ in 0..2 {
            let again = ask(&app, "k").await;
            assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "result-unavailable"));
            assert_eq!(again.header("location"), location);
        }
        assert_eq!(ledger.len(), 1);
    }
}

#[tokio::test]
async fn only_the_status_and_the_location_are_kept() {
    let (app, ledger) = telling(IdempotencyBuilder::status_only);
    assert_eq!(ask(&app, "k").await.text(), "secret 1");
    let again = ask(&app, "k").await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "result-unavailable"));
    assert_eq!(again.header("location"), Some("/charges/7"));
    assert_eq!(again.header("x-open"), None);
    assert_eq!(ledger.len(), 1);
}

/// A resolver finds the answer somewhere else, but it is stored in the same place.
#[tokio::test]
async fn what_a_resolver_finds_out_is_kept_by_the_same_rules() {
    let resolved = |choose: fn(IdempotencyBuilder) -> IdempotencyBuilder| async move {
        let options = layer(MemoryStore::not_durable()).resolver(|_| async {
            let found =
                Outcome::inline(201, b"secret".to_vec()).header("onceward-redacted", b"true");
            Ok(Some(Resolution::Applied(found)))
        });
        let layer = choose(options).build().unwrap();
        let handler = async || http::StatusCode::BAD_GATEWAY;
        let app = Router::new().route("/charges", on_post(handler)).layer(layer);
        assert_eq!(ask(&app, "k").await.status, 502);
        ask(&app, "k").await
    };
    let plain = resolved(|options| options).await;
    assert_eq!((plain.text(), plain.header("onceward-redacted")), ("secret", None));
    let hidden = resolved(|options| options.redact(hide)).await;
    assert_eq!((hidden.text(), hidden.header("onceward-redacted")), ("hidden", Some("true")));
    assert_eq!(resolved(IdempotencyBuilder::status_only).await.code(), "result-unavailable");
}

/// A replay is not shown before somebody says that it may be, and nobody is waited for without end.
#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_does_not_hold_a_replay_for_ever() {
    let hang = |options: IdempotencyBuilder| {
        options.authorize_replay(|_: &http::request::Parts| std::future::pending())
    };
    let (app, ledger) = telling(hang);
    ask(&app, "k").await;
    let start = tokio::time::Instant::now();
    assert_eq!(ask(&app, "k").await.code(), "replay-forbidden");
    assert_eq!(start.elapsed().as_secs(), Idempotency::MAX_ASKING.as_secs());

    let layer = layer(MemoryStore::not_durable()).rebuild(|_| std::future::pending());
    let handler = async || {
        let mut response = Response::new(Body::from("payment 7"));
        response.extensions_mut().insert(Resource::new("payment", "7"));
        response
    };
    let layer = layer.build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(layer);
    assert_eq!(ask(&app, "k").await.text(), "payment 7");
    assert_eq!(ask(&app, "k").await.code(), "result-unavailable");
    assert_eq!(ledger.len(), 1);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let store = MemoryStore::not_durable;
    assert!(layer(store()).max_open(1).build().is_ok());
    let none = layer(store()).max_open(0).build().unwrap_err().to_string();
    assert!(none.contains("`max_open`") && none.contains("choose 1"), "{none}");
    let rebuilt = layer(store()).status_only().rebuild(|_| async { Ok(None) });
    let refused = rebuilt.build().unwrap_err().to_string();
    assert!(refused.contains("`status_only`") && refused.contains("leave one"), "{refused}");
}
