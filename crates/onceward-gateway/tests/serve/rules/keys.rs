//! Rules 1 to 4: which requests have a key, and which keys are keys.

use serde_json::json;

use crate::{
    gateway_support::{Call, Gateway, Upstream, Version, route, route_for, upstreams},
    rules::pay,
};

#[tokio::test]
async fn a_retry_gets_the_stored_answer_whatever_the_upstream_is_written_in() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        for (index, version) in Version::BOTH.into_iter().enumerate() {
            let call = pay(&format!("key-{index}"));
            let first = gateway.send_by(version, &call).await;
            let again = gateway.send_by(version, &call).await;
            assert_eq!((first.status, first.is_replay()), (201, false), "{:?}", upstream.kind);
            assert_eq!((again.status, again.is_replay()), (201, true));
            assert_eq!(first.body, again.body);
        }
        assert_eq!(upstream.count().await, 2);
    }
}

#[tokio::test]
async fn rule_1_quotes_are_not_part_of_a_key_and_letters_are() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let first = gateway.send(&pay("a")).await;
    let quoted = gateway.send_by(Version::Http2, &pay("\"a\"")).await;
    let large = gateway.send(&pay("A")).await;
    assert_eq!((first.is_replay(), quoted.is_replay(), large.is_replay()), (false, true, false));
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rules_1_and_2_what_is_not_a_key_is_refused_and_not_sent_on() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let long = "k".repeat(256);
    for key in ["", "\"\"", "a, b", "a b", "\"open", "k\u{fc}", long.as_str()] {
        for version in Version::BOTH {
            let reply = gateway.send_by(version, &pay(key)).await;
            assert_eq!(reply.problem(), (400, "key-invalid".into()), "{key:?}");
        }
    }
    let twice = gateway.send(&pay("a").header("idempotency-key", "a")).await;
    assert_eq!(twice.problem(), (400, "key-invalid".into()));
    let longest = gateway.send(&pay(&"k".repeat(255))).await;
    assert_eq!((longest.status, upstream.count().await), (201, 1));
}

#[tokio::test]
async fn rule_3_methods_that_no_route_names_pass_untouched_even_with_a_key() {
    let upstream = Upstream::any();
    let text = route_for("POST,PATCH,PUT,DELETE /chosen", "") + &route("");
    let gateway = Gateway::start(&upstream, &text);
    for method in ["POST", "PATCH", "PUT", "DELETE"] {
        let call = Call::new(method, "/chosen").key("k").header("x-api-key", "alice");
        gateway.send(&call).await;
        assert!(gateway.send(&call).await.is_replay(), "{method}");
    }
    assert_eq!(upstream.count().await, 4, "each method has its own keys");
    for method in ["GET", "PUT", "OPTIONS"] {
        let call = Call::new(method, "/pay").key("not, a key").told(json!({"status": 200}));
        for _ in 0..2 {
            let reply = gateway.send(&call).await;
            assert_eq!((reply.status, reply.is_replay()), (200, false), "{method}");
            assert_eq!(reply.header("onceward-operation"), None);
        }
    }
    assert_eq!(upstream.count().await, 10);
    let seen = upstream.seen().await;
    assert_eq!(seen[9]["key"], "not, a key", "what passes is as it was sent");
}

#[tokio::test]
async fn rule_4_a_missing_key_passes_unless_the_route_requires_it() {
    let upstream = Upstream::any();
    let text = route_for("POST /optional", "key = \"optional\"")
        + &route_for("POST /required", "key = \"required\"")
        + "[[route]]\nmatch = \"POST /off\"\nkey = \"off\"\n"
        + &route_for("POST /{*rest}", "key = \"required\"");
    let gateway = Gateway::start(&upstream, &text);
    for version in Version::BOTH {
        let optional = gateway.send_by(version, &Call::post("/optional")).await;
        assert_eq!((optional.status, optional.header("onceward-operation")), (201, None));
        let required = gateway.send_by(version, &Call::post("/required")).await;
        assert_eq!(required.problem(), (400, "key-missing".into()));
    }
    for _ in 0..2 {
        let off = gateway.send(&Call::post("/off").key("k")).await;
        assert_eq!((off.status, off.is_replay()), (201, false));
    }
    assert_eq!(upstream.count().await, 4);
}
