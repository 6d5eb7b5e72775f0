//! Rule 15: an outcome that nobody knows, and how it becomes known.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Bytes, routing::any};
use onceward::{
    BoxError, Digest, Effect, Outcome, Resolution, State, Terms,
    engine::RepairRequest,
    protocol::{Force, StoredBody},
    server::{Claim, Idempotency, IdempotencyBuilder, Resource, Unresolved},
};

use crate::{
    fixture::{
        Fixture, HOUR, KEY, SECOND, answering, ask, get, operation_of, payment, start, status_of,
        text, told,
    },
    server_support::{Gate, post, send},
};

const SHORT: Duration = Duration::from_millis(100);

fn short(options: IdempotencyBuilder) -> IdempotencyBuilder {
    options.lease(SHORT).max_run(SHORT)
}

/// Does it, but the answer gets lost the first time.
fn losing(fixture: &Fixture) -> Router {
    fixture.app(answering(&fixture.ledger, |number| match number {
        1 => text(502, "bad gateway"),
        _ => text(201, format!("receipt {number}")),
    }))
}

fn found(status: u16) -> Resolution {
    Resolution::Applied(Outcome::inline(status, b"found".to_vec()).header("x-found", b"1"))
}

#[tokio::test(start_paused = true)]
async fn rule_15_an_unknown_outcome_is_never_run_again_by_itself() {
    let fixture = Fixture::new(|options| options);
    let app = losing(&fixture);
    let first = send(&app, payment()).await;
    assert_eq!(told(&first), "502 bad gateway");
    let url = format!("/.onceward/operations/{}", operation_of(&first).unwrap());
    for wait in [SECOND, HOUR, 24 * HOUR, 20_000 * HOUR] {
        fixture.clock.advance(wait);
        let reply = send(&app, payment()).await;
        assert_eq!(told(&reply), "409 outcome-unknown");
        assert_eq!(reply.header("location"), Some(url.as_str()));
        assert_eq!(reply.header("retry-after"), None, "nothing becomes of it by itself");
    }
    assert_eq!(status_of(&app, &first).await["state"], "unknown");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_15_what_a_resolver_found_is_replayed() {
    for status in [201, 402] {
        let fixture = Fixture::new(|options| {
            options.resolver(move |_| async move { Ok(Some(found(status))) })
        });
        let app = losing(&fixture);
        let first = send(&app, payment()).await;
        fixture.clock.advance(HOUR);
        for _ in 0..2 {
            let reply = send(&app, payment()).await;
            assert_eq!(told(&reply), format!("{status} found replayed"));
            assert_eq!(reply.header("x-found"), Some("1"));
            assert!(reply.header("idempotency-expires").is_some());
        }
        let state = if status == 201 { "succeeded" } else { "failed_final" };
        assert_eq!(status_of(&app, &first).await["state"], state);
        assert_eq!(fixture.ledger.len(), 1);
    }
}

/// As other answers, what a resolver found counts towards the memory, and a large one is beside its record.
#[tokio::test(start_paused = true)]
async fn rule_15_a_large_answer_that_a_resolver_found_is_spooled() {
    let large = "found".repeat(200);
    let found = Resolution::Applied(Outcome::inline(201, large.clone().into_bytes()));
    let resolver = move |_| {
        let found = found.clone();
        async { Ok(Some(found)) }
    };
    let fixture = Fixture::new(|options| options);
    let spool = fixture.store.clone();
    let idempotency = fixture.idempotency.clone();
    let change =
        |options: IdempotencyBuilder| options.resolver(resolver).spool(spool).max_inline(4);
    let fixture = Fixture { idempotency: idempotency.with(change).unwrap(), ..fixture };
    let app = losing(&fixture);
    let first = send(&app, payment()).await;
    fixture.clock.advance(HOUR);
    let mut held = fixture.idempotency.memory_of(None).nothing();
    assert!(held.grow_to(Idempotency::MAX_BUFFERED - 500));
    assert_eq!(told(&send(&app, payment()).await), "409 outcome-unknown");
    drop(held);
    tokio::time::sleep(5 * SECOND).await;
    let again = send(&app, payment()).await;
    assert!(again.is_replay() && again.text() == large, "{again:?}");
    let body = match fixture.record(&first).await.record.state {
        State::Succeeded(outcome) => outcome.body,
        state => panic!("{state:?}"),
    };
    assert!(matches!(body, StoredBody::Spooled { length: 1000, .. }), "{body:?}");
}

#[tokio::test(start_paused = true)]
async fn rule_15_a_resolver_is_told_which_operation_it_is() {
    type Seen = (Unresolved, Option<String>);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let seeing = seen.clone();
    let fixture = Fixture::new(|options| {
        options.resolver(move |unresolved: Unresolved| {
            let key = unresolved.key_for("card.charge").map(|key| key.as_str().to_owned());
            seeing.lock().unwrap().push((unresolved, key));
            async { Ok(None) }
        })
    });
    let claims: Arc<Mutex<Vec<Claim>>> = Arc::default();
    let claiming = claims.clone();
    let app = fixture.app(any(async move |claim: Claim| {
        claiming.lock().unwrap().push(claim);
        text(502, "")
    }));
    let first = send(&app, payment()).await;
    let reference = operation_of(&first).unwrap();
    for path in ["", "status", "status by key"] {
        match path {
            "" => assert_eq!(ask(&app, payment()).await, "409 outcome-unknown"),
            "status" => assert_eq!(status_of(&app, &first).await["state"], "unknown"),
            _ => {
                let path = format!("/.onceward/operations?operation=POST+/pay&key={KEY}");
                assert_eq!(send(&app, get(&path)).await.json()["operation"], reference);
            }
        }
        tokio::time::sleep(5 * SECOND).await;
    }
    let (claims, seen) = (claims.lock().unwrap(), seen.lock().unwrap());
    assert_eq!((claims.len(), seen.len()), (1, 3));
    let (claim, key) = (&claims[0], claims[0].key_for("card.charge"));
    for (index, (unresolved, their_key)) in seen.iter().enumerate() {
        assert_eq!(unresolved.reference(), claim.id());
        assert_eq!(unresolved.execution(), claim.execution());
        assert_eq!(unresolved.scope(), claim.operation().scope());
        assert_eq!(unresolved.name().as_str(), "POST /pay");
        assert_eq!((unresolved.attempt(), unresolved.started_at()), (1, claim.started_at()));
        let knows_the_key = index != 1;
        assert_eq!(their_key.as_deref(), knows_the_key.then_some(key.as_str()), "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_15_never_frees_the_key_but_not_too_early() {
    let fixture =
        Fixture::new(|options| short(options).resolver(|_| async { Ok(Some(Resolution::Never)) }));
    let app = losing(&fixture);
    let first = send(&app, payment()).await;
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown", "it may still happen");
    tokio::time::sleep(5 * SECOND).await;
    fixture.clock.advance(2 * SHORT - Duration::from_micros(1));
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown", "max_run and a lease");
    assert_eq!(status_of(&app, &first).await["state"], "unknown");
    fixture.clock.advance(Duration::from_micros(1));
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown", "it was asked just now");
    assert_eq!(fixture.ledger.len(), 1);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(ask(&app, payment()).await, "201 receipt 2");
    assert_eq!(ask(&app, payment()).await, "201 receipt 2 replayed");
    assert_eq!(fixture.ledger.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rule_15_one_operation_is_asked_about_once_in_five_seconds() {
    let asked = Arc::new(AtomicUsize::new(0));
    let asking = asked.clone();
    let fixture = Fixture::new(|options| {
        options.resolver(move |_| {
            asking.fetch_add(1, Ordering::SeqCst);
            async { Ok(None) }
        })
    });
    let app = fixture.app(answering(&fixture.ledger, |_| text(502, "")));
    let first = send(&app, payment()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    for _ in 0..5 {
        assert_eq!(ask(&app, payment()).await, "409 outcome-unknown");
        assert_eq!(status_of(&app, &first).await["state"], "unknown");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let other = || post("/pay", "another", "{}");
    send(&app, other()).await;
    assert_eq!(ask(&app, other()).await, "409 outcome-unknown");
    assert_eq!(asked.load(Ordering::SeqCst), 2, "another operation is asked about by itself");
    tokio::time::sleep(5 * SECOND - Duration::from_millis(1)).await;
    ask(&app, payment()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    ask(&app, payment()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(fixture.ledger.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rule_15_a_resolver_that_fails_or_hangs_leaves_it_unknown() {
    for hangs in [false, true] {
        let fixture = Fixture::new(|options| {
            options.resolver(move |_| async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Err::<Option<Resolution>, BoxError>("the provider is down".into())
            })
        });
        let app = losing(&fixture);
        let first = send(&app, payment()).await;
        let before = tokio::time::Instant::now();
        assert_eq!(ask(&app, payment()).await, "409 outcome-unknown");
        assert_eq!(before.elapsed(), if hangs { 5 * SECOND } else { Duration::ZERO });
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(status_of(&app, &first).await["state"], "unknown");
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_15_a_status_read_asks_too() {
    let fixture = Fixture::new(|options| options.resolver(|_| async { Ok(Some(found(201))) }));
    let app = losing(&fixture);
    let first = send(&app, payment()).await;
    let status = status_of(&app, &first).await;
    assert_eq!((&status["state"], &status["status"]), (&"succeeded".into(), &201.into()));
    assert_eq!(ask(&app, payment()).await, "201 found replayed");
}

/// Everything is asked for in one place; the resolver belongs to the route of the operation.
#[tokio::test(start_paused = true)]
async fn rule_15_a_status_read_asks_the_resolver_of_the_operations_own_route() {
    let fixture = Fixture::new(|options| options);
    let large = "found".repeat(200);
    let found = Resolution::Applied(Outcome::inline(201, large.clone().into_bytes()));
    let resolver = move |_| {
        let found = found.clone();
        async { Ok(Some(found)) }
    };
    let route = fixture.idempotency.with(|options| options.resolver(resolver)).unwrap();
    let service = answering(&fixture.ledger, |_| text(502, ""));
    let app = Router::new().route("/pay", service).layer(route);
    let app = app.merge(fixture.idempotency.status_routes());
    let first = send(&app, payment()).await;
    assert_eq!(status_of(&app, &first).await["state"], "succeeded");
}

/// The status routes were made by a layer with a short `max_run`; the handler has an hour.
#[tokio::test(start_paused = true)]
async fn rule_15_never_waits_for_the_max_run_of_the_operations_own_route() {
    let fixture =
        Fixture::new(|options| short(options).resolver(|_| async { Ok(Some(Resolution::Never)) }));
    let route = fixture.idempotency.with(|options| options.max_run(HOUR)).unwrap();
    let service = answering(&fixture.ledger, |_| text(502, ""));
    let app = Router::new().route("/pay", service).layer(route);
    let app = app.merge(fixture.idempotency.status_routes());
    let first = send(&app, payment()).await;
    fixture.clock.advance(SECOND);
    assert_eq!(status_of(&app, &first).await["state"], "unknown", "it may still happen");
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown");
    assert_eq!(fixture.ledger.len(), 1, "it would have happened twice");
}

#[tokio::test(start_paused = true)]
async fn rule_15_the_business_row_tells_what_happened_and_rebuilds_the_answer() {
    // The row is written under the operation's id: that is the unique constraint.
    let rows: Arc<Mutex<HashMap<Digest, String>>> = Arc::default();
    let (writing, resolving, rebuilding) = (rows.clone(), rows.clone(), rows.clone());
    let fixture = Fixture::new(|options| {
        let resolver = move |unresolved: Unresolved| {
            let row = resolving.lock().unwrap().get(&unresolved.reference()).cloned();
            async move {
                let body = |id| StoredBody::Reference { kind: "payment".into(), id };
                Ok(row.map(|id| {
                    let outcome = Outcome { body: body(id), ..Outcome::inline(201, Vec::new()) };
                    Resolution::Applied(outcome.header("location", b"/payments/pay_1"))
                }))
            }
        };
        let rebuild = move |resource: Resource| {
            let known = rebuilding.lock().unwrap().values().any(|id| id == resource.id());
            async move {
                assert_eq!(resource.kind(), "payment");
                let body = Bytes::from(format!("payment {}", resource.id()));
                let answer = http::Response::builder().header("content-type", "text/plain");
                Ok(known.then(|| answer.status(299).body(body).unwrap()))
            }
        };
        options.resolver(resolver).rebuild(rebuild)
    });
    let ledger = fixture.ledger.clone();
    let app = fixture.app(any(async move |claim: Claim| -> &'static str {
        let number = ledger.add("pay");
        let before = writing.lock().unwrap().insert(claim.id(), format!("pay_{number}"));
        assert_eq!(before, None, "the unique constraint");
        panic!("the process dies after the effect");
    }));
    assert_eq!(ask(&app, payment()).await, "504 outcome-unknown");
    for _ in 0..2 {
        let reply = send(&app, payment()).await;
        assert_eq!(told(&reply), "201 payment pay_1 replayed", "its status is the stored one");
        assert_eq!(reply.header("content-type"), Some("text/plain"));
        assert_eq!(reply.header("location"), Some("/payments/pay_1"));
    }
    rows.lock().unwrap().clear();
    let reply = send(&app, payment()).await;
    assert_eq!(told(&reply), "409 result-unavailable", "the row is gone");
    assert_eq!(reply.header("location"), Some("/payments/pay_1"));
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_15_the_same_execution_may_tell_the_truth_late() {
    let (fixture, gate) = (Fixture::new(short), Gate::closed());
    let app = fixture.gated(&gate);
    let first = start(&app, payment());
    gate.reached().await;
    let first = first.await.unwrap();
    assert_eq!(told(&first), "504 outcome-unknown", "max_run is over");
    fixture.clock.advance(HOUR);
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown", "and so is the lease");
    assert_eq!(status_of(&app, &first).await["state"], "unknown");
    gate.open();
    crate::fixture::settle_down().await;
    assert_eq!(ask(&app, payment()).await, "201 receipt 1 replayed");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_15_an_operator_may_end_it_and_fences_the_late_truth_off() {
    let (fixture, gate) = (Fixture::new(short), Gate::closed());
    let app = fixture.gated(&gate);
    let first = send(&app, payment()).await;
    assert_eq!(told(&first), "504 outcome-unknown");
    fixture.clock.advance(HOUR);
    let stored = fixture.record(&first).await;
    let id = operation_of(&first).unwrap().parse().unwrap();
    let terms = Terms::of(Effect::External).build().unwrap();
    let resolution = found(201);
    let why = RepairRequest {
        terms: &terms,
        actor: Some("ada"),
        reason: Some("seen in the dashboard"),
        force: Force::No,
    };
    fixture.idempotency.engine().resolve(id, &stored, resolution, why).await.unwrap();
    gate.open();
    crate::fixture::settle_down().await;
    assert_eq!(ask(&app, payment()).await, "201 found replayed");
    assert_eq!(fixture.ledger.len(), 1);
}
