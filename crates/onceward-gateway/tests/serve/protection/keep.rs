//! `keep = "status"`: nothing of an answer is stored but its status and where the result is.

use serde_json::json;

use crate::{
    gateway_support::{Gateway, Upstream, route},
    protection::{pay, shows},
};

#[tokio::test]
async fn only_the_status_and_the_location_are_stored() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("keep = \"status\""));
    let headers = json!([["Location", "/payments/7"], ["X-Planted", "a planted header"]]);
    let told = json!({"body": "a planted body", "headers": headers});
    let first = gateway.send(&pay("k").told(told)).await;
    assert_eq!((first.status, first.text()), (201, "a planted body"));
    for _ in 0..2 {
        let again = gateway.send(&pay("k")).await;
        assert_eq!(again.problem(), (409, "result-unavailable".into()));
        assert_eq!(again.header("location"), Some("/payments/7"));
        assert!(again.text().contains("status 201"), "{}", again.text());
    }
    for text in ["a planted body", "a planted header", "x-planted"] {
        assert!(!shows(&gateway, text), "{text}");
    }
    assert!(shows(&gateway, "/payments/7"), "the files are the right ones");
    let status = gateway.status_of(&first, &pay("k")).await;
    assert_eq!(
        (&status.json()["state"], &status.json()["status"]),
        (&json!("succeeded"), &json!(201))
    );
    let other = gateway.send(&pay("k").json(json!({"amount": 6}))).await;
    assert_eq!(other.problem(), (422, "key-reused".into()));
    assert_eq!(upstream.count().await, 1);
}
