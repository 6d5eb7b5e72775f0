//! Programs that make a mistake: the checker must find each, and say what it is.

use onceward_crash::messages::{Bug, Role};
use testbed::Complaint;

use super::{
    bench::{Bench, Engine},
    matrix::{Step, outcome},
};

/// The role dies at the point, and the mistake shows.
fn is_found(bug: Bug, role: Role, point: &str, is_it: impl Fn(&Complaint) -> bool) {
    let step = Step { role, point: point.to_owned(), fault: "abort" };
    let (deaths, complaints) = outcome(&Bench::new(Engine::Sqlite), &step, Some(bug));
    assert_eq!(deaths, Ok(1), "{step}");
    assert!(complaints.iter().any(is_it), "{bug:?}, {step}: {complaints:?}");
    // Without the mistake the same death is survived.
    let (deaths, complaints) = outcome(&Bench::new(Engine::Sqlite), &step, None);
    assert_eq!((deaths, complaints), (Ok(1), Vec::new()), "{step}");
}

#[test]
fn messages_that_are_enqueued_apart_from_their_order_are_found() {
    is_found(Bug::EnqueuesApart, Role::Produce, "shop.commit#2", |complaint| {
        matches!(complaint, Complaint::Twice(_))
    });
}

#[test]
fn a_sink_that_accepts_before_it_has_sent_is_found() {
    is_found(Bug::AcceptsEarly, Role::Relay, "relay.settled#1", |complaint| {
        matches!(complaint, Complaint::Lost(_))
    });
}

#[test]
fn a_consumer_that_answers_before_it_commits_is_found() {
    is_found(Bug::AnswersEarly, Role::Consume, "inbox.commit#1", |complaint| {
        matches!(complaint, Complaint::Lost(_))
    });
}

#[test]
fn a_receipt_that_is_committed_before_its_effect_is_found() {
    is_found(Bug::ReceiptApart, Role::Consume, "ledger.write#1", |complaint| {
        matches!(complaint, Complaint::Lost(_))
    });
}

#[test]
fn a_consumer_that_does_not_ask_its_inbox_is_found() {
    is_found(Bug::NoInbox, Role::Consume, "inbox.acknowledge#1", |complaint| {
        matches!(complaint, Complaint::Twice(_))
    });
}
