//! The checker can fail: every known mistake is found, and without it the same story is clean.
//!
//! The mistakes are in `crash/src/service/bug.rs`, the stories in `scenario.rs`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scenario;
mod trial;

use onceward_crash::service::{
    Bug,
    Stake::{External, Repeatable, Transactional},
};
use scenario::{
    abandoned_for_a_reader_who_would_repeat, aborted_at, answered_late, asked_again_after_a_while,
    killed_after_the_answer, one_after_the_other, retried_with_a_new_key, same_key_of_two_tenants,
    tapped_twice, woken_after_a_take_over_at,
};
use trial::{Seed, assert_caught};

#[test]
fn a_fence_that_is_not_checked_in_the_transaction_is_caught() {
    let story = woken_after_a_take_over_at("own.begin");
    let bug = Seed::Service(Bug::FenceIgnoredInTransaction);
    assert_caught(bug, Transactional, story, &["double effect"]);
}

#[test]
fn a_settlement_that_overwrites_is_caught() {
    let story = woken_after_a_take_over_at("effect");
    let bug = Seed::Service(Bug::SettlementOverwrites);
    assert_caught(bug, Repeatable, story, &["second first answer"]);
}

#[test]
fn claims_that_are_shared_are_caught() {
    let bug = Seed::Service(Bug::SharedClaims);
    assert_caught(bug, External, tapped_twice, &["double effect"]);
}

#[test]
fn an_effect_outside_the_transaction_is_caught() {
    let bug = Seed::Service(Bug::EffectOutsideTransaction);
    assert_caught(bug, Transactional, aborted_at("own.commit"), &["double effect"]);
}

#[test]
fn a_record_before_the_effect_is_caught() {
    let bug = Seed::Service(Bug::RecordBeforeEffect);
    let wrong = ["absent effect", "untrue verdict"];
    assert_caught(bug, Transactional, aborted_at("effect"), &wrong);
}

#[test]
fn an_answer_before_the_commit_is_caught() {
    let bug = Seed::Service(Bug::AnswerBeforeCommit);
    assert_caught(bug, Transactional, aborted_at("own.commit"), &["absent effect"]);
    assert_caught(bug, Transactional, asked_again_after_a_while, &["late effect"]);
}

#[test]
fn an_answer_before_the_record_is_caught() {
    let bug = Seed::Service(Bug::AnswerBeforeRecord);
    assert_caught(bug, External, killed_after_the_answer, &["lost answer"]);
}

#[test]
fn a_body_that_was_cut_is_caught() {
    let bug = Seed::Service(Bug::BodyCut);
    let wrong = ["divergent replay", "wrong body"];
    assert_caught(bug, External, killed_after_the_answer, &wrong);
}

#[test]
fn a_key_without_scope_is_caught() {
    let bug = Seed::Service(Bug::KeyWithoutScope);
    assert_caught(bug, Transactional, same_key_of_two_tenants, &["disowned", "absent effect"]);
}

#[test]
fn a_replay_with_another_status_is_caught() {
    let bug = Seed::Service(Bug::ReplayChanged);
    assert_caught(bug, External, killed_after_the_answer, &["divergent replay"]);
}

#[test]
fn a_store_that_forgets_is_caught() {
    let bug = Seed::Service(Bug::StoreForgets);
    let wrong = ["double effect", "second first answer"];
    assert_caught(bug, External, killed_after_the_answer, &wrong);
}

#[test]
fn a_repeatable_effect_without_a_key_is_caught() {
    let bug = Seed::Service(Bug::RepeatableWithoutKey);
    assert_caught(bug, External, aborted_at_settlement(), &["double effect"]);
}

#[test]
fn a_reader_who_decides_what_may_be_repeated_is_caught() {
    let bug = Seed::Service(Bug::ReaderDecides);
    assert_caught(bug, External, abandoned_for_a_reader_who_would_repeat, &["double effect"]);
}

#[test]
fn an_unknown_outcome_told_as_failure_is_caught() {
    let bug = Seed::Service(Bug::UnknownIsFailure);
    let wrong = ["denied effect", "untrue verdict"];
    assert_caught(bug, External, aborted_at_settlement(), &wrong);
}

#[test]
fn silence_told_as_refusal_is_caught() {
    let bug = Seed::Service(Bug::SilenceIsRefusal);
    assert_caught(bug, External, answered_late, &["denied effect"]);
}

#[test]
fn silence_told_as_nothing_done_is_caught() {
    let bug = Seed::Service(Bug::SilenceIsNothing);
    assert_caught(bug, External, answered_late, &["double effect"]);
}

#[test]
fn silence_that_is_asked_again_is_caught() {
    let bug = Seed::Service(Bug::SilenceIsAskedAgain);
    assert_caught(bug, External, answered_late, &["double effect"]);
}

#[test]
fn a_retention_that_is_too_short_is_caught() {
    let bug = Seed::Service(Bug::RetentionTooShort);
    assert_caught(bug, Transactional, asked_again_after_a_while, &["double effect"]);
}

#[test]
fn a_lease_that_is_too_long_is_caught() {
    let bug = Seed::Service(Bug::LeaseTooLong);
    assert_caught(bug, Transactional, aborted_at("effect"), &["not ended", "unavailable"]);
}

#[test]
fn a_transactional_effect_that_is_called_external_is_caught() {
    let bug = Seed::Service(Bug::TransactionalAsExternal);
    assert_caught(bug, Transactional, aborted_at("own.commit"), &["unknown for ever"]);
}

#[test]
fn a_payload_of_somebody_else_is_caught() {
    let bug = Seed::Service(Bug::StaleOrder);
    assert_caught(bug, External, one_after_the_other, &["foreign effect"]);
}

#[test]
fn a_dead_system_is_caught() {
    let bug = Seed::Service(Bug::AlwaysUnavailable);
    let wrong = ["nothing ok", "unavailable", "not ended"];
    assert_caught(bug, Transactional, one_after_the_other, &wrong);
}

#[test]
fn a_client_that_retries_with_a_new_key_is_caught() {
    assert_caught(Seed::NewKey, Transactional, retried_with_a_new_key, &["double effect"]);
}

/// The second swap of a process that has made one claim.
fn aborted_at_settlement() -> impl Fn(&trial::Trial) {
    scenario::aborted("store.swap#2=abort")
}
