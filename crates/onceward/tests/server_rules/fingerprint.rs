//! Rules 7 and 8: what a request means, and a key that was used for something else.

use std::time::Duration;

use axum::{Router, body::Body};
use http::{HeaderValue, Request};
use onceward::{Effect, Fingerprint, Key, OperationId, OperationName, Scope, Terms, Verdict};

use crate::{
    fixture::{
        Fixture, HOUR, KEY, SECOND, answering, ask, operation_of, payment, start, text, told, with,
    },
    server_support::{Gate, Pieces, post, raw, send, serve},
};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

fn request(path_and_query: &str, media_type: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = post(path_and_query, KEY, body);
    request.headers_mut().insert("content-type", HeaderValue::from_str(media_type).unwrap());
    request
}

fn multipart(boundary: &str, content: &str) -> Request<Body> {
    let body = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{content}\r\n--{boundary}--\r\n"
    );
    request("/pay", &format!("multipart/form-data; boundary={boundary}"), body)
}

fn chunked(pieces: &[&'static str]) -> Request<Body> {
    request("/pay", BYTES, Body::new(Pieces::of(pieces.iter().copied())))
}

fn wildcard(fixture: &Fixture) -> Router {
    let service = answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
    Router::new().route("/{*path}", service).layer(fixture.idempotency.clone())
}

#[tokio::test]
async fn rule_07_requests_that_mean_the_same_are_one_operation() {
    let pairs: Vec<(&str, Request<Body>, Request<Body>)> = vec![
        (
            "reordered query",
            request("/pay?b=2&a=1&a=0", JSON, "{}"),
            request("/pay?a=1&a=0&b=2", JSON, "{}"),
        ),
        ("escaped query", request("/pay?a=%41", JSON, ""), request("/pay?a=A&", JSON, "")),
        (
            "re-spaced and reordered JSON",
            request("/pay", JSON, "{\"a\": [1.0, \"\\u0041\"],\n \"b\": null}"),
            request("/pay", JSON, "{\"b\":null,\"a\":[1.0,\"A\"]}"),
        ),
        (
            "charset of JSON",
            request("/pay", JSON, "{}"),
            request("/pay", "Application/JSON; charset=UTF-8", "{}"),
        ),
        ("boundary", multipart("one", "hello"), multipart("two", "hello")),
        ("chunks", chunked(&["ab", "c"]), request("/pay", BYTES, "abc")),
        ("other chunks", chunked(&["", "a", "bc", ""]), chunked(&["abc"])),
        ("no body", chunked(&[]), request("/pay", BYTES, "")),
        (
            "headers without meaning",
            with(payment(), "user-agent", b"one"),
            with(with(payment(), "user-agent", b"two"), "traceparent", b"00-1-1-01"),
        ),
    ];
    for (what, first, second) in pairs {
        let fixture = Fixture::new(|options| options);
        let app = wildcard(&fixture);
        assert_eq!(ask(&app, first).await, "201 receipt 1", "{what}");
        assert_eq!(ask(&app, second).await, "201 receipt 1 replayed", "{what}");
        assert_eq!(fixture.ledger.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn rule_07_requests_that_mean_something_else_are_refused() {
    let whole = || vec![0; 1 << 20];
    let mut last_byte = whole();
    *last_byte.last_mut().unwrap() = 1;
    let pairs: Vec<(&str, Request<Body>, Request<Body>)> = vec![
        ("last byte", request("/pay", BYTES, whole()), request("/pay", BYTES, last_byte)),
        ("last chunk", chunked(&["ab", "c"]), chunked(&["ab", "d"])),
        ("one more byte", chunked(&["ab"]), chunked(&["ab", "\0"])),
        ("path", request("/a", JSON, "{}"), request("/b", JSON, "{}")),
        ("query", request("/pay?a=1", JSON, "{}"), request("/pay?a=2", JSON, "{}")),
        ("no query", request("/pay?a=1", JSON, "{}"), request("/pay", JSON, "{}")),
        ("values of a name", request("/pay?a=1&a=2", JSON, ""), request("/pay?a=2&a=1", JSON, "")),
        ("number text", request("/pay", JSON, "[1.0]"), request("/pay", JSON, "[1.00]")),
        ("order of items", request("/pay", JSON, "[1,2]"), request("/pay", JSON, "[2,1]")),
        ("media type", request("/pay", JSON, "{}"), request("/pay", BYTES, "{}")),
        ("space in bytes", request("/pay", BYTES, "{}"), request("/pay", BYTES, "{ }")),
        ("part", multipart("one", "hello"), multipart("one", "hullo")),
        ("encoding", payment(), with(payment(), "content-encoding", b"gzip")),
        ("odd media type", request("/pay", "\u{fc}", "{}"), request("/pay", "\u{e4}", "{}")),
    ];
    for (what, first, second) in pairs {
        let fixture = Fixture::new(|options| options);
        let app = wildcard(&fixture);
        assert_eq!(ask(&app, first).await, "201 receipt 1", "{what}");
        assert_eq!(ask(&app, second).await, "422 key-reused", "{what}");
        assert_eq!(fixture.ledger.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn rule_07_chosen_headers_are_part_of_the_meaning() {
    let fixture = Fixture::new(|options| options.fingerprint_header("X-Currency"));
    let app = fixture.paying();
    let first = || with(with(payment(), "x-currency", b"EUR"), "x-currency", b"\xff");
    assert_eq!(ask(&app, first()).await, "201 receipt 1");
    assert_eq!(ask(&app, with(first(), "x-other", b"1")).await, "201 receipt 1 replayed");
    for other in [
        payment(),
        with(payment(), "x-currency", b"EUR"),
        with(first(), "x-currency", b""),
        with(with(payment(), "x-currency", b"EUR"), "x-currency", b"\xfe"),
        with(with(payment(), "x-currency", b"\xff"), "x-currency", b"EUR"),
        with(payment(), "x-currency", b"EUR, \xff"),
    ] {
        assert_eq!(ask(&app, other).await, "422 key-reused");
    }
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_07_framing_on_the_wire_has_no_meaning() {
    let fixture = Fixture::new(|options| options);
    let address = serve(fixture.paying()).await;
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n";
    let whole = format!("{head}content-length: 5\r\n\r\nhello");
    let answer = String::from_utf8(raw(address, whole.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("receipt 1"), "{answer}");
    let pieces = "transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    let answer = raw(address, format!("{head}{pieces}").as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("idempotent-replayed: true"), "{answer}");
    let other = "transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllO\r\n0\r\n\r\n";
    let answer = raw(address, format!("{head}{other}").as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 422"));
    assert_eq!(fixture.ledger.len(), 1);
}

fn another() -> Request<Body> {
    post("/pay", KEY, "{\"cents\": 501}")
}

/// 422, and nothing of what is stored.
fn is_refused(reply: &crate::server_support::Reply) {
    assert_eq!(told(reply), "422 key-reused");
    assert!(!reply.text().contains("secret"), "{}", reply.text());
    let names = ["x-secret", "location", "retry-after", "set-cookie"];
    assert!(names.iter().all(|name| reply.header(name).is_none()), "{:?}", reply.headers);
}

#[tokio::test]
async fn rule_08_a_key_that_was_used_is_refused_in_every_ended_state() {
    let repeatable = Effect::Repeatable { within: HOUR };
    for (status, effect, retry) in [
        (201, Effect::External, "201 secret 1 replayed"),
        (404, Effect::External, "404 secret 1 replayed"),
        (502, Effect::External, "409 outcome-unknown"),
        (500, repeatable, "500 secret 2"),
    ] {
        let fixture = Fixture::new(|options| options.effect(effect));
        let app = fixture.app(answering(&fixture.ledger, move |number| {
            let mut answer = text(status, format!("secret {number}"));
            answer.headers_mut().insert("x-secret", HeaderValue::from_static("1"));
            answer
        }));
        assert_eq!(ask(&app, payment()).await, format!("{status} secret 1"));
        is_refused(&send(&app, another()).await);
        is_refused(&send(&app, with(another(), "prefer", b"wait=5, respond-async")).await);
        assert_eq!(fixture.ledger.len(), 1, "{status}");
        assert_eq!(ask(&app, payment()).await, retry, "what is stored is untouched");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_08_a_mismatch_is_found_before_in_flight_and_leaves_the_execution_alone() {
    for preference in ["", "wait=10", "respond-async"] {
        let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
        let app = fixture.gated(&gate);
        let running = start(&app, payment());
        gate.reached().await;
        let before = tokio::time::Instant::now();
        let reply = send(&app, with(another(), "prefer", preference.as_bytes())).await;
        is_refused(&reply);
        assert_eq!(
            before.elapsed(),
            Duration::ZERO,
            "nobody waits for an answer to something else"
        );
        let record = fixture.record(&reply).await;
        gate.open();
        let first = running.await.unwrap();
        assert_eq!(told(&first), "201 receipt 1");
        assert_eq!(fixture.record(&first).await.record.execution, record.record.execution);
        assert_eq!(fixture.ledger.len(), 1);
    }
}

/// The owner has vanished: whoever comes next may take over, but not with another request.
#[tokio::test]
async fn rule_08_an_interrupted_operation_is_live_too() {
    let effect = Effect::Repeatable { within: HOUR };
    let fixture = Fixture::new(|options| options.effect(effect));
    let app = fixture.paying();
    let operation = OperationId::new(
        Scope::of("caller", "anyone").unwrap(),
        OperationName::new("POST /pay").unwrap(),
        Key::new(KEY).unwrap(),
    );
    let request = onceward::Request {
        operation,
        fingerprints: Fingerprint::from_parts(1, [0; 32]).into(),
        terms: Terms::of(effect).build().unwrap(),
    };
    let claimed = fixture.idempotency.engine().admit(request).await.unwrap();
    assert!(matches!(claimed, Verdict::Run(_)));
    is_refused(&send(&app, payment()).await);
    fixture.clock.advance(31 * SECOND);
    is_refused(&send(&app, payment()).await);
    assert_eq!(fixture.ledger.len(), 0);
}

#[tokio::test]
async fn rule_08_the_status_of_a_mismatch_is_a_choice() {
    for status in [422, 409, 400] {
        let fixture = Fixture::new(|options| options.mismatch_status(status));
        let app = fixture.paying();
        let first = send(&app, payment()).await;
        let reply = send(&app, another()).await;
        assert_eq!(told(&reply), format!("{status} key-reused"));
        assert_eq!(operation_of(&reply), operation_of(&first));
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_08_what_is_released_or_expired_binds_nothing() {
    let fixture = Fixture::new(|options| options.retain(HOUR));
    let app = fixture.app(answering(&fixture.ledger, |number| match number {
        1 => text(429, "slow down"),
        _ => text(201, format!("receipt {number}")),
    }));
    assert_eq!(ask(&app, payment()).await, "429 slow down");
    assert_eq!(ask(&app, another()).await, "201 receipt 2", "released: another request may use it");
    assert_eq!(ask(&app, payment()).await, "422 key-reused");
    fixture.clock.advance(HOUR);
    assert_eq!(ask(&app, payment()).await, "201 receipt 3", "forgotten");
}
