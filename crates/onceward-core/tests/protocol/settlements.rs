//! The end of a claim, and what it meets.

use std::time::Duration;

use onceward_core::{
    Change, Claim, Effect, Ending, Execution, Fence, Found, NoteKind, Outcome, Record, Settled,
    Settlement, SettlementStep, State, Step, Stored, Swap, Timestamp, Verdict,
};

use crate::{MINUTE, admission_of, fence, found};

const AT: Timestamp = Timestamp::from_unix_micros(5_000_000);

fn ended() -> State {
    State::Succeeded(Outcome::inline(201, Vec::new()))
}

/// A claim of this effect that is the first, or the second after one that failed.
fn claim(effect: Effect, attempt: u32) -> Claim {
    let mut admission = admission_of(effect);
    if attempt > 1 {
        let swap = found(admission.change(), fence(9), State::FailedRetryable, MINUTE);
        let Step::Swap(again) = admission.next(swap) else { panic!("it claims again") };
        admission = again;
    }
    match admission.next(Swap::Stored { at: AT }) {
        Step::Done(Verdict::Run(claim)) => claim,
        step => panic!("it runs: {step:?}"),
    }
}

fn succeeded(claim: &Claim) -> Settlement {
    claim.settle(Ending::Succeeded(Outcome::inline(201, Vec::new())), fence(7))
}

fn there(change: &Change, fence: Fence, execution: Execution, state: State) -> Found {
    let record = Record { fence, execution, state, ttl: MINUTE, ..change.next.clone() };
    Found::Record(Box::new(Stored { record, updated_at: AT, read_at: AT, suspect: false }))
}

#[test]
fn its_own_write_is_recognised_by_its_fence() {
    let claim = claim(Effect::External, 1);
    let settlement = succeeded(&claim);
    let own = there(settlement.change(), fence(7), claim.execution(), ended());
    let step = settlement.clone().next(Swap::Conflict(own));
    assert_eq!(step, SettlementStep::Done(Settled::Stored { at: AT }));
    let other = there(settlement.change(), fence(8), claim.execution(), ended());
    let step = settlement.next(Swap::Conflict(other.clone()));
    assert_eq!(step, SettlementStep::Done(Settled::FencedOff(other)));
}

#[test]
fn the_late_truth_is_written_over_an_unknown_outcome_of_the_same_execution_only() {
    let claim = claim(Effect::External, 1);
    let settlement = succeeded(&claim);
    let unknown = there(settlement.change(), fence(8), claim.execution(), State::Unknown);
    let SettlementStep::Swap(over) = settlement.clone().next(Swap::Conflict(unknown)) else {
        panic!("it is written over")
    };
    assert_eq!(over.change().expected, Some(fence(8)));
    assert_eq!(over.change().next, settlement.change().next);

    let stranger = Execution::from_bytes([77; 16]);
    let of_another = there(settlement.change(), fence(8), stranger, State::Unknown);
    let step = settlement.clone().next(Swap::Conflict(of_another.clone()));
    assert_eq!(step, SettlementStep::Done(Settled::FencedOff(of_another)));

    let of_another = there(settlement.change(), fence(8), stranger, ended());
    let step = settlement.next(Swap::Conflict(of_another.clone()));
    assert_eq!(step, SettlementStep::Done(Settled::FencedOff(of_another)));
}

#[test]
fn an_unknown_outcome_adds_nothing_to_an_unknown_one() {
    let claim = claim(Effect::External, 1);
    let settlement = claim.settle(Ending::Unknown, fence(7));
    let unknown = there(settlement.change(), fence(8), claim.execution(), State::Unknown);
    let step = settlement.next(Swap::Conflict(unknown));
    assert_eq!(step, SettlementStep::Done(Settled::Stored { at: AT }));
}

#[test]
fn only_a_rerun_of_a_repeatable_effect_cannot_give_its_key_back() {
    let repeatable = Effect::Repeatable { within: Duration::from_secs(60) };
    for (effect, attempt, state) in [
        (repeatable, 1, State::Released),
        (repeatable, 2, State::FailedRetryable),
        (Effect::External, 1, State::Released),
        (Effect::External, 2, State::Released),
        (Effect::Transactional, 2, State::Released),
    ] {
        let released = claim(effect, attempt).settle(Ending::Released, fence(7));
        assert_eq!(released.change().next.state, state, "{effect:?} {attempt}");
        let note = released.change().note.as_ref().map(|note| note.kind);
        assert_eq!(note, Some(NoteKind::Release), "{effect:?} {attempt}");
    }
}
