//! Rules 1 and 4, where the key is not in `Idempotency-Key`, and rules 10 to 12 for single statuses.

use axum::{body::Body, routing::post as posting};
use http::Request;
use onceward::{
    Key, Profile,
    server::{Claim, IdempotencyBuilder, OptionsError},
};

use crate::{
    fixture::{Fixture, answering, ask, payment, status_of, text},
    server_support::send,
};

/// A request with these lines.
fn lines(lines: &[(&str, &str)]) -> Request<Body> {
    let request = lines
        .iter()
        .fold(Request::post("/pay"), |request, (name, value)| request.header(*name, *value));
    request.body(Body::from("{}")).unwrap()
}

const NAMES: [&str; 3] = ["Idempotency-Key", "X-Idempotency-Key", "PayPal-Request-Id"];

#[tokio::test]
async fn rule_01_a_key_comes_in_the_first_header_that_is_there() {
    let fixture = Fixture::new(|options| options.key_header(NAMES));
    let app = fixture.paying();
    assert_eq!(ask(&app, lines(&[("idempotency-key", "a")])).await, "201 receipt 1");
    for same in [
        &[("x-idempotency-key", "a")][..],
        &[("paypal-request-id", "\"a\"")],
        &[("paypal-request-id", "b"), ("x-idempotency-key", "a")],
        &[("x-idempotency-key", "b"), ("idempotency-key", "a")],
    ] {
        assert_eq!(ask(&app, lines(same)).await, "201 receipt 1 replayed", "{same:?}");
    }
    assert_eq!(ask(&app, lines(&[("paypal-request-id", "b")])).await, "201 receipt 2");
    assert_eq!(ask(&app, lines(&[])).await, "201 receipt 3", "it passes");
    assert_eq!(ask(&app, lines(&[])).await, "201 receipt 4", "without protection");
}

#[tokio::test]
async fn rule_01_what_is_no_key_is_refused_by_the_name_of_its_header() {
    let fixture = Fixture::new(|options| options.key_header(NAMES));
    let app = fixture.paying();
    for bad in [
        &[("x-idempotency-key", "a, b")][..],
        &[("x-idempotency-key", "a"), ("x-idempotency-key", "a")],
        &[("x-idempotency-key", ""), ("paypal-request-id", "good")],
    ] {
        let reply = send(&app, lines(bad)).await;
        assert_eq!(reply.status, 400, "{bad:?}");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(text.contains("key-invalid") && text.contains("X-Idempotency-Key: "), "{text}");
    }
    assert_eq!(fixture.ledger.len(), 0);
}

#[tokio::test]
async fn rule_04_a_missing_key_is_told_by_the_names_of_its_headers() {
    type Choice = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let choices: [(&str, Choice); 4] = [
        ("needs an Idempotency-Key;", |options| options),
        ("in the header X-Key;", |options| options.key_header(["X-Key"])),
        ("Idempotency-Key, X-Idempotency-Key, PayPal-Request-Id;", |o| o.key_header(NAMES)),
        ("takes the key from the event,", |options| {
            options.key_from("the event", |_| Ok::<_, &str>(None))
        }),
    ];
    for (expected, choose) in choices {
        let required = Fixture::new(|options| choose(options).require_key());
        let optional = Fixture::new(choose);
        // Here it is the handler that cannot do without a claim.
        let claimed = optional.app(posting(async |_: Claim| "never"));
        for app in [required.paying(), claimed] {
            let reply = send(&app, lines(&[])).await;
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(text.contains("key-missing") && text.contains(expected), "{text}");
        }
        assert_eq!(required.ledger.len(), 0);
    }
}

/// What stands before the layer has read the event, and found its id.
#[derive(Clone)]
struct EventId(&'static str);

#[tokio::test]
async fn rule_01_a_key_comes_from_where_the_service_finds_it() {
    let fixture = Fixture::new(|options| {
        options.require_key().key_from("the event's id", |parts| {
            parts.extensions.get::<EventId>().map(|EventId(id)| Key::new(id)).transpose()
        })
    });
    let app = fixture.paying();
    let event = |id| {
        let mut request = lines(&[("idempotency-key", "another")]);
        request.extensions_mut().insert(EventId(id));
        request
    };
    assert_eq!(ask(&app, event("evt_1")).await, "201 receipt 1");
    assert_eq!(ask(&app, event("evt_1")).await, "201 receipt 1 replayed");
    assert_eq!(ask(&app, event("evt_2")).await, "201 receipt 2");
    assert_eq!(ask(&app, event("evt 3")).await, "400 key-invalid");
    assert_eq!(ask(&app, lines(&[("idempotency-key", "k")])).await, "400 key-missing");
    assert_eq!(fixture.ledger.len(), 2);
}

#[test]
fn headers_that_cannot_hold_a_key_are_refused_when_the_layer_is_built() {
    let refused = |names: &[&'static str]| {
        let fixture = Fixture::new(|options| options);
        match fixture.idempotency.with(|options| options.key_header(names.to_vec())) {
            Err(OptionsError::Option { option: "key_header", text }) => text,
            other => panic!("{names:?}: {other:?}"),
        }
    };
    assert!(refused(&[]).contains("no header is named"));
    assert!(refused(&["a b"]).contains("is not a header name"));
    assert!(refused(&["X-Key", "x-key"]).contains("twice"));
    for name in ["Cookie", "Connection", "Onceward-Key", "authorization", "content-length"] {
        assert!(refused(&[name]).contains("for something else"), "{name}");
    }
}

#[tokio::test]
async fn rules_11_and_12_a_route_says_which_statuses_free_the_key_and_which_are_final() {
    for profile in [Profile::Standard, Profile::Strict, Profile::Stripe] {
        for (status, is_kept) in
            [(409, false), (404, false), (429, true), (503, true), (504, true), (402, true)]
        {
            let fixture = Fixture::new(|options| {
                let options = options.profile(profile).released_statuses([404, 409]);
                options.final_statuses([429, 503, 504])
            });
            let app = fixture.app(answering(&fixture.ledger, move |_| text(status, "said")));
            let first = send(&app, payment()).await;
            assert_eq!(first.status, status);
            let state = status_of(&app, &first).await["state"].clone();
            assert_eq!(state, if is_kept { "failed_final" } else { "released" }, "{status}");
            assert_eq!(send(&app, payment()).await.is_replay(), is_kept, "{profile:?}: {status}");
            assert_eq!(fixture.ledger.len(), if is_kept { 1 } else { 2 });
        }
    }
}

#[test]
fn lists_of_statuses_that_contradict_each_other_are_refused() {
    type Choice = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let choices: [(&str, Choice); 5] = [
        ("409 is in", |options| options.released_statuses([409]).final_statuses([409])),
        ("503 is in", |options| options.not_applied([503]).final_statuses([503])),
        ("has 201", |options| options.released_statuses([201])),
        ("`not_applied`", |options| options.released_statuses([503])),
        ("remove `final_statuses`", |options| {
            options.effect(onceward::Effect::Transactional).final_statuses([429])
        }),
    ];
    for (expected, choose) in choices {
        let fixture = Fixture::new(|options| options);
        let error = fixture.idempotency.with(choose).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
