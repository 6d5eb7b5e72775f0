//! Rule 9: duplicates while the first request is running.

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::any};
use onceward::{
    Scope,
    conformance::FaultyStore,
    server::{Idempotency, IdempotencyBuilder, InFlight},
    store::memory::MemoryStore,
};
use tokio::time::Instant;

use crate::{
    fixture::{
        Fixture, SECOND, ask, get, operation_of, payment, preferring, settle_down, start,
        status_of, text, told,
    },
    server_support::{Gate, Ledger, Reply, layer, send},
};

/// 202 with the status URL, and nothing that looks like the end.
fn is_accepted(reply: &Reply) {
    assert_eq!(reply.status, 202);
    let reference = operation_of(reply).unwrap();
    let url = format!("/.onceward/operations/{reference}");
    assert_eq!(reply.header("location"), Some(url.as_str()));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.json()["operation"], reference);
    for name in ["idempotent-replayed", "idempotency-completed", "idempotency-expires"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
}

/// What a user gets who says nothing about it.
fn by_default() -> Fixture {
    let fixture = Fixture::new(|options| options);
    let scope = |_: &_| Ok::<_, &str>(Scope::global());
    let idempotency = Idempotency::builder(fixture.store.clone(), scope).build().unwrap();
    Fixture { idempotency, ..fixture }
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_duplicate_waits_for_five_seconds_if_not_said_otherwise() {
    let (fixture, gate) = (by_default(), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    let before = Instant::now();
    let busy = send(&app, payment()).await;
    assert_eq!((told(&busy).as_str(), busy.header("retry-after")), ("409 in-progress", Some("1")));
    let waited = before.elapsed();
    assert!((5 * SECOND..SECOND * 51 / 10).contains(&waited), "{waited:?}");
    let waiter = start(&app, payment());
    tokio::time::sleep(4 * SECOND).await;
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
    assert_eq!(told(&waiter.await.unwrap()), "201 receipt 1 replayed");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_09_accepted_tells_duplicates_where_to_ask_while_the_first_gets_its_answer() {
    let fixture = Fixture::new(|options| options.in_flight(InFlight::Accepted));
    let gate = Gate::closed();
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    for (request, wait) in
        [(payment(), 0), (preferring("wait=2"), 2), (preferring("respond-async"), 0)]
    {
        let before = Instant::now();
        is_accepted(&send(&app, request).await);
        let (waited, expected) = (before.elapsed(), SECOND * wait);
        assert!((expected..expected + SECOND / 100).contains(&waited), "{wait}: {waited:?}");
    }
    assert!(!running.is_finished(), "the first caller waits for its answer");
    gate.open();
    let first = running.await.unwrap();
    assert_eq!((told(&first).as_str(), first.is_replay()), ("201 receipt 1", false));
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_duplicate_is_told_to_come_back_in_a_second() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    let before = Instant::now();
    let busy = send(&app, payment()).await;
    assert_eq!((told(&busy).as_str(), busy.header("retry-after")), ("409 in-progress", Some("1")));
    assert_eq!(before.elapsed(), Duration::ZERO);
    gate.open();
    let first = running.await.unwrap();
    assert_eq!(told(&first), "201 receipt 1");
    assert_eq!(operation_of(&busy), operation_of(&first));
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_route_or_a_request_may_wait_for_the_answer() {
    let route = Fixture::new(|options| options.in_flight(InFlight::Wait(5 * SECOND)));
    let request = Fixture::new(|options| options);
    for (fixture, duplicate) in [(route, payment as fn() -> _), (request, || preferring("wait=5"))]
    {
        let gate = Gate::closed();
        let app = fixture.gated(&gate);
        let running = start(&app, payment());
        gate.reached().await;
        let waiters: Vec<_> = (0..20).map(|_| start(&app, duplicate())).collect();
        tokio::time::sleep(4 * SECOND).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        let before = Instant::now();
        gate.open();
        let first = running.await.unwrap();
        assert_eq!(told(&first), "201 receipt 1");
        for waiter in waiters {
            let reply = waiter.await.unwrap();
            assert_eq!(told(&reply), "201 receipt 1 replayed");
            assert_eq!(reply.headers["idempotency-expires"], first.headers["idempotency-expires"]);
        }
        assert_eq!(before.elapsed(), Duration::ZERO, "they are woken, not left to ask");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_09_waiting_is_bounded() {
    for (in_flight, preference, wait) in [
        (InFlight::Conflict, "wait=2", 2),
        (InFlight::Conflict, "wait=99999", 30),
        (InFlight::Wait(3 * SECOND), "", 3),
        (InFlight::Wait(3 * SECOND), "wait=1", 1),
        (InFlight::Wait(3 * SECOND), "wait=0", 0),
        (InFlight::Wait(30 * SECOND), "", 30),
    ] {
        let (fixture, gate) =
            (Fixture::new(|options| options.in_flight(in_flight)), Gate::closed());
        let app = fixture.gated(&gate);
        let running = start(&app, payment());
        gate.reached().await;
        let before = Instant::now();
        let reply = send(&app, preferring(preference)).await;
        assert_eq!(told(&reply), "409 in-progress", "{in_flight:?} {preference}");
        assert_eq!(reply.header("retry-after"), Some("1"));
        let waited = before.elapsed();
        let expected = SECOND * wait;
        assert!((expected..expected + SECOND / 100).contains(&waited), "{wait}: {waited:?}");
        gate.open();
        assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_route_may_ignore_what_requests_prefer() {
    let fixture = Fixture::new(IdempotencyBuilder::ignore_prefer);
    let gate = Gate::closed();
    let app = fixture.gated(&gate);
    let running = start(&app, preferring("respond-async"));
    gate.reached().await;
    for preference in ["wait=10", "respond-async"] {
        let before = Instant::now();
        assert_eq!(ask(&app, preferring(preference)).await, "409 in-progress");
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
    assert!(!running.is_finished());
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
}

#[tokio::test(start_paused = true)]
async fn rule_09_whoever_would_rather_be_told_later_gets_202_and_the_status_url() {
    let by_request = Fixture::new(|options| options);
    let by_route = Fixture::new(|options| options.in_flight(InFlight::Async));
    let ways: [(Fixture, fn() -> _); 2] =
        [(by_request, || preferring("respond-async")), (by_route, payment)];
    for (fixture, request) in ways {
        let gate = Gate::closed();
        let app = fixture.gated(&gate);
        let first = send(&app, request()).await;
        is_accepted(&first);
        assert_eq!(status_of(&app, &first).await["state"], "in_progress", "the record came first");
        gate.reached().await;
        let duplicate = send(&app, request()).await;
        is_accepted(&duplicate);
        assert_eq!(operation_of(&duplicate), operation_of(&first));
        gate.open();
        settle_down().await;
        let status = send(&app, get(first.header("location").unwrap())).await.json();
        assert_eq!((&status["state"], &status["status"]), (&"succeeded".into(), &201.into()));
        assert_eq!(ask(&app, request()).await, "201 receipt 1 replayed");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_09_an_answer_in_time_is_better_than_202() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let patient = || preferring("respond-async, wait=1");
    gate.open();
    assert_eq!(ask(&app, patient()).await, "201 receipt 1", "it ended within the second");
    assert_eq!(ask(&app, patient()).await, "201 receipt 1 replayed");

    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    for _ in 0..2 {
        let before = Instant::now();
        is_accepted(&send(&app, patient()).await);
        assert!((SECOND..SECOND * 11 / 10).contains(&before.elapsed()), "{:?}", before.elapsed());
    }
    gate.open();
    settle_down().await;
    assert_eq!(ask(&app, patient()).await, "201 receipt 1 replayed");
    assert_eq!(fixture.ledger.len(), 1);
}

/// The first run is turned away; whoever waits becomes the runner.
fn turned_away_first(fixture: &Fixture, gate: &Gate) -> Router {
    let (ledger, gate) = (fixture.ledger.clone(), gate.clone());
    fixture.app(any(async move || {
        let number = ledger.add("pay");
        gate.pass().await;
        if number == 1 { text(429, "slow down") } else { text(201, format!("receipt {number}")) }
    }))
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_waiter_becomes_the_runner_when_the_key_is_released() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = turned_away_first(&fixture, &gate);
    let first = start(&app, payment());
    gate.reached().await;
    let waiters: Vec<_> = (0..5).map(|_| start(&app, preferring("wait=20"))).collect();
    settle_down().await;
    gate.open();
    assert_eq!(told(&first.await.unwrap()), "429 slow down");
    gate.reached().await;
    gate.open();
    let mut answers = Vec::new();
    for waiter in waiters {
        answers.push(told(&waiter.await.unwrap()));
    }
    answers.sort();
    assert_eq!(answers[0], "201 receipt 2", "one of them ran");
    assert!(answers[1..].iter().all(|answer| answer == "201 receipt 2 replayed"), "{answers:?}");
    assert_eq!(fixture.ledger.len(), 2);
}

/// `wait=5` is counted from when the request came, also for a waiter who becomes the runner.
#[tokio::test(start_paused = true)]
async fn rule_09_a_waiter_who_becomes_the_runner_has_waited_already() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = turned_away_first(&fixture, &gate);
    let first = start(&app, payment());
    gate.reached().await;
    let before = Instant::now();
    let waiter = start(&app, preferring("respond-async, wait=5"));
    tokio::time::sleep(4 * SECOND).await;
    gate.open();
    assert_eq!(told(&first.await.unwrap()), "429 slow down");
    is_accepted(&waiter.await.unwrap());
    let waited = before.elapsed();
    assert!((5 * SECOND..SECOND * 55 / 10).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn rule_09_waiters_get_only_what_is_durable() {
    let store = FaultyStore::new(Arc::new(MemoryStore::not_durable()), None);
    let (ledger, gate) = (Ledger::default(), Gate::closed());
    let idempotency = layer(store.clone()).build().unwrap();
    let app = Router::new().route(
        "/pay",
        any({
            let (ledger, gate) = (ledger.clone(), gate.clone());
            async move || {
                let number = ledger.add("pay");
                gate.pass().await;
                text(201, format!("receipt {number}"))
            }
        }),
    );
    let app = app.layer(idempotency);
    let first = start(&app, payment());
    gate.reached().await;
    let waiter = start(&app, preferring("wait=20"));
    settle_down().await;
    store.set_down(true);
    gate.open();
    let first = first.await.unwrap();
    assert_eq!(told(&first), "503 outcome-unknown", "it has run, but that is not durable");
    assert_eq!(first.header("retry-after"), Some("1"));
    tokio::time::sleep(2 * SECOND).await;
    assert!(!waiter.is_finished(), "there is nothing durable to tell");
    store.set_down(false);
    assert_eq!(told(&waiter.await.unwrap()), "201 receipt 1 replayed");
    assert_eq!(ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_09_odd_preferences_are_no_preferences() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    for preference in [
        "",
        ",",
        ";",
        "=",
        "wait",
        "wait=",
        "wait=-1",
        "wait=1e3",
        "wait=99999999999999999999999",
        "wait=soon",
        "wait=\"",
        "waiting=5",
        "respond-asynchronously",
        "return=minimal",
        "x;wait=5",
        "\u{fc}",
    ] {
        let before = Instant::now();
        assert_eq!(ask(&app, preferring(preference)).await, "409 in-progress", "{preference}");
        assert_eq!(before.elapsed(), Duration::ZERO, "{preference}");
    }
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
}

/// RFC 7240: the value of a preference may be a quoted string.
#[tokio::test(start_paused = true)]
async fn rule_09_a_preference_inside_a_quoted_string_is_none() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    for preference in ["note=\"so, wait=5, please\"", "note=\"so, respond-async\""] {
        let before = Instant::now();
        assert_eq!(ask(&app, preferring(preference)).await, "409 in-progress", "{preference}");
        assert_eq!(before.elapsed(), Duration::ZERO, "{preference}");
    }
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
}
