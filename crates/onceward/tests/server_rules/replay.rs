//! Rules 16 and 17: what a replay looks like, and the dates on every ended answer.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response};

use crate::{
    fixture::{
        Fixture, HOUR, SECOND, answering, ask, operation_of, payment, preferring, start, text, told,
    },
    server_support::{Gate, Pieces, Reply, send, trailers},
};

const OURS: [&str; 4] =
    ["idempotency-completed", "idempotency-expires", "idempotent-replayed", "onceward-operation"];

/// The header lines of an answer without those of the layer and of axum, in order of names.
fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let ours = |name: &str| OURS.contains(&name) || name == "content-length";
    let theirs = headers.iter().filter(|(name, _)| !ours(name.as_str()));
    let mut lines: Vec<_> =
        theirs.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    // Stable: values of one name keep their order.
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    lines
}

fn answer(lines: &[(&'static str, &[u8])]) -> Response<Body> {
    let mut answer = text(201, &b"\0receipt\0\xff\r\n"[..]);
    for (name, value) in lines {
        answer.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    answer
}

const KEPT: [(&str, &[u8]); 9] = [
    ("content-type", b"application/octet-stream"),
    ("etag", b"\"7\""),
    ("link", b"<a>; rel=next"),
    ("link", b"<c>"),
    ("link", b"<b>"),
    ("location", b"/payments/7"),
    ("x-empty", b""),
    ("x-raw", b"\xff\xfe"),
    ("x-raw", b"2"),
];

const DROPPED: [(&str, &[u8]); 24] = [
    ("age", b"1"),
    ("connection", b"x-hop, close"),
    ("date", b"Tue, 14 Nov 2023 22:13:20 GMT"),
    ("keep-alive", b"timeout=5"),
    ("proxy-authenticate", b"Basic"),
    ("proxy-connection", b"close"),
    ("ratelimit", b"limit=10"),
    ("ratelimit-remaining", b"1"),
    ("request-id", b"1"),
    ("server-timing", b"db;dur=1"),
    ("set-cookie", b"a=1"),
    ("set-cookie", b"b=2"),
    ("te", b"trailers"),
    ("traceparent", b"00-1-1-01"),
    ("tracestate", b"a=1"),
    ("upgrade", b"h2c"),
    ("www-authenticate", b"Basic"),
    ("x-amzn-trace-id", b"1"),
    ("x-b3-traceid", b"1"),
    ("x-correlation-id", b"1"),
    ("x-hop", b"1"),
    ("x-ratelimit-limit", b"1"),
    ("x-request-id", b"1"),
    ("x-trace-id", b"1"),
];

fn owned(lines: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    lines.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect()
}

#[tokio::test]
async fn rule_16_a_replay_has_the_same_status_lines_and_bytes() {
    let fixture = Fixture::new(|options| options);
    let app =
        fixture.app(answering(&fixture.ledger, |_| answer(&[&KEPT[..], &DROPPED[..]].concat())));
    let first = send(&app, payment()).await;
    let mut everything = owned(&[&KEPT[..], &DROPPED[..]].concat());
    everything.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(lines(&first.headers), everything, "the first answer is passed on as it is");
    for _ in 0..2 {
        let replay = send(&app, payment()).await;
        assert!(replay.is_replay());
        assert_eq!((replay.status, &replay.body), (first.status, &first.body));
        assert_eq!(lines(&replay.headers), owned(&KEPT));
        assert_eq!(operation_of(&replay), operation_of(&first));
    }
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_16_which_lines_are_replayed_is_a_choice() {
    let fixture = Fixture::new(|options| {
        let options = options.keep_header("Set-Cookie").keep_header("x-request-id");
        options.drop_header("ETag").drop_header("link")
    });
    let app =
        fixture.app(answering(&fixture.ledger, |_| answer(&[&KEPT[..], &DROPPED[..]].concat())));
    send(&app, payment()).await;
    let replay = send(&app, payment()).await;
    let mut expected = owned(&KEPT);
    expected.retain(|(name, _)| name != "etag" && name != "link");
    let cookies = [("set-cookie", &b"a=1"[..]), ("set-cookie", b"b=2"), ("x-request-id", b"1")];
    expected.extend(owned(&cookies));
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(lines(&replay.headers), expected);
}

#[tokio::test]
async fn rule_16_what_only_the_layer_may_say_is_stripped_from_the_services_answer() {
    for status in [201, 404, 429, 502] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| {
            let own = OURS.map(|name| (name, &b"forged"[..]));
            let mut answer = answer(&own);
            answer.headers_mut().append("onceward-unprotected", HeaderValue::from_static("x"));
            *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
            answer
        }));
        for _ in 0..2 {
            let reply = send(&app, payment()).await;
            let forged = |value: &HeaderValue| value == "forged" || value == "x";
            assert!(!reply.headers.values().any(forged), "{:?}", reply.headers);
            assert!(operation_of(&reply).is_some());
        }
    }
}

#[tokio::test]
async fn rule_16_answers_without_a_body_are_replayed() {
    for (status, length) in
        [(204, None), (304, Some("7")), (204, Some("7")), (200, None), (201, None)]
    {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| {
            let mut answer = text(status, Body::empty());
            if let Some(length) = length {
                answer.headers_mut().insert("content-length", HeaderValue::from_static(length));
            }
            answer.headers_mut().insert("etag", HeaderValue::from_static("\"7\""));
            answer
        }));
        assert_eq!(ask(&app, payment()).await, format!("{status} "));
        let replay = send(&app, payment()).await;
        assert_eq!(told(&replay), format!("{status}  replayed"));
        assert_eq!(replay.header("etag"), Some("\"7\""));
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_16_trailers_are_replayed() {
    for pieces in [&["rec", "eipt"][..], &[]] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| {
            let lines = [("x-sum", &b"1"[..]), ("x-sum", b"\xff"), ("x-request-id", b"9")];
            text(200, Body::new(Pieces::of(pieces.iter().copied()).then(trailers(&lines))))
        }));
        let first = send(&app, payment()).await;
        assert_eq!(first.text(), pieces.concat());
        assert_eq!(lines(first.trailers.as_ref().unwrap()).len(), 3);
        let replay = send(&app, payment()).await;
        assert_eq!(replay.text(), pieces.concat());
        let expected = owned(&[("x-sum", &b"1"[..]), ("x-sum", b"\xff")]);
        assert_eq!(lines(replay.trailers.as_ref().unwrap()), expected);
        assert_eq!(fixture.ledger.len(), 1);
    }
}

fn date(reply: &Reply, name: &str) -> Option<jiff::Timestamp> {
    let text = reply.header(name)?;
    assert!(text.ends_with(" GMT"), "an HTTP date: {text}");
    let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text);
    Some(parsed.unwrap())
}

#[tokio::test]
async fn rule_17_first_answer_and_replay_have_the_same_dates() {
    for status in [201, 302, 404, 500] {
        let fixture = Fixture::new(|options| options.retain(48 * HOUR));
        let app = fixture.app(answering(&fixture.ledger, move |_| text(status, "")));
        fixture.clock.advance(SECOND / 2);
        let first = send(&app, payment()).await;
        let completed = date(&first, "idempotency-completed").unwrap();
        assert_eq!(completed.as_second(), 1_700_000_000, "by the clock of the store");
        assert_eq!(first.header("idempotency-completed"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
        let expires = date(&first, "idempotency-expires").unwrap();
        assert_eq!(expires.as_second() - completed.as_second(), 48 * 3600);
        for wait in [SECOND * 3 / 4, HOUR, 46 * HOUR] {
            fixture.clock.advance(wait);
            let replay = send(&app, payment()).await;
            assert!(replay.is_replay());
            assert_eq!(date(&replay, "idempotency-completed"), Some(completed));
            assert_eq!(date(&replay, "idempotency-expires"), Some(expires));
        }
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_17_what_has_not_ended_has_no_dates_but_a_name() {
    let no_dates = |reply: &Reply| {
        assert_eq!(date(reply, "idempotency-completed"), None, "{}", told(reply));
        assert_eq!(date(reply, "idempotency-expires"), None, "{}", told(reply));
        assert!(operation_of(reply).is_some(), "{}", told(reply));
    };
    let (fixture, gate) = (Fixture::new(|options| options), Gate::closed());
    let app = fixture.gated(&gate);
    let running = start(&app, payment());
    gate.reached().await;
    no_dates(&send(&app, payment()).await);
    no_dates(&send(&app, preferring("respond-async")).await);
    gate.open();
    assert!(date(&running.await.unwrap(), "idempotency-expires").is_some());
    for status in [429, 502] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| text(status, "")));
        no_dates(&send(&app, payment()).await);
        no_dates(&send(&app, payment()).await);
    }
}
