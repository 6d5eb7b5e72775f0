//! The log: one object for each line, nothing in it that is secret.

use serde_json::{Value, json};

use crate::{
    gateway_support::{Finished, Gateway, Plan, Upstream, command, free_address, route},
    observe::{assert_no_secret, pay},
};

/// The first event of this name, as the gateway wrote it.
fn wait_for_event(gateway: &Gateway, event: &str) -> (Value, String) {
    let said = gateway.wait_for(&format!("\"event\":\"{event}\""));
    let line = said.lines().last().unwrap();
    (serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")), said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_keyed_request_is_one_json_object_that_holds_no_secret() {
    let upstream = Upstream::any();
    let gateway = Plan::new(&upstream.url(), &route("name = \"pay\""))
        .variable("ONCEWARD_LOG", "warn,onceward=trace,hyper=trace,h2=trace")
        .variable("ONCEWARD_LOG_FORMAT", "json")
        .start();
    let first = gateway.send(&pay()).await;
    let (event, _) = wait_for_event(&gateway, "request");
    let operation = first.header("onceward-operation").unwrap();
    for (field, expected) in [
        ("level", json!("INFO")),
        ("target", json!("onceward::request")),
        ("route", json!("pay")),
        ("result", json!("first")),
        ("status", json!(201)),
        ("operation", json!(operation)),
        ("attempt", json!(1)),
    ] {
        assert_eq!(event[field], expected, "{field} of {event}");
    }
    assert!(event["duration_ms"].as_f64().unwrap() > 0.0, "{event}");
    assert!(gateway.send(&pay()).await.is_replay());
    let (event, said) = wait_for_event(&gateway, "request");
    assert_eq!((&event["result"], &event["attempt"]), (&json!("replayed"), &Value::Null));
    assert!(said.contains("\"event\":\"received\""), "everything is logged here: {said}");
    assert_no_secret(&said);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_logged_with_its_event_and_without_secrets() {
    let nobody = format!("http://{}", free_address().unwrap());
    for format in ["text", "json"] {
        let plan = Plan::new(&nobody, &route("")).variable("ONCEWARD_LOG_FORMAT", format);
        let gateway = plan.start();
        assert_eq!(gateway.send(&pay()).await.status, 502);
        let said = gateway.wait_for("upstream_failed");
        let line = said.lines().last().unwrap();
        assert_eq!(format == "json", serde_json::from_str::<Value>(line).is_ok(), "{line}");
        assert!(!said.contains("onceward::request"), "only if it is asked for: {said}");
        assert_no_secret(&said);
    }
}

#[test]
fn a_format_that_does_not_exist_is_refused() {
    let mut command = command(&["serve", "--upstream", "http://127.0.0.1:1"]);
    let refused = Finished::of(command.env("ONCEWARD_LOG_FORMAT", "yaml"));
    assert!(!refused.is_success(), "{refused}");
    assert!(refused.stderr.contains("say `text` or `json`"), "{refused}");
}
