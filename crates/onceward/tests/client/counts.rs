//! What the client counts about itself, and what its observer hears while it runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use onceward::{client::Event, telemetry};

use crate::{
    fast::{impatient, post, send},
    server::{Server, Step},
};

/// How many were counted in this series.
fn counted(series: &str) -> u64 {
    let text = telemetry::prometheus();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn attempts_ends_stops_and_late_answers_are_counted() {
    // Other tests count in the same process: at least, and never exactly.
    let least = [
        ("onceward_client_attempts_total{kind=\"first\"}", 1),
        ("onceward_client_attempts_total{kind=\"retry\"}", 2),
        ("onceward_client_calls_total{result=\"unknown\"}", 1),
        ("onceward_client_stops_total{reason=\"attempts\"}", 1),
        ("onceward_client_late_total", 3),
    ];
    let before = least.map(|(series, _)| counted(series));
    let server = Server::script([Step::Silence]).await;
    send(&impatient(), post(&server.url("/"))).await.unwrap_err();
    for ((series, least), before) in least.into_iter().zip(before) {
        assert!(counted(series) >= before + least, "{series}");
    }
}

#[tokio::test]
async fn every_metric_of_the_client_is_documented_and_nothing_else_is() {
    let server = Server::script([Step::status(201)]).await;
    send(&impatient(), post(&server.url("/"))).await.unwrap();
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `onceward_client_"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let text = telemetry::prometheus();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE onceward_client_"));
    let shown: BTreeSet<&str> = shown.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(documented, shown);
}

#[tokio::test]
async fn an_observer_hears_of_every_step_in_order() {
    let server = Server::script([Step::status(500), Step::status(201)]).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let retry = impatient().observe(move |event| {
        heard.lock().unwrap().push(match event {
            Event::Began { attempt, key, .. } => {
                assert!(key.is_some());
                format!("began {attempt}")
            }
            Event::Ended { attempt, budget_left } => {
                format!("{} {}, {}", attempt.number, attempt.status.unwrap(), budget_left.unwrap())
            }
            Event::Waiting { budget_left, .. } => format!("waiting, {}", budget_left.unwrap()),
            other => format!("{other:?}"),
        });
    });
    send(&retry, post(&server.url("/"))).await.unwrap();
    let expected = [
        "began 1",
        "1 500 Internal Server Error, 20",
        "waiting, 20",
        "began 2",
        "2 201 Created, 30",
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}
