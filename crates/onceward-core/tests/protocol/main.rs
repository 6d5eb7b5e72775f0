//! What the core decides without a store: what the conformance suite cannot bring about with one that works, as
//! races lost in a row, and what needs none.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod claims;
mod fingerprint;
mod meaning;
mod records;
mod repair;
mod settlements;

use std::time::Duration;

use onceward_core::{
    Admission, Change, Effect, Ending, Execution, Fence, Fingerprint, Found, Key, OperationId,
    OperationName, Outcome, Record, Request, Scope, SettlementStep, Started, State, Step, Stored,
    Swap, Terms, Timestamp, Ttl, Unreadable, Verdict,
};

fn fence(number: u8) -> Fence {
    Fence::from_random([number; 16])
}

fn admission() -> Admission {
    admission_of(Effect::External)
}

fn admission_of(effect: Effect) -> Admission {
    let name = OperationName::new("pay").unwrap();
    let request = Request {
        operation: OperationId::new(Scope::global(), name, Key::new("k").unwrap()),
        fingerprints: Fingerprint::from_parts(1, [1; 32]).into(),
        terms: Terms::of(effect).build().unwrap(),
    };
    Admission::new(request, fence(1), Execution::from_bytes([1; 16]))
}

fn found(change: &Change, fence: Fence, state: State, ttl: Ttl) -> Swap {
    let now = Timestamp::from_unix_micros(1_000_000);
    let record = Record { fence, state, ttl, started: Started::At(now), ..change.next.clone() };
    let stored = Stored { record, updated_at: now, read_at: now, suspect: false };
    Swap::Conflict(Found::Record(Box::new(stored)))
}

const MINUTE: Ttl = Ttl::For(Duration::from_secs(60));
const OVER: Ttl = Ttl::For(Duration::ZERO);

#[test]
fn an_admission_that_always_loses_ends_busy_and_never_runs() {
    let mut admission = admission();
    for number in 2..=Admission::MAX_SWAPS {
        let swap = found(admission.change(), fence(100 + number), State::Released, MINUTE);
        let Step::Swap(next) = admission.next(swap) else { panic!("it tries again") };
        assert_eq!(next.change().expected, Some(fence(100 + number)));
        admission = next;
    }
    let swap = found(admission.change(), fence(200), State::Released, MINUTE);
    assert!(matches!(admission.next(swap), Step::Done(Verdict::Busy { .. })));
}

#[test]
fn a_record_that_vanished_is_claimed_from_nothing() {
    let admission = admission();
    let swap = found(admission.change(), fence(9), State::FailedRetryable, MINUTE);
    let Step::Swap(admission) = admission.next(swap) else { panic!("it claims again") };
    assert_eq!(admission.change().next.attempts, 2);
    let step = admission.next(Swap::Conflict(Found::Nothing));
    let Step::Swap(admission) = step else { panic!("it claims afresh") };
    assert_eq!((admission.change().expected, admission.change().next.attempts), (None, 1));
    assert_eq!(admission.change().next.started, Started::Now);
    assert!(admission.change().is_claim());
}

#[test]
fn a_claim_that_was_lost_while_being_renewed_does_not_come_back() {
    let admission = admission();
    let lease = admission.change().next.ttl;
    let swap = found(admission.change(), fence(1), State::InProgress, OVER);
    let Step::Swap(renewing) = admission.next(swap) else { panic!("it renews its own claim") };
    assert_eq!(renewing.change().expected, Some(fence(1)));
    assert!(!renewing.change().is_claim());
    let released = found(renewing.change(), fence(9), State::Released, MINUTE);
    assert_eq!(renewing.change().next.ttl, lease, "the lease starts anew");
    assert_eq!(
        renewing.clone().next(Swap::Held),
        Step::Swap(renewing.clone()),
        "no other execution would run it or give it back"
    );
    let step = renewing.clone().next(released);
    assert!(matches!(step, Step::Done(Verdict::Busy { .. })), "a fence is stored once: {step:?}");
    let ended = State::Succeeded(Outcome::inline(200, Vec::new()));
    let ended = found(renewing.change(), fence(9), ended, MINUTE);
    assert!(matches!(renewing.next(ended), Step::Done(Verdict::Replay(_))));
}

#[test]
fn an_unreadable_record_is_unknown_and_never_absent() {
    let step = admission()
        .next(Swap::Conflict(Found::Unreadable { fence: fence(9), why: Unreadable::Damaged }));
    assert_eq!(step, Step::Done(Verdict::Unknown(None)));
}

#[test]
fn busy_asks_to_come_back_within_a_second() {
    for (left, expected) in [(30_000, 1000), (250, 250)] {
        let admission = admission();
        let left = Ttl::For(Duration::from_millis(left));
        let swap = found(admission.change(), fence(9), State::InProgress, left);
        let retry_after = Duration::from_millis(expected);
        assert_eq!(admission.next(swap), Step::Done(Verdict::Busy { retry_after }));
    }
}

#[test]
fn giving_up_expects_the_fence_that_may_have_been_stored() {
    let admission = admission();
    let release = admission.give_up(fence(2));
    assert_eq!(release.change().expected, Some(fence(1)));
    assert_eq!(
        (release.change().next.fence, &release.change().next.state),
        (fence(2), &State::Released)
    );

    let Step::Done(Verdict::Run(claim)) =
        admission.next(Swap::Stored { at: Timestamp::from_unix_micros(7) })
    else {
        panic!("it runs");
    };
    let settlement = claim.settle(Ending::Released, fence(2));
    assert_eq!(settlement.change().next.state, release.change().next.state);
    assert_eq!(claim.started_at(), Timestamp::from_unix_micros(7));
}

/// Its first proposal may have been stored, and taken over, before the answer was lost.
#[test]
fn every_claim_of_an_admission_has_its_own_fence_and_execution() {
    let admission = admission();
    let first = admission.change().next.clone();
    let swap = found(admission.change(), fence(9), State::FailedRetryable, MINUTE);
    let Step::Swap(admission) = admission.next(swap) else { panic!("it claims again") };
    let second = admission.change().next.clone();
    assert_ne!(first.fence, second.fence);
    assert_ne!(first.execution, second.execution);

    // The first one landed late after all: it is still recognised, as what it is.
    let swap = found(admission.change(), first.fence, State::InProgress, MINUTE);
    let Step::Done(Verdict::Run(claim)) = admission.next(swap) else { panic!("it is its own") };
    assert_eq!(claim.fence(), first.fence);
}

/// Nobody else would run it, nor give it back.
#[test]
fn an_own_claim_is_renewed_after_the_last_swap_too() {
    let mut admission = admission();
    for number in 2..=Admission::MAX_SWAPS {
        let swap = found(admission.change(), fence(100 + number), State::Released, MINUTE);
        let Step::Swap(next) = admission.next(swap) else { panic!("it tries again") };
        admission = next;
    }
    let own = admission.change().next.fence;
    let swap = found(admission.change(), own, State::InProgress, OVER);
    let Step::Swap(renewing) = admission.next(swap) else { panic!("it renews its own claim") };
    assert_eq!(renewing.change().expected, Some(own));
}

#[test]
fn a_record_that_is_held_is_busy_and_its_end_is_proposed_again_unchanged() {
    let admission = admission();
    let at = Timestamp::from_unix_micros(1_000_000);
    let step = admission.clone().next(Swap::Held);
    let Step::Done(Verdict::Busy { retry_after }) = step else { panic!("{step:?}") };
    assert_eq!(retry_after, Admission::MAX_RETRY_AFTER);

    let Step::Done(Verdict::Run(claim)) = admission.next(Swap::Stored { at }) else {
        panic!("it runs")
    };
    let settlement = claim.settle(Ending::Succeeded(Outcome::inline(201, Vec::new())), fence(7));
    let SettlementStep::Swap(again) = settlement.clone().next(Swap::Held) else {
        panic!("who holds it decides, and not we")
    };
    assert_eq!(again, settlement);
}

#[test]
fn only_a_new_claim_says_how_long_its_end_is_kept() {
    let admission = admission();
    let day = Some(Duration::from_secs(24 * 3600));
    assert_eq!(admission.change().retain, day);
    let at = Timestamp::from_unix_micros(1_000_000);
    let taken_over = found(admission.change(), fence(9), State::FailedRetryable, MINUTE);
    let Step::Swap(again) = admission.clone().next(taken_over) else { panic!("it claims again") };
    assert_eq!(again.change().retain, day);
    let Step::Done(Verdict::Run(claim)) = admission.next(Swap::Stored { at }) else {
        panic!("it runs")
    };
    assert_eq!(claim.renew().retain, None);
    assert_eq!(claim.settle(Ending::Released, fence(7)).change().retain, None);
}
