//! What clients and services send that nobody expects.

use axum::{
    body::{Body, Bytes},
    routing::any,
};
use http::Request;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    fixture::{Fixture, KEY, answering, ask, operation_of, payment, text, told, with},
    server_support::{Pieces, broken, eventually, post, raw, send, serve, trailers},
};

#[tokio::test]
async fn rule_25_a_truncated_request_makes_no_claim() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let mut short = post("/pay", KEY, "half");
    short.headers_mut().insert("content-length", 8.into());
    for request in [short, post("/pay", KEY, Body::new(Pieces::of(["half"]).then(broken())))] {
        assert_eq!(ask(&app, request).await, "400 request-malformed");
    }
    assert_eq!(fixture.ledger.len(), 0);
    assert_eq!(ask(&app, post("/pay", KEY, "another")).await, "201 receipt 1", "the key is free");
}

#[tokio::test]
async fn rule_25_a_connection_that_closes_half_way_makes_no_claim() {
    let fixture = Fixture::new(|options| options);
    let address = serve(fixture.paying()).await;
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: order-17\r\n";
    for half in ["content-length: 10\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhel"] {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(format!("{head}{half}").as_bytes()).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    assert_eq!(fixture.ledger.len(), 0);
    let whole = format!("{head}connection: close\r\ncontent-length: 5\r\n\r\nwhole");
    let answer = String::from_utf8(raw(address, whole.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("receipt 1"), "{answer}");
    assert_eq!(fixture.ledger.len(), 1);
}

/// The first half of trap 1; the rest is in the traps' own tests.
#[tokio::test]
async fn rule_25_a_client_that_leaves_after_its_request_still_gets_its_answer_later() {
    let fixture = Fixture::new(|options| options);
    let address = serve(fixture.paying()).await;
    let request = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: order-17\r\n\
                   content-length: 2\r\n\r\n{}";
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let ledger = fixture.ledger.clone();
    eventually(async || ledger.len() == 1).await;
    drop(connection);
    let request = request.replace("host: x", "host: x\r\nconnection: close");
    let mut answer = String::new();
    eventually(async || {
        answer = String::from_utf8(raw(address, request.as_bytes()).await).unwrap();
        !answer.contains("in-progress")
    })
    .await;
    assert!(answer.contains("idempotent-replayed: true"), "{answer}");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_18_a_request_over_the_limit_is_refused_and_makes_no_claim() {
    for (length, fits) in [(15, true), (16, true), (17, false), (100_000, false)] {
        let fixture = Fixture::new(|options| options.max_request(16));
        let app = fixture.paying();
        let body = || vec![b'x'; length];
        let mut declared = post("/pay", "declared", body());
        declared.headers_mut().insert("content-length", length.into());
        let pieces = (0..length).map(|_| "x").collect::<Vec<_>>();
        let chunked = post("/pay", "chunked", Body::new(Pieces::of(pieces)));
        let undeclared = post("/pay", "undeclared", body());
        for request in [declared, chunked, undeclared] {
            let told = ask(&app, request).await;
            assert_eq!(told.starts_with("201"), fits, "{length}: {told}");
            assert_eq!(told == "413 body-too-large", !fits, "{length}: {told}");
        }
        let effects = if fits { 3 } else { 0 };
        assert_eq!(fixture.ledger.len(), effects);
        if !fits {
            for key in ["declared", "chunked", "undeclared"] {
                assert!(ask(&app, post("/pay", key, "small")).await.starts_with("201"), "{key}");
            }
        }
        let keyless = Request::post("/pay").body(Body::from(body())).unwrap();
        assert!(ask(&app, keyless).await.starts_with("201"), "no key, no limit of ours");
    }
}

#[tokio::test]
async fn rule_18_the_default_limit_of_a_request_is_one_mebibyte() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    for (length, told) in [
        ((1 << 20) - 1, "201 receipt 1"),
        (1 << 20, "201 receipt 2"),
        ((1 << 20) + 1, "413 body-too-large"),
    ] {
        let request = post("/pay", &format!("k{length}"), vec![0; length]);
        assert_eq!(ask(&app, request).await, told, "{length} bytes");
    }
}

#[tokio::test]
async fn rule_25_an_oversized_request_on_the_wire_is_refused_at_its_head() {
    let fixture = Fixture::new(|options| options.max_request(16));
    let address = serve(fixture.paying()).await;
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n";
    let declared = format!("{head}content-length: 999999999999\r\n\r\nstart");
    let answer = raw(address, declared.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    let chunks = format!("{head}transfer-encoding: chunked\r\n\r\n20\r\n{}\r\n", "x".repeat(32));
    let answer = raw(address, chunks.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(fixture.ledger.len(), 0);
}

#[tokio::test]
async fn rule_07_the_service_gets_the_request_as_it_was_sent() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(any(async |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let mut answer = text(200, body.to_bytes());
        for (name, value) in head.headers.iter().chain(trailers.iter()) {
            answer
                .headers_mut()
                .append(format!("got-{name}").parse::<http::HeaderName>().unwrap(), value.clone());
        }
        answer
    }));
    let body = Pieces::of(["\0a", "", "b\u{ff}"])
        .then(trailers(&[("x-sum", &b"1"[..]), ("x-sum", b"\xff")]));
    let request = with(post("/pay", KEY, Body::new(body)), "x-raw", b"\xff\xfe");
    let reply = send(&app, with(request, "x-raw", b"2")).await;
    assert_eq!(reply.body, Bytes::from("\0ab\u{ff}"));
    let got = |name| {
        let values = reply.headers.get_all(name).iter();
        values.map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(got("got-x-raw"), [&b"\xff\xfe"[..], b"2"]);
    assert_eq!(got("got-x-sum"), [&b"1"[..], b"\xff"]);
    assert_eq!(got("got-idempotency-key"), [KEY.as_bytes()]);
}

#[tokio::test]
async fn rule_16_odd_bytes_survive_the_wire() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(answering(&fixture.ledger, |_| {
        let mut answer = text(200, &b"a\0\xff"[..]);
        let value = http::HeaderValue::from_bytes(b"\xff").unwrap();
        answer.headers_mut().insert("x-raw", value);
        answer
    }));
    let address = serve(app).await;
    let mut request = b"POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".to_vec();
    request.extend_from_slice(b"idempotency-key: k\r\nx-raw: \xff\r\ncontent-length: 0\r\n\r\n");
    for replayed in [false, true] {
        let answer = raw(address, &request).await;
        assert!(answer.ends_with(b"\r\n\r\na\0\xff"));
        let contains = |needle: &[u8]| answer.windows(needle.len()).any(|part| part == needle);
        assert!(contains(b"x-raw: \xff\r\n"));
        assert_eq!(contains(b"idempotent-replayed: true\r\n"), replayed);
        let lengths = answer.windows(16).filter(|part| *part == b"content-length: ").count();
        assert_eq!(lengths, 1, "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_16_answers_without_a_body_survive_the_wire() {
    for status in [204, 304] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |_| text(status, "")));
        let address = serve(app).await;
        let request = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: k\r\n\
                       content-length: 0\r\n\r\n";
        for replayed in [false, true] {
            let answer = String::from_utf8(raw(address, request.as_bytes()).await).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert!(answer.ends_with("\r\n\r\n"), "{answer}");
            assert_eq!(answer.contains("idempotent-replayed: true"), replayed);
        }
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_16_trailers_survive_the_wire() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(answering(&fixture.ledger, |_| {
        let mut answer =
            text(200, Body::new(Pieces::of(["receipt"]).then(trailers(&[("x-sum", b"7")]))));
        answer.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        answer
    }));
    let address = serve(app).await;
    let request = "POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\nte: trailers\r\n\
                   idempotency-key: k\r\ncontent-length: 0\r\n\r\n";
    for replayed in [false, true] {
        let answer = String::from_utf8(raw(address, request.as_bytes()).await).unwrap();
        assert!(answer.ends_with("receipt\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
        assert_eq!(answer.contains("idempotent-replayed: true"), replayed, "{answer}");
    }
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_07_empty_requests_are_operations_too() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let empty = || Request::post("/pay").header("idempotency-key", KEY);
    let first = send(&app, empty().body(Body::empty()).unwrap()).await;
    assert_eq!(told(&first), "201 receipt 1");
    let again = empty().body(Body::new(Pieces::default())).unwrap();
    assert_eq!(ask(&app, again).await, "201 receipt 1 replayed");
    let other = send(&app, empty().body(Body::from("x")).unwrap()).await;
    assert_eq!(told(&other), "422 key-reused");
    assert_eq!(operation_of(&other), operation_of(&first));
    assert_eq!(ask(&app, payment()).await, "422 key-reused");
    assert_eq!(fixture.ledger.len(), 1);
}
