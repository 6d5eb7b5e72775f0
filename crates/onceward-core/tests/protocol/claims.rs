//! What a claim carries on from what was stored before it.

use std::time::Duration;

use onceward_core::{
    Admission, Change, Claim, Effect, Found, NoteKind, Record, Started, State, Step, Stored, Swap,
    Timestamp, Verdict,
};

use crate::{MINUTE, OVER, admission, admission_of, fence, found};

const NOW: Timestamp = Timestamp::from_unix_micros(1_000_000_000);

fn within(seconds: u64) -> Effect {
    Effect::Repeatable { within: Duration::from_secs(seconds) }
}

/// A record of another execution, first claimed so long ago.
fn claimed_ago(change: &Change, effect: Effect, state: State, ago: Duration) -> Swap {
    let started = Started::At(NOW.minus(ago));
    let record =
        Record { fence: fence(9), effect, state, ttl: MINUTE, started, ..change.next.clone() };
    let stored = Stored { record, updated_at: NOW, read_at: NOW, suspect: false };
    Swap::Conflict(Found::Record(Box::new(stored)))
}

fn stored(admission: Admission) -> Claim {
    match admission.next(Swap::Stored { at: NOW }) {
        Step::Done(Verdict::Run(claim)) => claim,
        step => panic!("it runs: {step:?}"),
    }
}

fn again(step: Step) -> Admission {
    match step {
        Step::Swap(admission) => admission,
        step => panic!("it claims again: {step:?}"),
    }
}

#[test]
fn a_repeat_is_what_ran_before_or_was_given_back() {
    let first = stored(admission());
    assert_eq!((first.attempt(), first.is_repeat()), (1, false));
    let after = |state, ttl| {
        let admission = admission();
        let swap = found(admission.change(), fence(9), state, ttl);
        let claim = stored(again(admission.next(swap)));
        (claim.attempt(), claim.is_repeat())
    };
    assert_eq!(after(State::FailedRetryable, MINUTE), (2, true));
    assert_eq!(after(State::Released, MINUTE), (1, true));
    assert_eq!(after(State::Unknown, OVER), (1, false), "what is forgotten is no repeat");
}

#[test]
fn a_repeatable_effect_runs_again_only_within_the_shorter_of_both_promises() {
    for (theirs, ours) in [(60, 30), (30, 60)] {
        for (age, runs) in [(29, true), (30, false), (31, false)] {
            let admission = admission_of(within(ours));
            let age = Duration::from_secs(age);
            let swap = claimed_ago(admission.change(), within(theirs), State::FailedRetryable, age);
            match admission.next(swap) {
                Step::Swap(again) => {
                    assert!(runs, "{theirs} {ours} {age:?}");
                    let next = &again.change().next;
                    assert_eq!(next.effect, within(30));
                    assert_eq!(next.started, Started::At(NOW.minus(age)), "of the first claim");
                }
                Step::Done(Verdict::Unknown(Some(_))) => assert!(!runs, "{theirs} {ours} {age:?}"),
                step => panic!("{step:?}"),
            }
        }
    }
}

#[test]
fn a_fresh_claim_has_its_own_effect_and_not_that_of_what_was_there() {
    let admission = admission_of(within(60));
    let swap = claimed_ago(admission.change(), within(30), State::FailedRetryable, Duration::ZERO);
    let shortened = again(admission.next(swap));
    assert_eq!(shortened.change().next.effect, within(30));
    let afresh = again(shortened.next(Swap::Conflict(Found::Nothing)));
    assert_eq!(afresh.change().next.effect, within(60));
}

#[test]
fn only_a_take_over_is_noted() {
    let noted = |state, ttl| {
        let admission = admission_of(Effect::Transactional);
        let swap = found(admission.change(), fence(9), state, ttl);
        again(admission.next(swap)).change().note.as_ref().map(|note| note.kind)
    };
    assert_eq!(noted(State::InProgress, OVER), Some(NoteKind::TakeOver));
    assert_eq!(noted(State::FailedRetryable, MINUTE), None);
}
