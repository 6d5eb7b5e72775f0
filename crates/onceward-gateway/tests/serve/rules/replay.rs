//! Rules 16 to 18: a replay is the answer, byte for byte, or says why not.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    gateway_support::{Gateway, Upstream, Version, pattern, route, upstreams},
    rules::pay,
};

#[tokio::test]
async fn rule_16_a_replay_is_verbatim() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let headers = json!([
            ["X-Repeated", "1"],
            ["X-Repeated", "2"],
            ["X-Bytes", "\u{ff}\u{e9}"],
            ["Location", "/payments/7"],
            ["Content-Type", "application/octet-stream"],
        ]);
        for (index, version) in Version::BOTH.into_iter().enumerate() {
            for (framing, status) in [("length", 201), ("chunked", 422), ("close", 302)] {
                let told = json!({
                    "status": status, "framing": framing, "headers": headers,
                    "body": "\0\0 nul \u{ff} and more \0",
                });
                let call = pay(&format!("{framing}-{index}")).told(told);
                let first = gateway.send_by(version, &call).await;
                let again = gateway.send_by(version, &call.told(json!({}))).await;
                assert!(again.is_replay());
                assert_eq!((first.status, &first.body), (again.status, &again.body));
                assert_eq!(&first.body[..], b"\0\0 nul \xff and more \0");
                let lines = |name| first.headers.get_all(name).iter().collect::<Vec<_>>();
                assert_eq!(lines("x-repeated"), ["1", "2"]);
                assert_eq!(first.headers["x-bytes"].as_bytes(), b"\xff\xe9");
                for name in first.headers.keys().filter(|name| *name != "date") {
                    let again: Vec<_> = again.headers.get_all(name).iter().collect();
                    assert_eq!(lines(name.as_str()), again, "{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn rule_16_what_belongs_to_one_exchange_is_not_repeated() {
    let upstream = Upstream::any();
    let lines = "keep_headers = [\"set-cookie\"]\ndrop_headers = [\"x-private\"]";
    let gateway = Gateway::start(&upstream, &route(lines));
    let plain = Gateway::start(&upstream, &route(""));
    let names = ["Age", "Server-Timing", "X-Request-Id", "Traceparent", "RateLimit-Limit"];
    let mut headers: Vec<_> = names.iter().map(|name| json!([name, "1"])).collect();
    headers.extend([json!(["Set-Cookie", "a=1"]), json!(["X-Private", "1"])]);
    headers.extend([json!(["Connection", "X-Nominated"]), json!(["X-Nominated", "1"])]);
    let call = pay("k").told(json!({ "headers": headers }));
    let (first, again) = (gateway.send(&call).await, gateway.send(&call).await);
    for name in names.iter().chain(&["X-Private"]) {
        assert_eq!((first.header(name), again.header(name)), (Some("1"), None), "{name}");
    }
    assert_eq!((first.header("x-nominated"), again.header("x-nominated")), (None, None));
    assert_eq!(again.header("set-cookie"), Some("a=1"));
    plain.send(&call).await;
    assert_eq!(plain.send(&call).await.header("set-cookie"), None);
}

#[tokio::test]
async fn rule_16_trailers_are_replayed() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let told = json!({"framing": "chunked", "trailers": [["x-sum", "7"]]});
        let call = pay("k").told(told).header("te", "trailers");
        for version in [Version::Http1, Version::Http2, Version::Http1] {
            let reply = gateway.send_by(version, &call).await;
            let trailers = reply.trailers.unwrap_or_default();
            assert_eq!(trailers.get("x-sum").unwrap(), "7", "{:?} {version:?}", upstream.kind);
        }
    }
}

#[tokio::test]
async fn rule_16_an_answer_without_a_body_has_none_again() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    for (index, version) in Version::BOTH.into_iter().enumerate() {
        let call = pay(&format!("k-{index}")).told(json!({"status": 204}));
        for _ in 0..2 {
            let reply = gateway.send_by(version, &call).await;
            assert_eq!((reply.status, reply.body.len()), (204, 0));
            assert_eq!(reply.header("transfer-encoding"), None);
        }
    }
}

#[tokio::test]
async fn rule_17_first_answer_and_replay_agree_on_their_dates() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    for status in [201, 404, 500] {
        let call = pay(&format!("k-{status}")).told(json!({ "status": status }));
        let (first, again) = (gateway.send(&call).await, gateway.send(&call).await);
        for name in ["idempotency-expires", "idempotency-completed", "onceward-operation"] {
            assert!(first.header(name).is_some(), "{name}");
            assert_eq!(first.header(name), again.header(name), "{name}");
        }
    }
    let refused = gateway.send(&pay("no key")).await;
    assert_eq!(refused.header("idempotency-expires"), None);
}

#[tokio::test]
async fn rule_18_large_answers_are_kept_whole() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for size in [64 << 10, (64 << 10) + 1, 3 << 20] {
            let sum = Sha256::digest(pattern(size));
            for framing in ["length", "chunked"] {
                let told = json!({"size": size, "framing": framing});
                let call = pay(&format!("{framing}-{size}")).told(told);
                for version in [Version::Http1, Version::Http1, Version::Http2] {
                    let reply = gateway.send_by(version, &call).await;
                    assert_eq!((reply.status, reply.body.len()), (201, size));
                    assert_eq!(Sha256::digest(&reply.body), sum);
                }
            }
        }
        assert_eq!(upstream.count().await, 6);
    }
}

#[tokio::test]
async fn rule_18_an_answer_that_is_too_large_streams_once_and_is_never_made_again() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route("max_response = \"100KiB\""));
        for framing in ["length", "chunked"] {
            let headers = json!([["Location", "/reports/7"]]);
            let told = json!({"size": 2 << 20, "framing": framing, "headers": headers});
            let call = pay(framing).told(told);
            let first = gateway.send(&call).await;
            assert_eq!((first.status, first.body.len()), (201, 2 << 20));
            assert!(first.body == pattern(2 << 20));
            let again = gateway.send(&call).await;
            assert_eq!(again.problem(), (409, "result-unavailable".into()));
            assert_eq!(again.header("location"), Some("/reports/7"));
        }
        let headers = json!([["Content-Type", "text/event-stream"]]);
        let call = pay("events").told(json!({"framing": "chunked", "headers": headers}));
        assert_eq!(gateway.send(&call).await.status, 201);
        assert_eq!(gateway.send(&call).await.problem(), (409, "result-unavailable".into()));
        assert_eq!(upstream.count().await, 3);
    }
}

#[tokio::test]
async fn rule_18_a_large_answer_that_breaks_off_is_never_stored() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for framing in ["length", "chunked"] {
            let told = json!({"size": 1 << 20, "cut": 500_000, "framing": framing});
            let call = pay(framing).told(told);
            let first = gateway.send(&call).await;
            assert_eq!(first.problem(), (504, "outcome-unknown".into()));
            let again = gateway.send(&call).await;
            assert_eq!(again.problem(), (409, "outcome-unknown".into()));
        }
        assert_eq!(upstream.count().await, 2);
    }
}
