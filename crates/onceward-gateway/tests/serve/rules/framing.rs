//! Rule 25 and RFC 9110: bodies, connections, trailers, and whom a request is forwarded for.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    gateway_support::{
        Call, Gateway, Link, Pipe, Reply, Upstream, Version, pattern, raw, read_until, route,
        upstreams,
    },
    rules::pay,
};

#[tokio::test]
async fn rule_25_a_body_that_nobody_wanted_is_never_the_next_request() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("max_request = \"1KiB\""));
    let inner = "POST /evil HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    for (key, padding) in [("a b", 0), ("a b", 200_000), ("k", 200_000)] {
        let body = inner.repeat(1 + padding / inner.len());
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\nx-api-key: alice\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // It may be closed while this is written.
        let _ = stream.write_all(body.as_bytes()).await;
        let next = "GET /next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(next.as_bytes()).await;
        let answers = read_until(&mut stream, "\r\n\r\nnever").await;
        assert!(answers.starts_with("HTTP/1.1 4"), "{answers}");
        assert!(answers.matches("HTTP/1.1 ").count() <= 2, "{answers}");
    }
    assert_eq!(upstream.count_at("/evil").await, 0);
    assert_eq!(upstream.count_at("/pay").await, 0);
}

/// An answer of HTTP/1.1 is for those who may mean HTTP/1.
#[tokio::test]
async fn rule_25_what_begins_as_neither_version_of_http_is_closed_without_a_word() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let after = "GET /next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (start, answer) in [
        ("INVALID CONNECTION PREFACE\r\n\r\n", ""),
        ("PING\r\n", ""),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r ", ""),
        ("PRI * HTTP/2.0\r\n\r\n", ""),
        ("GET / HTTP/2.0\r\nhost: x\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / x HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 400 "),
        ("GET /\r\n\r\n", "HTTP/1.1 400 "),
        ("G(T / HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 400 "),
        ("\u{16}\u{3}\u{1}\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        ("\r\nGET /first HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 201 "),
    ] {
        let told = raw(gateway.address, format!("{start}{after}")).await;
        assert_eq!(told.is_empty(), answer.is_empty(), "{start:?}: {told}");
        assert!(told.starts_with(answer), "{start:?}: {told}");
    }
    assert_eq!((upstream.count_at("/first").await, upstream.count_at("/next").await), (1, 1));
    gateway.assert_well();
}

#[tokio::test]
async fn rule_25_a_refused_request_of_http2_leaves_the_connection_as_it_was() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("max_request = \"1KiB\""));
    let mut link = Link::open(gateway.address, Version::Http2).await;
    for _ in 0..5 {
        let large = pay("k").body(vec![b'x'; 60_000]);
        assert_eq!(link.send(&large).await.problem(), (413, "body-too-large".into()));
        assert_eq!(link.send(&pay("a b")).await.status, 400);
    }
    assert_eq!(link.send(&pay("k")).await.status, 201);
}

/// With HTTP/2 a line that was sent before is one byte long, and takes up a hundred here.
#[tokio::test]
async fn rule_25_a_head_has_so_many_lines_at_most() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    for version in [Version::Http1, Version::Http2] {
        let with = |count| (0..count).fold(pay("k"), |call, _| call.header("x-l", "1"));
        let mut link = Link::open(gateway.address, version).await;
        assert_eq!(link.send(&with(80)).await.status, 201, "{version:?}");
        assert_eq!(link.send(&with(130)).await.status, 431, "{version:?}");
        assert_eq!(gateway.send_by(version, &pay("k")).await.status, 201, "{version:?}");
    }
}

#[tokio::test]
async fn rule_25_who_expects_to_be_asked_for_the_body_is_asked_or_refused() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let head = |key: &str| {
            format!(
                "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\nx-api-key: alice\r\n\
                 expect: 100-continue\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
            )
        };
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(head("k").as_bytes()).await.unwrap();
        let asked = read_until(&mut stream, "\r\n\r\n").await;
        assert!(asked.starts_with("HTTP/1.1 100"), "{asked}");
        stream.write_all(b"12345").await.unwrap();
        let answer = read_until(&mut stream, "receipt 1").await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        let refused = raw(gateway.address, head("a b")).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert_eq!(upstream.count().await, 1);
        assert_eq!(upstream.seen().await[0]["body"], "12345");
    }
}

#[tokio::test]
async fn rule_25_a_request_with_two_lengths_is_not_ambiguous() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let start = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\nx-api-key: alice\r\n";
    let two = format!("{start}content-length: 3\r\ncontent-length: 4\r\n\r\nabcd");
    let answer = raw(gateway.address, two).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let both = format!(
        "{start}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
         POST /evil HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    );
    let answer = raw(gateway.address, both).await;
    assert!(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(upstream.count_at("/evil").await, 0);
}

#[tokio::test]
async fn without_a_key_both_bodies_pass_as_they_come() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for version in Version::BOTH {
            let mut link = Link::open(gateway.address, version).await;
            let (sender, pipe) = Pipe::new();
            sender.send(Frame::data(Bytes::from_static(b"first"))).await.unwrap();
            let call = Call::post("/pay").told(json!({"stream": true}));
            let mut body = link.stream(&call, pipe).await.unwrap().into_body();
            let mut first = Vec::new();
            while first.len() < 5 {
                let piece = body.frame().await.unwrap().unwrap();
                first.extend_from_slice(&piece.into_data().unwrap());
            }
            assert_eq!(first, b"first", "it came before the request has ended");
            sender.send(Frame::data(Bytes::from_static(b"last"))).await.unwrap();
            drop(sender);
            let rest = body.collect().await.unwrap().to_bytes();
            assert_eq!(rest, "last");
        }
    }
}

#[tokio::test]
async fn without_a_key_a_large_answer_passes_and_one_that_breaks_off_is_no_whole_one() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for version in Version::BOTH {
            let large = Call::new("GET", "/large").told(json!({"size": 12 << 20}));
            let reply = gateway.send_by(version, &large).await;
            assert!(reply.body == pattern(12 << 20));
            for framing in ["length", "chunked"] {
                let told = json!({"size": 100_000, "cut": 50_000, "framing": framing});
                let mut link = Link::open(gateway.address, version).await;
                let broken = link.try_send(&Call::new("GET", "/broken").told(told)).await;
                assert!(broken.is_err(), "{framing}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_key_a_large_request_passes_whole() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route("max_request = \"1KiB\""));
        for version in Version::BOTH {
            let call = Call::post("/pay").body(vec![b'x'; 5 << 20]);
            assert_eq!(gateway.send_by(version, &call).await.status, 201);
            assert_eq!(upstream.seen().await.last().unwrap()["size"], 5 << 20);
        }
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_without_chunks() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let request = "POST /pay HTTP/1.0\r\nidempotency-key: k\r\nx-api-key: alice\r\n\
                       x-do: {\"framing\":\"chunked\"}\r\ncontent-length: 2\r\n\r\n{}";
        for _ in 0..2 {
            let answer = raw(gateway.address, request).await;
            assert!(answer.starts_with("HTTP/1.0 201"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nreceipt 1"), "{answer}");
        }
    }
}

#[tokio::test]
async fn an_upstream_may_refuse_a_body_before_it_has_come() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for version in Version::BOTH {
            let call = Call::post("/pay").told(json!({"early": 413})).body(vec![b'x'; 1000]);
            assert_eq!(gateway.send_by(version, &call).await.status, 413);
        }
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for version in Version::BOTH {
            let told = json!({"framing": "chunked", "trailers": [["x-sum", "7"]]});
            let call = Call::post("/pay").told(told).header("te", "trailers");
            let call = call.header("trailer", "x-check, onceward-execution");
            let (sender, pipe) = Pipe::new();
            sender.send(Frame::data(Bytes::from_static(b"body"))).await.unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("x-check", "8".parse().unwrap());
            trailers.insert("onceward-execution", "forged".parse().unwrap());
            sender.send(Frame::trailers(trailers)).await.unwrap();
            drop(sender);
            let mut link = Link::open(gateway.address, version).await;
            let reply = Reply::read(link.stream(&call, pipe).await.unwrap()).await.unwrap();
            assert_eq!(reply.trailers.unwrap().get("x-sum").unwrap(), "7");
            let seen = upstream.seen().await;
            let trailers = &seen.last().unwrap()["trailers"];
            assert_eq!(*trailers, json!([["x-check", "8"]]), "{:?} {version:?}", upstream.kind);
        }
    }
}

#[tokio::test]
async fn what_belongs_to_a_connection_is_not_passed_on() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let headers =
            json!([["Keep-Alive", "timeout=5"], ["Connection", "X-Theirs"], ["X-Theirs", "1"]]);
        for call in [pay("k"), pay("k").without_key(), Call::new("GET", "/")] {
            let call = call
                .header("connection", "x-mine, keep-alive")
                .header("x-mine", "1")
                .header("keep-alive", "timeout=5")
                .header("proxy-connection", "keep-alive")
                .header("te", "trailers")
                .header("upgrade", "websocket")
                .header("x-yours", "1")
                .told(json!({"status": 200, "headers": headers}));
            let reply = gateway.send(&call).await;
            assert_eq!(reply.status, 200);
            for name in ["x-mine", "keep-alive", "proxy-connection", "te", "upgrade"] {
                assert!(upstream.last_lines(name).await.is_empty(), "{name}");
            }
            assert_eq!(upstream.last_lines("x-yours").await, ["1"]);
            for name in ["x-theirs", "keep-alive"] {
                assert_eq!(reply.header(name), None, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_upstream_is_told_whom_a_request_is_forwarded_for() {
    let upstream = Upstream::any();
    let outside = Gateway::start(&upstream, &route(""));
    let trusting = format!("trusted_proxies = [\"127.0.0.0/8\"]\n{}", route(""));
    let behind = Gateway::start(&upstream, &trusting);
    for version in Version::BOTH {
        for call in [pay(&format!("{version:?}")), Call::new("GET", "/")] {
            let call =
                call.header("x-forwarded-for", "203.0.113.7").header("x-real-ip", "203.0.113.7");
            outside.send_by(version, &call).await;
            let host = outside.address.to_string();
            assert_eq!(upstream.last_lines("x-forwarded-for").await, ["127.0.0.1"]);
            assert_eq!(upstream.last_lines("x-forwarded-proto").await, ["http"]);
            assert_eq!(upstream.last_lines("x-forwarded-host").await, [host.as_str()]);
            assert!(upstream.last_lines("x-real-ip").await.is_empty());
            let forwarded = upstream.last_lines("forwarded").await;
            assert_eq!(forwarded, [format!("for=127.0.0.1;host=\"{host}\";proto=http")]);
            assert_eq!(upstream.last_lines("host").await, [host.as_str()], "{version:?}");
            behind.send_by(version, &call).await;
            let chain = upstream.last_lines("x-forwarded-for").await;
            assert_eq!(chain, ["203.0.113.7, 127.0.0.1"]);
        }
    }
}

#[tokio::test]
async fn cookies_that_http2_has_split_are_one_line_again() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for call in [pay("k"), Call::new("GET", "/")] {
            let call = call.header("cookie", "a=1").header("cookie", "b=2");
            gateway.send_by(Version::Http2, &call).await;
            assert_eq!(upstream.last_lines("cookie").await, ["a=1; b=2"]);
        }
    }
}

#[tokio::test]
async fn head_and_options_pass() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for version in Version::BOTH {
            let told = json!({"status": 200, "headers": [["Content-Length", "7"]]});
            let head = gateway.send_by(version, &Call::new("HEAD", "/file").told(told)).await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            assert_eq!(head.header("content-length"), Some("7"));
            let options = Call::new("OPTIONS", "/pay").told(json!({"status": 204}));
            assert_eq!(gateway.send_by(version, &options).await.status, 204);
        }
    }
}
