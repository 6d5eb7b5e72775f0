//! Trap 7: a replay is the first answer, to the byte.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post as on_post,
};

use crate::server_support::{
    Ledger, Pieces, data, layer, memory, post, raw, send, serve, trailers,
};

/// These belong to one exchange: they are in the first answer and not in its replay.
const DROPPED: [(&str, &str); 9] = [
    ("set-cookie", "session=1"),
    ("server-timing", "db;dur=53"),
    ("age", "3"),
    ("traceparent", "00-1-2-00"),
    ("x-request-id", "r-1"),
    ("ratelimit-remaining", "7"),
    ("x-ratelimit-reset", "3"),
    ("www-authenticate", "Basic"),
    ("x-hop", "nominated"),
];

fn peculiar(kind: &str) -> Response {
    let mut response = match kind {
        "bytes" => Response::new(Body::from(&b"a\0b\xff\r\n\r\n\0"[..])),
        "nothing" => StatusCode::NO_CONTENT.into_response(),
        "empty" => StatusCode::CREATED.into_response(),
        "redirect" => (StatusCode::SEE_OTHER, [("location", "/charges/7")]).into_response(),
        "declined" => (StatusCode::PAYMENT_REQUIRED, "declined").into_response(),
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
        "trailers" => {
            let sum = trailers(&[("x-sum", "7"), ("x-other", "8")]);
            let mut response =
                Response::new(Body::new(Pieces::of([data("in "), data("pieces"), sum])));
            let names = HeaderValue::from_static("x-sum, x-other");
            response.headers_mut().insert(header::TRAILER, names);
            response
        }
        _ => unreachable!("no such kind of answer: {kind}"),
    };
    let lines = response.headers_mut();
    for (name, value) in [
        ("link", &b"</a>; rel=next"[..]),
        ("x-raw", b"\xff caf\xc3\xa9 \x80"),
        ("link", b"</b>; rel=prev"),
        ("vary", b""),
        ("link", b"</a>; rel=next"),
        ("cache-control", b"no-store"),
    ] {
        lines.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    for (name, value) in DROPPED {
        lines.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    lines.append("connection", HeaderValue::from_static("x-hop"));
    // Only the layer may say that.
    lines.append("idempotent-replayed", HeaderValue::from_static("true"));
    response
}

const KINDS: [&str; 7] =
    ["bytes", "nothing", "empty", "redirect", "declined", "broken", "trailers"];

#[tokio::test]
async fn trap_7_fidelity() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = async move |kind: String| {
        made.add(&kind);
        peculiar(&kind)
    };
    let idempotency = layer(memory()).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let address = serve(app.clone()).await;
    for kind in KINDS {
        in_process_the_replay_is_the_answer(&app, kind).await;
        on_the_wire_the_replay_is_the_answer(address, kind).await;
    }
    assert_eq!(ledger.len(), 2 * KINDS.len());
}

/// Everything but what belongs to one exchange; values of one name stay in order.
fn lasting(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let dropped = DROPPED.iter().map(|(name, _)| *name);
    for name in dropped.chain(["connection", "date", "idempotent-replayed"]) {
        headers.remove(name);
    }
    headers
}

async fn in_process_the_replay_is_the_answer(app: &Router, kind: &'static str) {
    let request = || post("/charges", &format!("router-{kind}"), kind);
    let first = send(app, request()).await;
    assert!(!first.is_replay(), "an answer cannot call itself a replay: {kind}");
    assert!(DROPPED.iter().all(|(name, value)| first.header(name) == Some(value)), "{first:?}");
    assert_eq!(first.headers.get_all("link").iter().count(), 3);
    assert!(first.headers.contains_key("idempotency-completed"), "{first:?}");
    for _ in 0..2 {
        let replay = send(app, request()).await;
        assert!(replay.is_replay() && replay.status == first.status, "{kind}: {replay:?}");
        assert!(DROPPED.iter().all(|(name, _)| replay.header(name).is_none()), "{replay:?}");
        assert_eq!(lasting(&replay.headers), lasting(&first.headers), "{kind}");
        assert_eq!((&replay.body, &replay.trailers), (&first.body, &first.trailers), "{kind}");
    }
}

async fn on_the_wire_the_replay_is_the_answer(address: SocketAddr, kind: &str) {
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\nte: trailers\r\n\
         idempotency-key: wire-{kind}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{kind}",
        kind.len()
    );
    let (first, body) = split(&raw(address, request.as_bytes()).await);
    let (replay, body_again) = split(&raw(address, request.as_bytes()).await);
    assert_eq!(body_again, body, "{kind}");
    let is_lasting = |line: &&Vec<u8>| {
        let name = line.split(|byte| *byte == b':').next().unwrap();
        let dropped = DROPPED.iter().map(|(name, _)| name.as_bytes());
        let mut dropped = dropped.chain([&b"connection"[..], b"date", b"idempotent-replayed"]);
        !dropped.any(|other| other == name)
    };
    assert!(replay.contains(&b"idempotent-replayed: true".to_vec()), "{kind}");
    assert!(!first.contains(&b"idempotent-replayed: true".to_vec()), "{kind}");
    assert!(first.contains(&b"x-raw: \xff caf\xc3\xa9 \x80".to_vec()), "{kind}");
    let lasting = |lines: &[Vec<u8>]| lines.iter().filter(is_lasting).cloned().collect::<Vec<_>>();
    assert_eq!(lasting(&replay), lasting(&first), "{kind}");
    match kind {
        "bytes" => assert_eq!(body, b"a\0b\xff\r\n\r\n\0"),
        "nothing" | "empty" => assert_eq!(body, b""),
        "trailers" => assert!(body.ends_with(b"0\r\nx-sum: 7\r\nx-other: 8\r\n\r\n"), "{body:?}"),
        _ => {}
    }
}

/// The status line and header lines, those of one name in their order, and all that comes after.
fn split(answer: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut lines = vec![Vec::new()];
    for byte in &answer[..end] {
        match byte {
            b'\n' => lines.push(Vec::new()),
            b'\r' => {}
            byte => lines.last_mut().unwrap().push(*byte),
        }
    }
    let name = |line: &Vec<u8>| line.split(|byte| *byte == b':').next().map(<[u8]>::to_vec);
    lines[1..].sort_by_key(name);
    (lines, answer[end + 4..].to_vec())
}
