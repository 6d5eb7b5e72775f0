//! `redact_headers` and `redact_json`: what is hidden is never stored, and a replay says so.

use std::time::Duration;

use serde_json::json;

use crate::{
    gateway_support::{Gateway, Upstream, route, upstreams},
    protection::{pay, shows},
};

const RULES: &str = "redact_headers = [\"X-Secret\"]\n\
                     redact_json = [\"/card/number\", \"/items/*/cvv\", \"/key\"]\n";

fn card() -> String {
    r#"{"id":7, "card": {"number":"4242-planted","exp":"12/30"},"items":[{"cvv":"planted-1"}]}"#
        .into()
}

#[tokio::test]
async fn the_first_client_gets_everything_and_a_replay_what_was_stored() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(RULES));
        let told = json!({"body": card(), "headers": [
            ["Content-Type", "application/json"], ["X-Secret", "planted-2"], ["X-Open", "1"],
            ["ETag", "\"of-the-whole\""], ["Content-Digest", "sha-256=:of-the-whole:"],
        ]});
        let first = gateway.send(&pay("k").told(told)).await;
        assert_eq!((first.text(), first.header("x-secret")), (card().as_str(), Some("planted-2")));
        assert_eq!(first.header("onceward-redacted"), None);
        let again = gateway.send(&pay("k")).await;
        assert!(again.is_replay());
        assert_eq!(again.header("onceward-redacted"), Some("true"));
        let hidden = r#"{"id":7, "card": {"number":"[redacted]","exp":"12/30"},"items":[{"cvv":"[redacted]"}]}"#;
        assert_eq!((again.status, again.text()), (first.status, hidden));
        assert_eq!(again.header("x-secret"), Some("[redacted]"));
        assert_eq!(again.header("x-open"), Some("1"));
        assert_eq!(again.header("content-type"), Some("application/json"));
        let length = hidden.len().to_string();
        assert!(again.header("content-length").is_none_or(|said| said == length));
        assert_eq!((again.header("etag"), again.header("content-digest")), (None, None));
        for text in ["4242-planted", "planted-1", "planted-2", "of-the-whole"] {
            assert!(!shows(&gateway, text), "{text}");
        }
        assert!(shows(&gateway, "12/30"), "the rest is there");
        assert_eq!(upstream.count().await, 1);
    }
}

#[tokio::test]
async fn whoever_waits_gets_what_was_stored() {
    let upstream = Upstream::any();
    let lines = format!("{RULES}in_flight = \"wait\"\nwait = \"20s\"");
    let gateway = Gateway::start(&upstream, &route(&lines));
    let call = pay("k").told(json!({"body": card(), "gate": "g"}));
    let first = gateway.begin(&call);
    upstream.arrival(1).await;
    let waiter = gateway.begin(&call);
    tokio::time::sleep(Duration::from_millis(200)).await;
    upstream.open("g").await;
    assert_eq!(first.await.unwrap().text(), card());
    let waiter = waiter.await.unwrap();
    assert!(waiter.is_replay() && !waiter.text().contains("planted"), "{}", waiter.text());
    assert_eq!(waiter.header("onceward-redacted"), Some("true"));
}

#[tokio::test]
async fn answers_that_are_too_large_for_a_record_are_redacted_as_well() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(RULES));
        let call = pay("k").told(json!({"body": card(), "pad": 200_000}));
        let first = gateway.send(&call).await;
        assert!(first.text().starts_with(&card()) && first.body.len() > 200_000);
        let again = gateway.send(&call).await;
        assert!(again.is_replay(), "{:?}", again.problem());
        assert_eq!(again.json()["card"], json!({"number": "[redacted]", "exp": "12/30"}));
        assert!(again.body.len() > 200_000);
        assert_eq!(again.header("onceward-redacted"), Some("true"));
        assert!(!shows(&gateway, "4242-planted") && shows(&gateway, "12/30"));
    }
}

#[tokio::test]
async fn what_cannot_be_redacted_is_not_kept() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(RULES));
    let gzip = json!([["Content-Encoding", "gzip"], ["Location", "/payments/7"]]);
    let cases = [
        ("text", json!({"body": "number 4242-planted"})),
        ("broken", json!({"body": "{\"card\":{\"number\":\"4242-planted\"}"})),
        ("twice", json!({"body": "{\"card\":{\"number\":\"4242-planted\"},\"card\":{}}"})),
        ("encoded", json!({"body": "{\"card\":{\"number\":\"4242-planted\"}}", "headers": gzip})),
        ("large", json!({"size": 200_000})),
    ];
    for (key, told) in &cases {
        let first = gateway.send(&pay(key).told(told.clone())).await;
        assert_eq!(first.status, 201, "{key}");
        let again = gateway.send(&pay(key)).await;
        assert_eq!(again.problem(), (409, "result-unavailable".into()), "{key}");
        let location = (*key == "encoded").then_some("/payments/7");
        assert_eq!((again.header("location"), again.header("onceward-redacted")), (location, None));
    }
    assert!(!shows(&gateway, "4242-planted"));
    assert_eq!(upstream.count().await, cases.len() as u64);
}

#[tokio::test]
async fn what_has_nothing_to_hide_is_kept_byte_by_byte() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(RULES));
    let bodies = ["", "{ \"b\": 1.50, \"a\" : [ 1e3 ] }\n", "[]", "\"4242\""];
    for (index, body) in bodies.into_iter().enumerate() {
        // An upstream may say what it likes about redaction: it is not believed.
        let said = json!([["Onceward-Redacted", "true"], ["ETag", "\"7\""]]);
        let call = pay(&format!("k{index}")).told(json!({"body": body, "headers": said}));
        let (first, again) = (gateway.send(&call).await, gateway.send(&call).await);
        assert!(again.is_replay(), "{body}");
        assert_eq!((first.text(), again.text()), (body, body));
        assert_eq!(
            (first.header("onceward-redacted"), again.header("onceward-redacted")),
            (None, None)
        );
        assert_eq!(again.header("etag"), Some("\"7\""));
    }
}
