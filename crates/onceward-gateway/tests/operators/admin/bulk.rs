//! Many unknown outcomes at once.

use serde_json::{Value, json};

use crate::admin::{listed, lose, pay, post, start};

fn many(filter: &Value, dry_run: bool) -> crate::gateway_support::Call {
    let document =
        json!({"filter": filter, "outcome": "applied", "reason": "all booked", "dry_run": dry_run});
    post("/v1/resolve", document)
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing() {
    let (_upstream, gateway) = start().await;
    for key in ["a", "b", "c"] {
        lose(&gateway, key).await;
    }
    gateway.send(&pay("paid")).await;
    let dry = gateway.ask(&many(&json!({}), true)).await.json();
    assert_eq!(dry["resolved"].as_array().unwrap().len(), 3, "{dry}");
    assert_eq!(listed(&gateway, "?state=unknown").await.len(), 3);
    let real = gateway.ask(&many(&json!({"limit": 2}), false)).await.json();
    assert_eq!(real["resolved"].as_array().unwrap().len(), 2);
    let next = real["next"].as_str().unwrap();
    let rest = gateway.ask(&many(&json!({"after": next}), false)).await.json();
    assert_eq!(rest["resolved"].as_array().unwrap().len(), 1);
    assert_eq!(listed(&gateway, "?state=unknown").await.len(), 0);
    for line in listed(&gateway, "?state=succeeded").await {
        let reference = line["operation"].as_str().unwrap();
        let shown = gateway.ask(&crate::admin::show(reference)).await.json();
        if shown["answer"]["kept"] == "unavailable" {
            assert_eq!(shown["trail"].as_array().unwrap().last().unwrap()["reason"], "all booked");
        }
    }
}

#[tokio::test]
async fn only_what_the_filter_selects_is_resolved() {
    let (_upstream, gateway) = start().await;
    let of_alice = lose(&gateway, "a").await;
    let scope = listed(&gateway, "").await[0]["scope"].as_str().unwrap().to_owned();
    for filter in [json!({"older": "1h"}), json!({"name": "refund"}), json!({"scope": "global"})] {
        let none = gateway.ask(&many(&filter, false)).await.json();
        assert_eq!(none["resolved"], json!([]), "{filter}");
    }
    let one = gateway.ask(&many(&json!({"scope": scope, "state": "unknown"}), false)).await.json();
    assert_eq!(one["resolved"], json!([of_alice]));
}

#[tokio::test]
async fn what_cannot_be_resolved_is_left_and_named() {
    let (upstream, gateway) = start().await;
    let slow = format!("admin = \"127.0.0.1:0\"\n{}", crate::gateway_support::route(""));
    let patient = crate::gateway_support::Gateway::start(&upstream, &slow);
    let lost = lose(&patient, "k").await;
    let document = json!({"filter": {}, "outcome": "not_applied", "reason": "x", "dry_run": false});
    for is_dry in [true, false] {
        let mut document = document.clone();
        document["dry_run"] = is_dry.into();
        let left = patient.ask(&post("/v1/resolve", document)).await.json();
        assert_eq!(left["resolved"], json!([]));
        assert_eq!(
            (&left["left"][0]["operation"], &left["left"][0]["code"]),
            (&json!(lost), &json!("too-early"))
        );
    }
    for (filter, word) in
        [(json!({"state": "succeeded"}), "unknown"), (json!({"limit": 0}), "limit")]
    {
        let wrong = gateway.ask(&many(&filter, true)).await;
        assert_eq!(wrong.problem(), (400, "malformed".into()));
        assert!(wrong.text().contains(word), "{}", wrong.text());
    }
}
