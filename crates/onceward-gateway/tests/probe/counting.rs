//! Without a count, effects are told by answers that differ, or not at all.

use crate::{
    gateway_support::Finished,
    run::probe,
    server::{Answers, Defect, Nature, Server},
};

fn uncounted(defect: Option<Defect>, answers: Answers) -> Finished {
    let server = Server::start(Nature { defect, answers, ..Nature::default() });
    probe(&server.url("/payments"), &[])
}

#[test]
fn answers_that_differ_tell_of_second_effects() {
    let none = uncounted(Some(Defect::NoIdempotency), Answers::Json);
    none.assert_fails("none", &["once", "concurrent", "mismatch"]);
    let race = uncounted(Some(Defect::LookThenStore), Answers::Json);
    race.assert_fails("race", &["concurrent"]);
    assert!(race.stdout.contains("counted by different answers"), "{race}");
}

#[test]
fn a_key_that_stays_locked_is_seen_without_a_count() {
    let locked = uncounted(Some(Defect::LockedAfterDisconnect), Answers::Json);
    locked.assert_fails("locked", &["disconnect"]);
}

/// A replay that is spoilt is no second effect.
#[test]
fn a_bad_replay_is_told_from_a_second_effect() {
    let changed = uncounted(Some(Defect::StatusChanged), Answers::Json);
    changed.assert_fails("status", &["replay-status"]);
    let rebuilt = uncounted(Some(Defect::BodyRebuilt), Answers::Json);
    rebuilt.assert_fails("body", &["replay-body"]);
    let marked = uncounted(Some(Defect::MarkerOnFirst), Answers::Json);
    marked.assert_fails("marker", &["marker-first"]);
}

#[test]
fn an_api_whose_answers_are_all_alike_has_no_false_finding() {
    let right = uncounted(None, Answers::Alike);
    right.assert_fails("alike", &[]);
    for id in [
        "once",
        "concurrent",
        "disconnect",
        "scope",
        "key-case",
        "json-order",
        "chunked",
        "replay-status",
        "replay-body",
        "replay-headers",
    ] {
        assert!(right.ids("skip").contains(&id.to_owned()), "{id}: {right}");
    }
    assert!(right.ids("pass").contains(&"mismatch".to_owned()), "{right}");
    // What is refused is seen all the same.
    let raw = uncounted(Some(Defect::RawBytes), Answers::Alike);
    raw.assert_fails("alike and raw", &["json-order"]);
}

#[test]
fn an_open_api_whose_answers_are_alike_gives_nothing_away() {
    let nature = Nature { answers: Answers::Alike, is_open: true, ..Nature::default() };
    let probed = probe(&Server::start(nature).url("/payments"), &[]);
    probed.assert_fails("open and alike", &[]);
}
