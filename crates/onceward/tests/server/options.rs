//! The options of the layer: what is refused before it serves, limits, defaults, derived layers.

#[allow(dead_code, reason = "shared with the tests of the rules")]
#[path = "../server_rules/fixture.rs"]
mod fixture;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing::any};
use http::Method;
use onceward::{
    Effect, Engine, Key, OperationName, Profile, Sweeper,
    conformance::FaultyStore,
    protocol::Admission,
    server::{Idempotency, IdempotencyBuilder, InFlight, OptionsError},
    store::{Filter, memory::MemoryStore},
};

use fixture::{
    Fixture, HOUR, SECOND, answering, ask, get, payment, settle_down, start, text, told,
};

use crate::server_support::{Gate, layer, post, send};

const DAY: Duration = Duration::from_secs(24 * 3600);
const TEN_YEARS: Duration = Duration::from_secs(3653 * 24 * 3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const MAX_BYTES: usize = 64 << 20;

fn build(
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> Result<Idempotency, OptionsError> {
    choose(layer(MemoryStore::not_durable())).build()
}

type Choice = fn(IdempotencyBuilder) -> IdempotencyBuilder;

fn repeatable(within: Duration) -> Effect {
    Effect::Repeatable { within }
}

/// The message names the option and says what to do.
fn refused(option: &str, choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) {
    let text = match build(choose) {
        Ok(_) => panic!("{option}: it was not refused"),
        Err(error) => error.to_string(),
    };
    assert!(text.contains(option), "it names `{option}`: {text}");
    let verbs =
        ["choose", "raise", "lower", "remove", "leave", "name ", "declare", "list", "start"];
    let advises = verbs.iter().any(|verb| text.contains(verb)) || text.contains(", like ");
    assert!(advises, "it says what to do: {text}");
}

#[test]
fn times_that_do_not_fit_together_are_refused() {
    let cases: [(&str, Choice); 11] = [
        ("max_run", |options| options.lease(10 * SECOND).max_run(9 * SECOND)),
        ("max_run", |options| options.max_run(29 * SECOND)),
        ("retain", |options| options.retain(29 * SECOND)),
        ("retain", |options| options.lease(2 * HOUR).retain(HOUR)),
        ("retain", |options| options.retry_window(25 * HOUR)),
        ("retain", |options| options.retain(HOUR).retry_window(HOUR + MILLISECOND)),
        ("unknown_retain", |options| options.unknown_retain(23 * HOUR)),
        ("unknown_retain", |options| options.retain(3 * HOUR).unknown_retain(2 * HOUR)),
        ("within", |options| options.effect(repeatable(29 * SECOND))),
        ("within", |options| options.effect(repeatable(HOUR)).lease(2 * HOUR)),
        ("within", |options| options.effect(repeatable(SECOND / 2)).lease(SECOND / 4)),
    ];
    for (option, choose) in cases {
        refused(option, choose);
    }
}

#[test]
fn effects_and_profiles_that_do_not_fit_together_are_refused() {
    let cases: [(&str, Choice); 9] = [
        ("rerun", |options| options.profile(Profile::Rerun)),
        ("profile", |o| o.effect(Effect::Transactional).profile(Profile::Strict)),
        ("profile", |o| o.effect(Effect::Transactional).profile(Profile::Rerun)),
        ("hold_500", |options| options.effect(Effect::Transactional).hold_500()),
        ("not_applied", |options| options.effect(Effect::Transactional).not_applied([503])),
        ("hold_500", |options| options.profile(Profile::Stripe).hold_500()),
        ("hold_500", |options| options.effect(repeatable(HOUR)).hold_500()),
        ("hold_500", |o| o.effect(repeatable(HOUR)).profile(Profile::Rerun).hold_500()),
        ("pass_when_store_is_down", |options| {
            options.effect(Effect::Transactional).pass_when_store_is_down()
        }),
    ];
    for (option, choose) in cases {
        refused(option, choose);
    }
    let fitting: [Choice; 6] = [
        |options| options.profile(Profile::Stripe),
        |options| options.hold_500().not_applied([503]),
        |options| options.effect(repeatable(HOUR)).profile(Profile::Rerun),
        |options| options.effect(repeatable(HOUR)).profile(Profile::Strict).hold_500(),
        |options| options.effect(repeatable(HOUR)).profile(Profile::Stripe),
        |options| options.effect(Effect::Transactional),
    ];
    assert!(fitting.into_iter().all(|choose| build(choose).is_ok()));
}

#[test]
fn methods_that_change_nothing_are_refused() {
    refused("methods", |options| options.methods([]));
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT] {
        refused("methods", |options| options.methods([Method::POST, method]));
    }
    let all = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    assert!(build(|options| options.methods(all)).is_ok());
}

#[test]
fn statuses_have_limits() {
    for status in [499, 600, 0, 200] {
        refused("not_applied", |options| options.not_applied([503, status]));
    }
    assert!(build(|options| options.not_applied([500, 501, 598, 599])).is_ok());
    for status in [399, 401, 408, 410, 421, 423, 0, 500] {
        refused("mismatch_status", |options| options.mismatch_status(status));
    }
}

#[test]
fn names_have_limits() {
    for name in [String::new(), "a\nb".to_owned(), "n".repeat(OperationName::MAX_BYTES + 1)] {
        refused("operation", |options| options.operation(name));
    }
    for name in ["n".to_owned(), "n".repeat(OperationName::MAX_BYTES)] {
        assert!(build(|options| options.operation(name)).is_ok());
    }
    for path in ["", "onceward", "/", "/a/", "/{a}", "/a?b", "/a#b", "/a b"] {
        refused("status_path", |options| options.status_path(path));
    }
    for path in ["/a", "/a/b", "/.well-known/onceward"] {
        assert!(build(|options| options.status_path(path)).is_ok(), "{path}");
    }
}

/// A path that the router or a `Location` line cannot take would fail at a request, not here.
#[test]
fn a_status_path_that_cannot_be_served_is_refused() {
    for path in ["/\u{fc}", "/a\nb", "/a\u{7f}", "/a}", "/:a", "/*a"] {
        refused("status_path", |options| options.status_path(path));
    }
}

#[test]
fn header_names_are_checked() {
    for name in ["", "a b", "a\n", "\u{fc}"] {
        let named = |option: &str| build_error(option, name);
        for option in ["fingerprint_header", "keep_header", "drop_header"] {
            let text = named(option);
            assert!(text.contains(option) && text.contains("header name"), "{text}");
        }
    }
    for name in ["connection", "Transfer-Encoding", "idempotent-replayed", "Idempotency-Expires"] {
        refused("keep_header", |options| options.keep_header(name));
    }
    refused("keep_header", |options| options.keep_header("ETag").drop_header("etag"));
}

fn build_error(option: &str, name: &str) -> String {
    let chosen = build(|options| match option {
        "fingerprint_header" => options.fingerprint_header(name),
        "keep_header" => options.keep_header(name),
        _ => options.drop_header(name),
    });
    match chosen {
        Ok(_) => panic!("{option}: {name:?} was not refused"),
        Err(error) => error.to_string(),
    }
}

/// Every message says what to do, these too.
#[test]
fn a_refused_header_name_or_size_comes_with_advice() {
    refused("drop_header", |options| options.drop_header("a b"));
    refused("max_inline", |options| options.max_inline(9).max_response(8));
}

#[test]
fn sizes_have_limits() {
    type Set = fn(IdempotencyBuilder, usize) -> IdempotencyBuilder;
    let sizes: [(&str, Set); 3] = [
        ("max_request", IdempotencyBuilder::max_request),
        ("max_inline", |options, bytes| options.max_inline(bytes).max_response(MAX_BYTES)),
        ("max_response", |options, bytes| options.max_inline(1).max_response(bytes)),
    ];
    assert_eq!(Idempotency::MAX_BUFFERED, 4 * MAX_BYTES);
    for (option, set) in sizes {
        for bytes in [0, MAX_BYTES + 1, usize::MAX] {
            refused(option, |options| set(options, bytes));
        }
        for bytes in [1, MAX_BYTES - 1, MAX_BYTES] {
            assert!(build(|options| set(options, bytes)).is_ok(), "{option}: {bytes}");
        }
    }
    for (bytes, fits) in
        [(999, false), (1000, true), (4 * MAX_BYTES, true), (4 * MAX_BYTES + 1, false)]
    {
        let sizes =
            |options: IdempotencyBuilder| options.max_inline(1).max_request(10).max_response(1000);
        let built = build(|options| sizes(options).peer_memory(bytes, |_| None));
        assert_eq!(built.is_ok(), fits, "peer_memory: {bytes}");
    }
    for (inline, fits) in [(7, true), (8, true), (9, false)] {
        let built = build(|options| options.max_inline(inline).max_response(8));
        assert_eq!(built.is_ok(), fits, "{inline}");
    }
}

#[test]
fn times_have_limits() {
    type Set = fn(IdempotencyBuilder, Duration) -> IdempotencyBuilder;
    let times: [(&str, Duration, Duration, Set); 6] = [
        ("lease", 100 * MILLISECOND, DAY, IdempotencyBuilder::lease),
        ("max_run", 30 * SECOND, DAY, IdempotencyBuilder::max_run),
        ("retain", SECOND, TEN_YEARS, |o, time| o.lease(100 * MILLISECOND).retain(time)),
        ("unknown_retain", SECOND, TEN_YEARS, |o, time| {
            o.lease(100 * MILLISECOND).retain(SECOND).unknown_retain(time)
        }),
        ("within", SECOND, TEN_YEARS, |o, time| o.lease(SECOND).effect(repeatable(time))),
        ("in_flight", Duration::ZERO, 30 * SECOND, |o, time| o.in_flight(InFlight::Wait(time))),
    ];
    for (option, least, most, set) in times {
        for time in [least, least + MILLISECOND, most - MILLISECOND, most] {
            assert!(build(|options| set(options, time)).is_ok(), "{option}: {time:?}");
        }
        refused(option, |options| set(options, most + MILLISECOND));
        refused(option, |options| set(options, Duration::MAX));
        if let Some(shorter) = least.checked_sub(MILLISECOND) {
            refused(option, |options| set(options, shorter));
        }
    }
    let window = |window| build(|options| options.retain(HOUR).retry_window(window)).is_ok();
    let at = [HOUR - MILLISECOND, HOUR, HOUR + MILLISECOND, Duration::ZERO].map(window);
    assert_eq!(at, [true, true, false, true]);
    refused("retry_window", |options| options.retain(TEN_YEARS).retry_window(Duration::MAX));
}

#[tokio::test]
async fn the_defaults_are_those_of_the_architecture() {
    assert_eq!(Idempotency::MAX_WAITERS, 10_000);
    assert_eq!(Idempotency::MAX_BUFFERED, 256 << 20);
    assert_eq!(IdempotencyBuilder::MAX_WAIT, 30 * SECOND);
    assert_eq!((Engine::MAX_UNSETTLED, Sweeper::BATCH), (10_000, 1000));
    assert_eq!((Key::MAX_BYTES, Admission::MAX_SWAPS, Filter::MAX_PAGE), (255, 3, 500));
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let capabilities = send(&app, get("/.onceward/capabilities")).await.json();
    let expected = serde_json::json!({"routes": [{
        "name": null, "methods": ["POST", "PATCH"], "key": "optional", "effect": "external",
        "tier": "T3", "lease_ms": 30_000, "retain_ms": 86_400_000, "on_store_down": "refuse",
    }]});
    assert_eq!(capabilities, expected);
}

#[tokio::test]
async fn the_default_sizes_are_those_of_the_architecture() {
    let kilobytes = 64 << 10;
    for (length, kept) in [(kilobytes - 1, true), (kilobytes, true), (kilobytes + 1, false)] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| text(201, vec![0; length])));
        assert_eq!(send(&app, payment()).await.body.len(), length);
        assert_eq!(send(&app, payment()).await.is_replay(), kept, "{length} bytes inline");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

/// A third of the lease after the claim, and not before; `max_run` is ten minutes.
#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_first_at_a_third_of_its_lease() {
    let before = tokio::time::Instant::now();
    let waits = [10 * SECOND - MILLISECOND, 2 * MILLISECOND, 10 * SECOND];
    let (swaps, answer) = swaps_after(waits, |options| options).await;
    assert_eq!(swaps, [1, 2, 3], "the claim, then a renewal every ten seconds");
    assert_eq!(answer, "504 outcome-unknown");
    assert!((600 * SECOND..601 * SECOND).contains(&before.elapsed()), "{:?}", before.elapsed());
}

/// A renewal would be in the way of the transaction that ends the record.
#[tokio::test(start_paused = true)]
async fn a_transactional_claim_is_renewed_late() {
    let waits = [40 * SECOND - MILLISECOND, 2 * MILLISECOND, 40 * SECOND];
    let (swaps, answer) =
        swaps_after(waits, |options| options.effect(Effect::Transactional).lease(60 * SECOND))
            .await;
    assert_eq!(swaps, [1, 2, 3], "the claim, then a renewal after two thirds of each lease");
    assert_eq!(answer, "504 upstream-failed", "it was not committed, so that nothing happened");
}

/// How many swaps there were after each wait, and what the client of the hanging service was told.
async fn swaps_after(
    waits: [Duration; 3],
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> ([u32; 3], String) {
    let store = FaultyStore::new(Arc::new(MemoryStore::not_durable()), None);
    let gate = Gate::closed();
    let service = any({
        let gate = gate.clone();
        async move || gate.pass().await
    });
    let layer = choose(layer(store.clone())).build().unwrap();
    let app = Router::new().route("/pay", service).layer(layer);
    let running = start(&app, payment());
    gate.reached().await;
    let mut swaps = [0; 3];
    for (wait, swaps) in waits.into_iter().zip(&mut swaps) {
        tokio::time::sleep(wait).await;
        *swaps = store.swaps();
    }
    (swaps, told(&running.await.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_derived_layer_shares_engine_and_waiters() {
    let (fixture, gate) = (Fixture::new(|options| options.operation("pay")), Gate::closed());
    let app = fixture.gated(&gate);
    let waiting = |options: IdempotencyBuilder| options.in_flight(InFlight::Wait(20 * SECOND));
    let derived = fixture.idempotency.with(waiting).unwrap();
    let service = answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
    let other_app = Router::new().route("/pay", service).layer(derived.clone());
    let running = start(&app, payment());
    gate.reached().await;
    assert_eq!(derived.engine().unsettled(), 1, "the execution of the other layer");
    assert_eq!(ask(&app, payment()).await, "409 in-progress", "the first layer is as it was");
    let waiter = start(&other_app, payment());
    tokio::time::sleep(10 * SECOND + Duration::from_micros(77)).await;
    let before = tokio::time::Instant::now();
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
    assert_eq!(told(&waiter.await.unwrap()), "201 receipt 1 replayed");
    assert_eq!(before.elapsed(), Duration::ZERO, "woken by the other layer's settlement");
    derived.engine().drain(SECOND).await;
    assert_eq!(ask(&app, post("/pay", "new", "")).await, "503 overloaded", "drained together");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_derived_layer_inherits_what_it_does_not_change() {
    let asked = Arc::new(AtomicUsize::new(0));
    let asking = asked.clone();
    let fixture = Fixture::new(|options| {
        options.require_key().operation("pay").mismatch_status(409).resolver(move |_| {
            asking.fetch_add(1, Ordering::SeqCst);
            async { Ok(None) }
        })
    });
    let derived = fixture.idempotency.with(|options| options.retain(HOUR)).unwrap();
    let apps = [fixture.idempotency.clone(), derived].map(|layer| {
        Router::new().route("/pay", answering(&fixture.ledger, |_| text(502, ""))).layer(layer)
    });
    send(&apps[0], payment()).await;
    for app in &apps {
        assert_eq!(ask(app, payment()).await, "409 outcome-unknown");
        assert_eq!(ask(app, post("/pay", fixture::KEY, "other")).await, "409 key-reused");
        let keyless = http::Request::post("/pay").body(axum::body::Body::empty()).unwrap();
        assert_eq!(ask(app, keyless).await, "400 key-missing");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "once in five seconds, whoever asks");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_derived_layer_is_checked_as_a_whole_too() {
    let fixture = Fixture::new(|options| options.lease(HOUR));
    let refused = fixture.idempotency.with(|options| options.max_run(SECOND));
    assert!(refused.is_err_and(|error| error.to_string().contains("max_run")));
    assert_eq!(ask(&fixture.paying(), payment()).await, "201 receipt 1", "the first is as it was");
    settle_down().await;
    assert_eq!(fixture.idempotency.engine().unsettled(), 0);
}
