//! What the client counts about itself, and what it tells while it runs.

use std::sync::{Arc, Mutex};

use onceward::{
    client::Event,
    telemetry::{self, CallEnd, SentAs, StopLabel},
};

use crate::{
    fast::{impatient, post, send},
    server::{Server, Step},
};

#[tokio::test]
async fn attempts_ends_stops_and_late_answers_are_counted() {
    // Other tests count in the same process: at least, and never exactly.
    let before = (
        telemetry::CLIENT_ATTEMPTS.get(SentAs::First),
        telemetry::CLIENT_ATTEMPTS.get(SentAs::Retry),
        telemetry::CLIENT_CALLS.get(CallEnd::Unknown),
        telemetry::CLIENT_STOPS.get(StopLabel::Attempts),
        telemetry::CLIENT_LATE.get(()),
    );
    let server = Server::script([Step::Silence]).await;
    send(&impatient(), post(&server.url("/"))).await.unwrap_err();
    assert!(telemetry::CLIENT_ATTEMPTS.get(SentAs::First) > before.0);
    assert!(telemetry::CLIENT_ATTEMPTS.get(SentAs::Retry) >= before.1 + 2);
    assert!(telemetry::CLIENT_CALLS.get(CallEnd::Unknown) > before.2);
    assert!(telemetry::CLIENT_STOPS.get(StopLabel::Attempts) > before.3);
    assert!(telemetry::CLIENT_LATE.get(()) >= before.4 + 3);
    let text = telemetry::prometheus();
    assert!(text.contains("onceward_client_attempts_total{kind=\"retry\"}"), "{text}");
}

#[tokio::test]
async fn an_observer_is_told_of_every_step_in_order() {
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
                format!(
                    "{} {}, {}",
                    attempt.number(),
                    attempt.status().unwrap(),
                    budget_left.unwrap()
                )
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
