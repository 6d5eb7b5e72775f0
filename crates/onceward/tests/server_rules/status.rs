//! Rule 26: the status routes.

use axum::{Router, body::Body};
use http::Request;
use onceward::{
    Effect, Fingerprint, Key, OperationId, OperationName, Profile, Scope, Terms, Verdict,
    server::IdempotencyBuilder,
};
use serde_json::json;

use crate::{
    fixture::{
        Fixture, HOUR, KEY, SECOND, answering, ask, get, operation_of, payment, start, status_of,
        text, told, with,
    },
    server_support::{Gate, post, send},
};

fn path_of(reply: &crate::server_support::Reply) -> String {
    format!("/.onceward/operations/{}", operation_of(reply).unwrap())
}

#[tokio::test]
async fn rule_26_an_ended_operation_is_told_in_full_and_without_its_answer() {
    let fixture = Fixture::new(|options| options.retain(HOUR));
    let app = fixture.app(answering(&fixture.ledger, |_| text(201, "secret")));
    let first = send(&app, payment()).await;
    fixture.clock.advance(SECOND);
    let expected = json!({
        "operation": operation_of(&first).unwrap(),
        "name": "POST /pay",
        "state": "succeeded",
        "attempt": 1,
        "started_at": "2023-11-14T22:13:20Z",
        "updated_at": "2023-11-14T22:13:20Z",
        "expires_at": "2023-11-14T23:13:20Z",
        "status": 201,
        "cause": null,
        "advice": null,
    });
    let by_key = format!("/.onceward/operations?operation=POST%20%2Fpay&key={KEY}");
    for path in [path_of(&first), by_key] {
        let status = send(&app, get(&path)).await;
        assert_eq!((status.status.as_u16(), status.json()), (200, expected.clone()), "{path}");
        assert_eq!(status.header("content-type"), Some("application/json"));
        assert_eq!(status.header("cache-control"), Some("no-store"));
        assert_eq!(status.header("idempotent-replayed"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_26_what_runs_has_no_end_yet() {
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    let busy = send(&app, payment()).await;
    let status = send(&app, get(&path_of(&busy))).await;
    assert_eq!(status.header("retry-after"), Some("1"));
    let document = status.json();
    assert_eq!(document["state"], "in_progress");
    assert_eq!((&document["expires_at"], &document["status"]), (&json!(null), &json!(null)));
    assert_eq!(document["started_at"], "2023-11-14T22:13:20Z");
    gate.open();
    let first = running.await.unwrap();
    assert_eq!(status_of(&app, &first).await["state"], "succeeded");
}

#[tokio::test]
async fn rule_26_every_state_has_its_word() {
    let repeatable = Effect::Repeatable { within: HOUR };
    for (status, effect, state) in [
        (201, Effect::External, "succeeded"),
        (404, Effect::External, "failed_final"),
        (500, Effect::Transactional, "failed_retryable"),
        (500, repeatable, "failed_retryable"),
        (502, Effect::External, "unknown"),
        (429, Effect::External, "released"),
    ] {
        let fixture = Fixture::new(|options| options.effect(effect));
        let app = fixture.app(answering(&fixture.ledger, move |_| text(status, "")));
        let document = status_of(&app, &send(&app, payment()).await).await;
        assert_eq!(document["state"], state);
        let ended = ["succeeded", "failed_final"].contains(&state);
        assert_eq!(document["status"], json!(ended.then_some(status)), "{state}");
        assert_eq!(document["expires_at"].is_string(), ended, "{state}");
    }
}

#[tokio::test]
async fn rule_26_an_abandoned_operation_is_told_by_its_effect() {
    let repeatable = Effect::Repeatable { within: HOUR };
    for (effect, after_lease, after_an_hour) in [
        (Effect::External, "unknown", "unknown"),
        (Effect::Transactional, "interrupted", "interrupted"),
        (repeatable, "interrupted", "unknown"),
    ] {
        let fixture = Fixture::new(|options| options.effect(effect));
        let app = fixture.paying();
        let operation = OperationId::new(
            Scope::of("caller", "anyone").unwrap(),
            OperationName::new("POST /pay").unwrap(),
            Key::new(KEY).unwrap(),
        );
        let path = format!("/.onceward/operations/{}", operation.digest());
        let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
        let terms = Terms::of(effect).build().unwrap();
        let request = onceward::Request { operation, fingerprints, terms };
        let claimed = fixture.idempotency.engine().admit(request).await.unwrap();
        assert!(matches!(claimed, Verdict::Run(_)));
        for (wait, state) in
            [(SECOND, "in_progress"), (30 * SECOND, after_lease), (HOUR, after_an_hour)]
        {
            fixture.clock.advance(wait);
            assert_eq!(send(&app, get(&path)).await.json()["state"], state, "{effect:?}");
        }
    }
}

#[tokio::test]
async fn rule_26_a_caller_sees_only_its_own_operations() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let first = send(&app, with(payment(), "x-caller", b"ada")).await;
    let by_key = format!("/.onceward/operations?operation=POST%20/pay&key={KEY}");
    for path in [path_of(&first), by_key] {
        let as_caller = |caller: &[u8]| with(get(&path), "x-caller", caller);
        assert_eq!(send(&app, as_caller(b"ada")).await.json()["state"], "succeeded");
        for nobody in [&b""[..], b"\xff"] {
            assert_eq!(ask(&app, as_caller(nobody)).await, "401 scope-missing", "{path}");
        }
        assert_eq!(ask(&app, as_caller(b"bob")).await, "404 operation-not-found");
    }
    let others = send(&app, with(get(&path_of(&first)), "x-caller", b"bob")).await;
    let absent = "A".repeat(43);
    let nothing = send(&app, get(&format!("/.onceward/operations/{absent}"))).await;
    let (others, nothing) = (others.text().to_owned(), nothing.text().to_owned());
    let hidden = others.replace(operation_of(&first).unwrap(), &absent);
    assert_eq!(hidden, nothing, "another's operation looks like none at all");
}

#[tokio::test]
async fn rule_26_what_cannot_be_asked_for_is_said() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    send(&app, payment()).await;
    let references = ["x".to_owned(), "A".repeat(42), "A".repeat(44), "!".repeat(43)];
    for reference in references {
        let path = format!("/.onceward/operations/{reference}");
        assert_eq!(ask(&app, get(&path)).await, "404 operation-not-found", "{path}");
    }
    for query in [
        "",
        "?",
        "?operation=POST%20/pay",
        "?key=order-17",
        "?operation=&key=order-17",
        "?operation=POST%20/pay&key=",
        "?operation=POST%20/pay&key=a%20b",
        "?operation=POST%20/pay&key=%FF",
        "?operation=a%0Ab&key=order-17",
    ] {
        let path = format!("/.onceward/operations{query}");
        assert_eq!(ask(&app, get(&path)).await, "400 request-malformed", "{path}");
    }
    let long = format!("/.onceward/operations?operation=a&key={}", "k".repeat(256));
    assert_eq!(ask(&app, get(&long)).await, "400 request-malformed");
    let other = "/.onceward/operations?operation=POST%20/pay&key=never-used";
    assert_eq!(ask(&app, get(other)).await, "404 operation-not-found");
}

#[tokio::test]
async fn rule_26_a_reference_that_is_no_text_is_a_problem_too() {
    let app = Fixture::new(|options| options).paying();
    assert_eq!(ask(&app, get("/.onceward/operations/%FF")).await, "404 operation-not-found");
}

#[tokio::test]
async fn rule_26_an_expired_operation_is_none() {
    let fixture = Fixture::new(|options| options.retain(HOUR));
    let app = fixture.paying();
    let first = send(&app, payment()).await;
    fixture.clock.advance(HOUR - SECOND);
    assert_eq!(status_of(&app, &first).await["state"], "succeeded");
    fixture.clock.advance(SECOND);
    assert_eq!(ask(&app, get(&path_of(&first))).await, "404 operation-not-found");
}

#[tokio::test]
async fn rule_26_attempts_and_times_are_those_of_the_record() {
    let fixture = Fixture::new(|options| options.effect(Effect::Repeatable { within: HOUR }));
    let app = fixture.app(answering(&fixture.ledger, |number| match number {
        3 => text(201, ""),
        _ => text(500, ""),
    }));
    for _ in 0..3 {
        send(&app, payment()).await;
        fixture.clock.advance(60 * SECOND);
    }
    let last = send(&app, payment()).await;
    assert!(last.is_replay());
    let status = status_of(&app, &last).await;
    assert_eq!((&status["attempt"], &status["status"]), (&json!(3), &json!(201)));
    assert_eq!(status["started_at"], "2023-11-14T22:13:20Z", "of the first claim");
    assert_eq!(status["updated_at"], "2023-11-14T22:15:20Z");
    assert_eq!(status["expires_at"], "2023-11-15T22:15:20Z");
}

#[tokio::test]
async fn rule_26_a_status_read_runs_and_changes_nothing() {
    let fixture = Fixture::new(IdempotencyBuilder::require_key);
    let app = fixture.app(answering(&fixture.ledger, |_| text(429, "")));
    let first = send(&app, payment()).await;
    let before = fixture.record(&first).await;
    for _ in 0..3 {
        assert_eq!(status_of(&app, &first).await["state"], "released");
    }
    assert_eq!(fixture.record(&first).await, before);
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_26_the_status_routes_are_where_answers_say_they_are() {
    let fixture = Fixture::new(|options| options.status_path("/internal/once"));
    let app = fixture.app(answering(&fixture.ledger, |_| text(502, "")));
    send(&app, payment()).await;
    let unknown = send(&app, payment()).await;
    let location = unknown.header("location").unwrap();
    assert!(location.starts_with("/internal/once/operations/"), "{location}");
    assert_eq!(send(&app, get(location)).await.json()["state"], "unknown");
    let keyless = Request::get("/.onceward/capabilities").body(Body::empty()).unwrap();
    assert_eq!(send(&app, keyless).await.status, 404);
    assert_eq!(send(&app, get("/internal/once/capabilities")).await.status, 200);
}

#[tokio::test]
async fn rule_26_capabilities_tell_the_tier_of_each_route() {
    let fixture = Fixture::new(|options| options.operation("charge").require_key());
    let of = |change: fn(IdempotencyBuilder) -> IdempotencyBuilder| {
        fixture.idempotency.with(change).unwrap()
    };
    let refund = of(|options| {
        options.operation("refund").effect(Effect::Repeatable { within: HOUR }).lease(SECOND)
    });
    let order = of(|options| options.operation("order").effect(Effect::Transactional));
    let note = of(|options| options.operation("note").pass_when_store_is_down().retain(HOUR));
    let never_used = of(|options| options.operation("unused").profile(Profile::Stripe));
    let mut app = Router::new().merge(fixture.idempotency.status_routes());
    let layers = [("/a", &fixture.idempotency), ("/b", &refund), ("/c", &order), ("/d", &note)];
    for (path, layer) in layers {
        let routes = Router::new()
            .route(path, answering(&fixture.ledger, |_| text(201, "")))
            .route(&format!("{path}/again"), answering(&fixture.ledger, |_| text(201, "")));
        app = app.merge(routes.layer(layer.clone()));
    }
    let reply = send(&app, get("/.onceward/capabilities")).await;
    assert_eq!((reply.status.as_u16(), reply.header("cache-control")), (200, Some("no-store")));
    let routes = reply.json()["routes"].as_array().unwrap().clone();
    let told: Vec<_> = routes.iter().map(|route| (&route["name"], &route["tier"])).collect();
    let expected = [("charge", "T3"), ("refund", "T2"), ("order", "T1"), ("note", "T3")]
        .map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(told, expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
    assert_eq!(routes[0]["methods"], json!(["POST", "PATCH"]));
    assert_eq!((&routes[0]["key"], &routes[0]["effect"]), (&json!("required"), &json!("external")));
    assert_eq!(
        (&routes[0]["lease_ms"], &routes[0]["retain_ms"]),
        (&json!(30_000), &json!(86_400_000))
    );
    assert_eq!(
        (&routes[1]["lease_ms"], &routes[1]["effect"]),
        (&json!(1000), &json!("repeatable"))
    );
    assert_eq!(routes[2]["effect"], "transactional");
    assert_eq!(
        (&routes[2]["on_store_down"], &routes[3]["on_store_down"]),
        (&json!("refuse"), &json!("pass"))
    );
    drop(never_used);
    assert_eq!(ask(&app, post("/a", KEY, "")).await, "201 ");
    assert_eq!(told_of(&app).await, "401 scope-missing");
}

/// Who asks is known to the status routes only by the scope.
async fn told_of(app: &Router) -> String {
    let request = with(get(&format!("/.onceward/operations/{}", "A".repeat(43))), "x-caller", b"");
    told(&send(app, request).await)
}
