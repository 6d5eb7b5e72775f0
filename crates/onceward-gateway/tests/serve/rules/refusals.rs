//! Rule 24: what a refusal says.

use serde_json::{Value, json};

use crate::gateway_support::{Call, Gateway, Plan, Reply, Upstream, free_address, route_for};

/// Routes with and without keys; `/elsewhere` matches none.
fn routes() -> String {
    route_for("POST,PUT,PATCH /here/{id}", "")
        + &route_for("POST,PUT,PATCH /off/{id}", "key = \"off\"")
        + &route_for("POST,PUT /late", "key = \"off\"\ntimeout = \"200ms\"")
}

fn said(reply: &Reply) -> (u16, Option<String>, Value, Value) {
    let document = reply.json();
    let member = |name: &str| document[name].clone();
    (reply.status, reply.code(), member("retryable"), member("safe_new_key"))
}

#[tokio::test]
async fn rule_24_a_write_without_a_key_that_may_have_happened_is_not_called_retryable() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &routes());
    let (no, yes) = (json!(false), json!(true));
    let mut sent = 0;
    for path in ["/here/1", "/off/1", "/elsewhere"] {
        for (method, retryable) in [("POST", &no), ("PATCH", &no), ("PUT", &yes)] {
            let call = Call::new(method, path).header("x-api-key", "alice").body("{}");
            let reply = gateway.send(&call.told(json!({"hang_up": true}))).await;
            let expected = (502, Some("upstream-failed".into()), retryable.clone(), no.clone());
            assert_eq!(said(&reply), expected, "{method} {path}");
            sent += 1;
        }
    }
    assert_eq!(upstream.count().await, sent, "the upstream did each of them once");
    for (method, retryable) in [("POST", &no), ("PUT", &yes)] {
        let late = Call::new(method, "/late").told(json!({"delay": 30}));
        let expected = (504, Some("upstream-failed".into()), retryable.clone(), no.clone());
        assert_eq!(said(&gateway.send(&late).await), expected, "{method}");
    }
}

#[tokio::test]
async fn rule_24_a_write_without_a_key_that_was_never_sent_may_be_sent_again() {
    let gateway = Plan::new(&format!("http://{}", free_address().unwrap()), &routes()).start();
    for path in ["/here/1", "/off/1", "/elsewhere"] {
        let reply = gateway.send(&Call::post(path).header("x-api-key", "alice")).await;
        let code = Some("upstream-unreachable".into());
        assert_eq!(said(&reply), (502, code, json!(true), json!(false)), "{path}");
    }
}

#[tokio::test]
async fn rule_24_a_refusal_of_a_keyed_request_names_its_operation() {
    let gateway = Plan::new(&format!("http://{}", free_address().unwrap()), &routes()).start();
    let call = Call::post("/here/1").key("k").header("x-api-key", "alice");
    let mut named = Vec::new();
    for _ in 0..2 {
        let reply = gateway.send(&call).await;
        let code = Some("upstream-unreachable".into());
        assert_eq!(said(&reply), (502, code, json!(true), json!(false)));
        let operation = reply.json()["operation"].as_str().unwrap().to_owned();
        assert_eq!(reply.header("onceward-operation"), Some(operation.as_str()));
        assert_eq!(gateway.status_of(&reply, &call).await.json()["state"], "released");
        named.push(operation);
    }
    assert_eq!(named[0], named[1]);
}

const UNPROTECTED: &str = "onceward-unprotected";

#[tokio::test]
async fn rule_29_a_keyed_write_that_matches_no_route_is_marked_and_counted() {
    let upstream = Upstream::any();
    let text = format!("admin = \"127.0.0.1:0\"\n{}", routes());
    let gateway = Gateway::start(&upstream, &text);
    let keyed =
        |method: &str, path: &str| Call::new(method, path).key("k").header("x-api-key", "a");
    let unmatched =
        [("POST", "/Here/1"), ("POST", "/here/1/"), ("PATCH", "/x"), ("DELETE", "/here/1")];
    for (method, path) in unmatched {
        let reply = gateway.send(&keyed(method, path)).await;
        assert_eq!((reply.status, reply.header(UNPROTECTED)), (201, Some("no-route")), "{path}");
    }
    for (call, is_known) in [
        (keyed("GET", "/x"), "a read"),
        (keyed("POST", "/x").without_key(), "no key"),
        (keyed("POST", "/off/1").without_key(), "no key, which the route would not take"),
        (keyed("POST", "/here/1"), "it is protected"),
    ] {
        assert_eq!(gateway.send(&call).await.header(UNPROTECTED), None, "{is_known}");
    }
    let forged = json!({"headers": [["Onceward-Unprotected", "forged"]]});
    let reply = gateway.send(&keyed("POST", "/off/1").told(forged)).await;
    assert_eq!(reply.header(UNPROTECTED), Some("key-off"), "not what the upstream says");
    let forged = json!({"headers": [["Onceward-Unprotected", "forged"]]});
    let reply = gateway.send(&keyed("GET", "/x").told(forged)).await;
    assert_eq!(reply.header(UNPROTECTED), None, "the upstream's own copy is stripped");
    let series = "onceward_gateway_unmatched_total{result=\"passed\"}";
    assert_eq!(gateway.metric(series).await, unmatched.len() as u64);
}

#[tokio::test]
async fn rule_29_a_keyed_write_that_matches_no_route_may_be_refused() {
    let upstream = Upstream::any();
    let top = "admin = \"127.0.0.1:0\"\nunmatched = \"refuse\"\n";
    let gateway = Gateway::start(&upstream, &format!("{top}{}", routes()));
    let keyed =
        |method: &str, path: &str| Call::new(method, path).key("k").header("x-api-key", "a");
    for call in [keyed("POST", "/Here/1"), keyed("PUT", "/here/1/").body("{}")] {
        let reply = gateway.send(&call).await;
        let code = Some("route-missing".into());
        assert_eq!(said(&reply), (404, code, json!(false), json!(true)), "{call:?}");
    }
    assert_eq!(upstream.count().await, 0, "nothing was sent");
    let series = "onceward_gateway_unmatched_total{result=\"refused\"}";
    assert_eq!(gateway.metric(series).await, 2);
    for call in [keyed("GET", "/x"), keyed("POST", "/x").without_key(), keyed("POST", "/here/1")] {
        assert!(gateway.send(&call).await.status < 300, "{call:?}");
    }
}
