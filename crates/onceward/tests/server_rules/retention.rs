//! Rules 20 to 22 and 30: how long things are kept, and what happens while the store is down or its clock wrong.

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::any};
use http::Request;
use onceward::{
    Digest, Engine, Store, StoreError,
    conformance::FaultyStore,
    protocol::{Found, Ttl},
    server::{Claim, IdempotencyBuilder},
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
    telemetry,
};

use crate::{
    fixture::{
        Fixture, HOUR, KEY, SECOND, answering, ask, get, payment, start, status_of, text, told,
    },
    server_support::{Gate, Ledger, layer, post, send},
};

#[tokio::test(start_paused = true)]
async fn rule_20_the_lease_is_renewed_while_the_handler_runs() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    // 30 s each, for 9 min: time by tokio and by the store pass together.
    for _ in 0..9 * 60 / 5 {
        fixture.clock.advance(5 * SECOND);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(ask(&app, payment()).await, "409 in-progress");
    }
    gate.open();
    assert_eq!(told(&running.await.unwrap()), "201 receipt 1");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_20_after_max_run_the_client_is_told_that_nobody_knows() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let before = tokio::time::Instant::now();
    let first = send(&app, payment()).await;
    assert_eq!(told(&first), "504 outcome-unknown");
    assert_eq!(before.elapsed(), 600 * SECOND);
    assert_eq!(fixture.idempotency.engine().unsettled(), 1, "it still runs");
    gate.open();
    crate::fixture::settle_down().await;
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    assert_eq!(fixture.idempotency.engine().unsettled(), 0);
}

#[tokio::test]
async fn rule_20_an_answer_is_kept_for_a_day_from_its_end() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let first = send(&app, payment()).await;
    assert_eq!(fixture.record(&first).await.record.ttl, Ttl::For(24 * HOUR));
    fixture.clock.advance(24 * HOUR - Duration::from_micros(1));
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    fixture.clock.advance(Duration::from_micros(1));
    assert_eq!(ask(&app, payment()).await, "201 receipt 2");
    assert_eq!(fixture.ledger.len(), 2);
}

#[tokio::test]
async fn rule_20_an_unknown_outcome_expires_only_if_that_is_chosen() {
    for chosen in [false, true] {
        let fixture = Fixture::new(|options| match chosen {
            true => options.unknown_retain(48 * HOUR),
            false => options,
        });
        let app = fixture.app(answering(&fixture.ledger, |_| text(502, "secret")));
        let first = send(&app, payment()).await;
        fixture.clock.advance(48 * HOUR - SECOND);
        assert_eq!(ask(&app, payment()).await, "409 outcome-unknown");
        fixture.clock.advance(SECOND);
        let expected = if chosen { "502 secret" } else { "409 outcome-unknown" };
        assert_eq!(ask(&app, payment()).await, expected);
        assert_eq!(fixture.ledger.len(), if chosen { 2 } else { 1 });
        assert_eq!(fixture.record(&first).await.record.state, onceward::State::Unknown, "no body");
    }
}

#[tokio::test]
async fn rule_21_expired_is_absent_whether_swept_or_not() {
    for swept in [false, true] {
        let fixture = Fixture::new(|options| options.retain(HOUR));
        let app = fixture.paying();
        let first = send(&app, payment()).await;
        fixture.clock.advance(3 * HOUR);
        if swept {
            assert_eq!(fixture.store.sweep(10).await.unwrap(), 1);
        }
        let path = format!("/.onceward/operations/{}", first.header("onceward-operation").unwrap());
        assert_eq!(ask(&app, get(&path)).await, "404 operation-not-found");
        assert_eq!(ask(&app, post("/pay", KEY, "another")).await, "201 receipt 2");
        let status = status_of(&app, &first).await;
        assert_eq!((&status["attempt"], &status["state"]), (&1.into(), &"succeeded".into()));
    }
}

#[tokio::test]
async fn rule_30_what_only_a_jump_of_the_clock_lets_expire_is_refused() {
    const TWO_DAYS: i64 = 48 * 3600 * 1_000_000;
    for trusted in [false, true] {
        // Failing open is for stores that do not answer; this one says that it may have run.
        let fixture = Fixture::new(IdempotencyBuilder::pass_when_store_is_down);
        let app = fixture.paying();
        let first = send(&app, payment()).await;
        fixture.clock.jump_micros(TWO_DAYS);
        for body in ["{\"cents\": 500}", "another"] {
            let refused = send(&app, post("/pay", KEY, body)).await;
            assert_eq!(told(&refused), "503 clock-suspect");
            assert_eq!(refused.header("retry-after"), Some("10"));
        }
        assert_eq!(status_of(&app, &first).await["state"], "clock_suspect");
        let running = async || ask(&app, post("/pay", "a-new-key", "{}")).await;
        assert_eq!(running().await, "201 receipt 2", "what is new runs");
        assert_eq!(running().await, "201 receipt 2 replayed", "and is kept from now on");
        match trusted {
            true => assert!(fixture.store.trust_clock().is_some()),
            false => fixture.clock.jump_micros(-TWO_DAYS),
        }
        let expected = if trusted { "201 receipt 3" } else { "201 receipt 1 replayed" };
        assert_eq!(ask(&app, payment()).await, expected);
    }
}

/// A key made so long before the clock of the store started.
fn key_made_before(age: Duration) -> String {
    let made = Duration::from_secs(1_700_000_000) - age;
    let time = uuid::Timestamp::from_unix(uuid::NoContext, made.as_secs(), made.subsec_nanos());
    uuid::Uuid::new_v7(time).to_string()
}

#[tokio::test]
async fn rule_21_a_key_that_is_older_than_the_retention_does_not_run() {
    let refusing = |options: IdempotencyBuilder| options.retain(HOUR).refuse_stale_keys();
    let millisecond = Duration::from_millis(1);
    for (age, refused) in [
        (Duration::ZERO, false),
        (HOUR - millisecond, false),
        (HOUR, false),
        (HOUR + millisecond, true),
        (10_000 * HOUR, true),
    ] {
        let fixture = Fixture::new(refusing);
        let app = fixture.paying();
        let key = key_made_before(age);
        for form in [key.clone(), format!("\"{key}\""), key.to_uppercase()] {
            let told = ask(&app, post("/pay", &form, "{}")).await;
            assert_eq!(told == "400 key-expired", refused, "{age:?}: {told}");
        }
        assert_eq!(
            fixture.ledger.len(),
            if refused { 0 } else { 2 },
            "two keys: one is upper case"
        );
    }
}

#[tokio::test]
async fn rule_21_a_stale_key_still_gets_the_answer_that_is_kept() {
    let fixture = Fixture::new(|options| options.retain(HOUR).refuse_stale_keys());
    let app = fixture.paying();
    let key = key_made_before(HOUR - SECOND);
    let request = || post("/pay", &key, "{}");
    assert_eq!(ask(&app, request()).await, "201 receipt 1");
    fixture.clock.advance(HOUR / 2);
    assert_eq!(ask(&app, request()).await, "201 receipt 1 replayed", "it is old but remembered");
    fixture.clock.advance(HOUR / 2);
    assert_eq!(ask(&app, request()).await, "400 key-expired", "it ran and was forgotten");
    assert_eq!(ask(&app, request()).await, "400 key-expired");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_21_keys_that_tell_no_age_run_and_so_do_all_if_not_chosen() {
    let fixture = Fixture::new(|options| options.retain(HOUR).refuse_stale_keys());
    let app = fixture.paying();
    let made_before = key_made_before(9000 * HOUR);
    let version_4 = made_before.replacen("-7", "-4", 1);
    let keys = [version_4.as_str(), "order-17", "018bcfe5", "8e03978e-40d5-43e8-bc93-6894a57f9324"];
    for (number, key) in (1..).zip(keys) {
        assert_eq!(ask(&app, post("/pay", key, "{}")).await, format!("201 receipt {number}"));
    }
    let fixture = Fixture::new(|options| options.retain(HOUR));
    assert_eq!(ask(&fixture.paying(), post("/pay", &made_before, "{}")).await, "201 receipt 1");
}

/// A store whose every call fails while it is down, reads too.
#[derive(Clone)]
struct Down(FaultyStore<Arc<MemoryStore>>, Arc<std::sync::atomic::AtomicBool>);

impl Down {
    fn new() -> Self {
        let inner = FaultyStore::new(Arc::new(MemoryStore::not_durable()), None);
        Self(inner, Arc::default())
    }

    fn set_down(&self, down: bool) {
        self.0.set_down(down);
        self.1.store(down, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Store for Down {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        self.0.swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        match self.1.load(std::sync::atomic::Ordering::SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("no route (injected)".into())) }),
            false => self.0.get(id),
        }
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.0.sweep(limit)
    }
}

/// A service on a store that can go down; the handler takes whatever claim there is.
fn on(
    store: &Down,
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> (Router, Ledger) {
    let (ledger, idempotency) = (Ledger::default(), choose(layer(store.clone())).build().unwrap());
    let service = any({
        let ledger = ledger.clone();
        async move |claim: Option<Claim>| {
            let number = ledger.add("pay");
            text(201, format!("receipt {number}, claimed: {}", claim.is_some()))
        }
    });
    let app = Router::new().route("/pay", service).layer(idempotency.clone());
    (app.merge(idempotency.status_routes()), ledger)
}

#[tokio::test(start_paused = true)]
async fn rule_22_nothing_runs_while_the_store_is_down() {
    let store = Down::new();
    let (app, ledger) = on(&store, |options| options);
    store.set_down(true);
    for _ in 0..3 {
        let reply = send(&app, payment()).await;
        assert_eq!(told(&reply), "503 store-unavailable");
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(reply.header("onceward-unprotected"), None);
    }
    let status = send(&app, get(&format!("/.onceward/operations/{}", "A".repeat(43)))).await;
    assert_eq!(told(&status), "503 store-unavailable");
    assert_eq!(status.header("retry-after"), Some("1"));
    assert_eq!(ledger.len(), 0);
    let keyless = Request::post("/pay").body(axum::body::Body::empty()).unwrap();
    assert_eq!(ask(&app, keyless).await, "201 receipt 1, claimed: false", "it needs no store");
    store.set_down(false);
    assert_eq!(ask(&app, payment()).await, "201 receipt 2, claimed: true");
    assert_eq!(ask(&app, payment()).await, "201 receipt 2, claimed: true replayed");
    assert_eq!(ledger.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rule_22_a_route_may_fail_open_marked_and_counted() {
    let store = Down::new();
    let (app, ledger) = on(&store, IdempotencyBuilder::pass_when_store_is_down);
    let reply = send(&app, payment()).await;
    assert_eq!(reply.header("onceward-unprotected"), None, "the store is up");
    store.set_down(true);
    let alarms = telemetry::UNPROTECTED.count();
    for number in 2..=3 {
        let reply = send(&app, payment()).await;
        assert_eq!(told(&reply), format!("201 receipt {number}, claimed: false"));
        assert_eq!(reply.header("onceward-unprotected"), Some("store-unavailable"));
        assert_eq!(reply.header("idempotency-expires"), None, "nothing is kept");
    }
    assert_eq!(telemetry::UNPROTECTED.count(), alarms + 2);
    assert_eq!(ledger.len(), 3);
}

/// It has sent a key: whoever says that it is missing makes the client send a new one.
#[tokio::test(start_paused = true)]
async fn rule_22_a_handler_that_needs_a_claim_is_not_told_that_the_key_is_missing() {
    let store = Down::new();
    let idempotency = layer(store.clone()).pass_when_store_is_down().build().unwrap();
    let service = any(async |_: Claim| text(201, "claimed"));
    let app = Router::new().route("/pay", service).layer(idempotency);
    store.set_down(true);
    assert_eq!(ask(&app, payment()).await, "503 store-unavailable");
}

#[tokio::test]
async fn rule_22_too_much_going_on_or_shutting_down_refuses_with_503() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let engine = fixture.idempotency.engine();
    let running: Vec<_> = (0..Engine::MAX_UNSETTLED).map(|_| engine.track()).collect();
    let reply = send(&app, payment()).await;
    assert_eq!((told(&reply).as_str(), reply.header("retry-after")), ("503 overloaded", Some("1")));
    assert_eq!(fixture.ledger.len(), 0);
    drop(running);
    assert_eq!(ask(&app, payment()).await, "201 receipt 1");
    engine.drain(SECOND).await;
    let reply = send(&app, payment()).await;
    assert_eq!((told(&reply).as_str(), reply.header("retry-after")), ("503 overloaded", Some("1")));
    assert_eq!(fixture.ledger.len(), 1);
}
