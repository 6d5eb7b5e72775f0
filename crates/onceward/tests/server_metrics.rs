//! Metrics: what is counted, whether the text is what scrapers read, and whether people can look it up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod metrics_text;
mod server_support;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use axum::{Router, body::Body, routing::post as on_post};
use http::Request;
use metrics_text::Exposition;
use onceward::{
    server::{Claim, Code, InFlight},
    telemetry::{self, Answered, Route},
};
use server_support::{Gate, eventually, layer, memory, post, send, store};
use tower::ServiceExt as _;

/// How many requests of a route were told this.
fn requests(route: &str, result: &str) -> f64 {
    let text = Exposition::parse(&telemetry::prometheus()).unwrap();
    text.value("onceward_requests_total", &[("route", route), ("result", result)]).unwrap_or(0.0)
}

fn value(name: &str, labels: &[(&str, &str)]) -> f64 {
    Exposition::parse(&telemetry::prometheus()).unwrap().value(name, labels).unwrap_or(0.0)
}

#[test]
fn every_metric_is_documented_and_nothing_else_is() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    // The tests of the client and of the gateway look at their own sections.
    let (page, _) = page.split_once("\n## The retrying client\n").unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `onceward_"));
    let documented: BTreeMap<String, &str> = rows
        .clone()
        .map(|row| {
            let (name, rest) = row.split_once("` | ").unwrap();
            (format!("onceward_{name}"), rest.split(" |").next().unwrap())
        })
        .collect();
    assert_eq!(documented.len(), rows.count(), "each once");
    let text = Exposition::parse(&telemetry::prometheus()).unwrap();
    for (name, kind) in &documented {
        assert_eq!(text.kind(name), Some(*kind), "{name}");
    }
    assert_eq!(text.families(), documented.len(), "the page and the code");
}

#[test]
fn the_text_is_valid_whatever_a_route_is_called() {
    Route::named("a \"b\" \\ c\nd é").count(Answered::Refused(Code::InProgress));
    let text = Exposition::parse(&telemetry::prometheus()).unwrap();
    let labels = [("route", "a \"b\" \\ c\nd é"), ("result", "in-progress")];
    assert_eq!(text.value("onceward_requests_total", &labels), Some(1.0));
}

#[test]
fn the_parser_of_this_test_is_strict() {
    for wrong in [
        "onceward_a 1\n",
        "# HELP a b\n# TYPE a counter\na 1\na 1\n",
        "# TYPE a counter\na{b=\"c\" 1\n",
        "# TYPE a counter\na{b=\"c} 1\n",
        "# TYPE a counter\na{b=\"\\x\"} 1\n",
        "# TYPE a counter\n1a 1\n",
        "# TYPE a counter\na x\n",
        "# TYPE a counter\na 1",
        "# TYPE a counter\n# TYPE a counter\na 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 2\n",
        "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 1\n",
    ] {
        assert!(Exposition::parse(wrong).is_err(), "{wrong:?}");
    }
    assert!(Exposition::parse("# TYPE a_total counter\na_total{b=\"c\"} 1\n").is_ok());
}

#[tokio::test]
async fn requests_are_counted_by_what_they_were_told() {
    let route = "metrics.told";
    let idempotency = layer(store()).operation(route).require_key().build().unwrap();
    let app = Router::new().route("/charges", on_post(async || "paid")).layer(idempotency);
    send(&app, post("/charges", "k", "{}")).await;
    send(&app, post("/charges", "k", "{}")).await;
    send(&app, post("/charges", "k", "{\"other\":1}")).await;
    let keyless = Request::post("/charges").body(Body::empty()).unwrap();
    send(&app, keyless).await;
    let answer = app.oneshot(post("/charges", "k", "{}")).await.unwrap();
    assert_eq!(answer.extensions().get(), Some(&Answered::Replayed));
    let counted = ["first", "replayed", "key-reused", "key-missing", "passed", "waited"];
    assert_eq!(counted.map(|result| requests(route, result)), [1.0, 2.0, 1.0, 1.0, 0.0, 0.0]);
    let duration = value("onceward_request_duration_seconds_count", &[("route", route)]);
    assert_eq!(duration, 5.0, "each of them took some time");
}

#[tokio::test]
async fn what_has_no_key_is_passed_and_what_is_not_covered_is_not_counted() {
    let idempotency = layer(store()).route_label("metrics.passed").build().unwrap();
    let handler = on_post(async || "paid").get(async || "charges");
    let app = Router::new().route("/charges", handler).layer(idempotency);
    for request in [Request::post("/charges"), Request::get("/charges")] {
        send(&app, request.body(Body::empty()).unwrap()).await;
    }
    assert_eq!(requests("metrics.passed", "passed"), 1.0);
}

#[tokio::test]
async fn a_route_without_a_name_is_counted_by_its_template_and_never_by_its_path() {
    let idempotency = layer(store()).build().unwrap();
    let app = Router::new()
        .route("/metrics-template/{id}", on_post(async || "paid"))
        .fallback(async || "nobody")
        .layer(idempotency);
    send(&app, post("/metrics-template/secret-7", "k", "{}")).await;
    assert_eq!(requests("POST /metrics-template/{id}", "first"), 1.0);
    send(&app, post("/metrics-elsewhere/secret-7", "k", "{}")).await;
    assert!(!telemetry::prometheus().contains("secret-7"));
}

#[tokio::test]
async fn waiters_are_counted_while_they_wait_and_after() {
    let route = "metrics.waited";
    let idempotency = layer(memory())
        .operation(route)
        .in_flight(InFlight::Wait(Duration::from_secs(5)))
        .build()
        .unwrap();
    let gate = Gate::closed();
    let handler = {
        let gate = gate.clone();
        async move |_: Claim| {
            gate.pass().await;
            "paid"
        }
    };
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let before = value("onceward_wait_duration_seconds_count", &[]);
    let both = async {
        tokio::join!(
            send(&app, post("/charges", "k", "{}")),
            send(&app, post("/charges", "k", "{}")),
        )
    };
    let watch = async {
        gate.reached().await;
        eventually(async || value("onceward_waiters", &[]) >= 1.0).await;
        assert!(value("onceward_unsettled", &[("kind", "execution")]) >= 1.0);
        gate.open();
    };
    tokio::join!(both, watch);
    assert_eq!((requests(route, "first"), requests(route, "waited")), (1.0, 1.0));
    assert!(value("onceward_wait_duration_seconds_count", &[]) > before);
}

#[tokio::test]
async fn what_the_engine_does_is_counted() {
    let names = [
        ("onceward_claims_total", ("attempt", "first")),
        ("onceward_executions_total", ("state", "succeeded")),
        ("onceward_answers_total", ("kept", "inline")),
        ("onceward_store_call_duration_seconds_count", ("call", "swap")),
        ("onceward_answer_bytes_count", ("kept", "inline")),
    ];
    let counted = || names.map(|(name, label)| value(name, &[label]));
    let before = counted();
    let idempotency = layer(store()).operation("metrics.engine").build().unwrap();
    let app = Router::new().route("/charges", on_post(async || "paid")).layer(idempotency);
    send(&app, post("/charges", "k", "{}")).await;
    let after = counted();
    assert!(
        before.iter().zip(&after).all(|(before, after)| before < after),
        "{before:?} {after:?}"
    );
}
