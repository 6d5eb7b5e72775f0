//! An API that is right has no finding, whatever else is special about it.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    run::{probe, probe_counted},
    server::{Answers, Nature, Server},
};

#[test]
fn a_right_api_has_the_full_score_in_every_profile_and_it_is_quick() {
    let begun = Instant::now();
    probe_counted(&Server::right(), &[]).assert_perfect("onceward", &[]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "it took {took:?}");
    probe_counted(&Server::right(), &["--profile", "ietf"]).assert_perfect("ietf", &[]);
    let stripe = Server::start(Nature { mismatch: 400, ..Nature::default() });
    probe_counted(&stripe, &["--profile", "stripe"]).assert_perfect("stripe", &[]);
}

#[test]
fn what_cannot_be_seen_is_skipped() {
    let server = Server::start(Nature { answers: Answers::Json, ..Nature::default() });
    let skipped = ["fidelity-headers", "fidelity-binary"];
    probe_counted(&server, &[]).assert_perfect("JSON answers", &skipped);
    let skipped = ["fidelity-headers", "fidelity-binary", "disconnect"];
    probe(&server.url("/payments"), &[]).assert_perfect("no count", &skipped);
}

#[test]
fn an_api_that_serves_everybody_gives_nothing_away() {
    let server = Server::start(Nature { is_open: true, ..Nature::default() });
    let probed = probe_counted(&server, &[]);
    probed.assert_perfect("open", &["unauthenticated", "gate"]);
}

/// Who does not know what became of a request and says so misleads nobody, in whatever shape.
#[test]
fn an_api_that_says_that_an_outcome_is_unknown_is_no_finding() {
    const PROBLEM: &str = r#"{"title": "outcome unknown", "code": "outcome-unknown"}"#;
    const STRIPE: &str = r#"{"error": {"type": "idempotency_error", "code": "outcome-unknown"}}"#;
    const FAULT: &str = r#"{"error": {"type": "api_error", "code": "outcome-unknown"}}"#;
    const BUSY: &str = r#"{"error": {"type": "idempotency_error", "code": "busy"}}"#;
    thread::scope(|scope| {
        for (status, document, result) in [
            (409, PROBLEM, "pass"),
            (409, STRIPE, "pass"),
            (504, PROBLEM, "pass"),
            (504, FAULT, "pass"),
            (409, BUSY, "fail"),
            (504, BUSY, "skip"),
        ] {
            scope.spawn(move || {
                let lost = Some((status, document));
                let server = Server::start(Nature { lost, ..Nature::default() });
                let probed = probe_counted(&server, &["--only", "disconnect"]);
                assert_eq!(probed.ids(result), ["disconnect"], "{status} {document}: {probed}");
            });
        }
    });
}

#[test]
fn an_api_that_takes_the_same_data_once_only_is_no_finding() {
    let server = Server::start(Nature { is_unique: true, ..Nature::default() });
    let data = r#"{"order": "{{uuid}}", "cents": 500}"#;
    probe_counted(&server, &["--data", data]).assert_perfect("unique", &[]);
}

#[test]
fn an_api_that_refuses_large_requests_is_no_finding() {
    let server = Server::start(Nature { largest: Some(100_000), ..Nature::default() });
    let probed = probe_counted(&server, &[]);
    probed.assert_fails("largest", &[]);
    // It may close the connection before its answer was read.
    assert!(probed.ids("skip").iter().all(|id| id == "mismatch-tail"), "{probed}");
}

#[test]
fn an_api_that_limits_requests_is_no_finding() {
    let server = Server::start(Nature { budget: Some(20), ..Nature::default() });
    let probed = probe_counted(&server, &[]);
    probed.assert_fails("budget", &[]);
    assert!(probed.stdout.contains("lower --rate or --duplicates"), "{probed}");
}

#[test]
fn an_api_that_is_not_there_at_times_is_no_finding() {
    thread::scope(|scope| {
        for every in [1, 2, 5, 7] {
            scope.spawn(move || {
                let server = Server::start(Nature { flaky: Some(every), ..Nature::default() });
                let probed = probe_counted(&server, &[]);
                probed.assert_fails("flaky", &[]);
                assert_eq!(server.requests(), probed.json()["requests"], "{probed}");
                assert!(probed.stdout.contains("not there at times: 503"), "{probed}");
            });
        }
    });
}

#[test]
fn a_changed_request_that_is_refused_by_itself_says_nothing() {
    let other = r#"{"to": "ada", "cents": "many"}"#;
    let probed = probe_counted(&Server::right(), &["--other-data", other]);
    probed.assert_perfect("other data", &["mismatch", "mismatch-status"]);
    assert!(probed.stdout.contains("give --other-data"), "{probed}");
}
