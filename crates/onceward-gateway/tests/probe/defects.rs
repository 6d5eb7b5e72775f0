//! One fault at a time: the probe finds it, and nothing else.

use std::thread;

use crate::{
    run::probe_counted,
    server::{Defect, Nature, Server},
};

/// All at the same time, each with a server of its own.
fn assert_found(expected: &[(Defect, &[&str])]) {
    thread::scope(|scope| {
        for &(defect, ids) in expected {
            scope.spawn(move || {
                let probed = probe_counted(&Server::wrong(defect), &[]);
                probed.assert_fails(&format!("{defect:?}"), ids);
            });
            // Alone it is found as well, so that a mended API can be asked again.
            if let [id] = ids {
                scope.spawn(move || {
                    let again = probe_counted(&Server::wrong(defect), &["--only", id]);
                    again.assert_fails(&format!("{defect:?} alone"), ids);
                    assert_eq!(again.checks().len(), 1, "{again}");
                });
            }
        }
    });
}

#[test]
fn retries_that_are_done_again() {
    assert_found(&[
        (Defect::NoIdempotency, &["once", "concurrent", "disconnect", "mismatch"]),
        // The retry of who left meets the first, which is still running.
        (Defect::LookThenStore, &["concurrent", "disconnect"]),
        (Defect::TwiceAfterDisconnect, &["disconnect"]),
        (Defect::LockedAfterDisconnect, &["disconnect"]),
        (Defect::BusyIs500, &["in-flight", "disconnect"]),
        (Defect::NoRetryAfter, &["retry-after"]),
    ]);
}

#[test]
fn replays_that_differ() {
    assert_found(&[
        (Defect::StatusChanged, &["replay-status"]),
        (Defect::BodyRebuilt, &["replay-body", "fidelity-binary"]),
        (Defect::BinaryAsText, &["replay-body", "fidelity-binary"]),
        (Defect::ContentTypeLost, &["replay-headers"]),
        (Defect::HeadersCollapsed, &["fidelity-headers"]),
        (Defect::ErrorBecomes200, &["error-status"]),
    ]);
}

#[test]
fn what_answers_say_of_themselves() {
    assert_found(&[
        (Defect::MarkerMissing, &["marker"]),
        (Defect::MarkerOnFirst, &["marker-first"]),
        (Defect::ExpiryMissing, &["expiry"]),
        (Defect::ExpiryMoves, &["expiry"]),
        (Defect::PlainErrors, &["problem-json"]),
    ]);
}

#[test]
fn requests_that_are_confused() {
    assert_found(&[
        (Defect::MismatchReplayed, &["mismatch"]),
        (Defect::MismatchExecuted, &["mismatch"]),
        (Defect::QueryIgnored, &["mismatch-query"]),
        (Defect::OnlyFirstMegabyte, &["mismatch-tail"]),
        (Defect::RawBytes, &["json-order"]),
        (Defect::ChunkedIsMismatch, &["chunked"]),
        (Defect::ChunkedIsAnotherKey, &["chunked"]),
    ]);
}

#[test]
fn callers_that_are_confused() {
    assert_found(&[
        (Defect::NoScope, &["scope"]),
        (Defect::StoredWithoutCredential, &["unauthenticated"]),
        (Defect::RefusalStored, &["gate"]),
    ]);
}

#[test]
fn keys_that_are_read_wrongly() {
    assert_found(&[
        (Defect::CaseFolded, &["key-case"]),
        (Defect::QuotedIsAnotherKey, &["key-quoted"]),
        (Defect::LongKeysCut, &["key-long"]),
        (Defect::EmptyKeyShared, &["key-empty"]),
        (Defect::TwoLinesAccepted, &["key-lines"]),
        (Defect::MissingKeyIs500, &["key-missing"]),
    ]);
}

#[test]
fn a_status_that_clients_do_not_expect() {
    let server = |mismatch| Server::start(Nature { mismatch, ..Nature::default() });
    for (profile, mismatch, ids) in [
        ("onceward", 409, &["mismatch-status"][..]),
        ("ietf", 409, &["mismatch-status"]),
        ("stripe", 422, &["mismatch-status"]),
    ] {
        let only = ["--profile", profile, "--only", "mismatch,mismatch-status,problem-json"];
        probe_counted(&server(mismatch), &only).assert_fails(profile, ids);
    }
}

/// With data that is new in each piece of work, a confusion shows as a refusal.
#[test]
fn keys_that_are_confused_are_found_also_with_new_data_each_time() {
    let data = r#"{"order": "{{uuid}}", "cents": 500}"#;
    for (defect, id) in [
        (Defect::CaseFolded, "key-case"),
        (Defect::LongKeysCut, "key-long"),
        (Defect::EmptyKeyShared, "key-empty"),
        (Defect::NoScope, "scope"),
        (Defect::MismatchReplayed, "mismatch"),
    ] {
        let probed = probe_counted(&Server::wrong(defect), &["--data", data, "--only", id]);
        probed.assert_fails(&format!("{defect:?}"), &[id]);
    }
}

/// What a profile does not speak of is not measured.
#[test]
fn a_profile_leaves_out_what_it_does_not_speak_of() {
    for (profile, defect, ids) in [
        ("ietf", Defect::MarkerMissing, &[][..]),
        ("ietf", Defect::QuotedIsAnotherKey, &[]),
        ("ietf", Defect::RawBytes, &["json-order"]),
        ("stripe", Defect::ExpiryMissing, &[]),
    ] {
        let nature = Nature { defect: Some(defect), mismatch: 422, ..Nature::default() };
        let only = "marker,key-quoted,json-order,expiry,once";
        let probed = probe_counted(&Server::start(nature), &["--profile", profile, "--only", only]);
        probed.assert_fails(profile, ids);
        assert_eq!((probed.code, &probed.json()["score"]), (0, &100.into()), "{probed}");
    }
}
