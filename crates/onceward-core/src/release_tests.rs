use super::*;
use crate::{Fingerprint, Keeps, KeyDigest, OperationName, Outcome, Scope, Started, Timestamp};
use alloc::{string::ToString, vec::Vec};
use core::time::Duration;

const ID: Digest = Digest([7; 32]);
const LEASE: Duration = Duration::from_secs(30);
const OVER: Ttl = Ttl::For(Duration::ZERO);
const LEFT: Ttl = Ttl::For(Duration::from_secs(1));
const YOUNG: Effect = Effect::Repeatable { within: Duration::from_secs(3600) };
const OLD: Effect = Effect::Repeatable { within: Duration::from_secs(60) };

fn time(second: i64) -> Timestamp {
    Timestamp::from_unix_micros(second * 1_000_000)
}

/// First claimed at second 1000, read at 1100.
fn stored(state: State, effect: Effect, ttl: Ttl) -> Stored {
    let record = Record {
        scope: Scope::of("tenant", "acme").unwrap(),
        operation: OperationName::new("POST /charges").unwrap(),
        key_digest: KeyDigest([1; 32]),
        fence: Fence::from_random([2; 16]),
        execution: Execution::from_bytes([3; 16]),
        effect,
        max_run: None,
        keeps: Keeps::Everything,
        fingerprint: Fingerprint::from_parts(1, [4; 32]),
        attempts: 2,
        state,
        cause: None,
        started: Started::At(time(1000)),
        ttl,
    };
    Stored { record, updated_at: time(1100), read_at: time(1100), suspect: false }
}

fn release(force: Force, reason: Option<&str>, stored: &Stored) -> Result<Change, ReleaseError> {
    let terms = Terms::of(Effect::External).lease(LEASE).build().unwrap();
    let (fence, execution) = (Fence::from_random([5; 16]), Execution::from_bytes([6; 16]));
    Release { id: ID, terms: &terms, fence, execution, actor: Some("ada"), reason, force }
        .of(stored)
}

fn outcome() -> Outcome {
    Outcome::inline(200, Vec::new())
}

#[test]
fn the_record_is_released_for_one_lease_and_its_owner_fenced_off() {
    let before = stored(State::FailedRetryable, Effect::External, LEFT);
    let change = release(Force::No, Some("asked for"), &before).unwrap();
    let expected = Record {
        fence: Fence::from_random([5; 16]),
        execution: Execution::from_bytes([6; 16]),
        state: State::Released,
        ttl: Ttl::For(LEASE),
        ..before.record.clone()
    };
    assert_eq!((change.id, change.expected), (ID, Some(before.record.fence)));
    assert_eq!(change.next, expected);
    assert!(!change.is_claim(), "taken also when the store is full");
    let note = change.note.unwrap();
    assert_eq!((note.kind, note.execution), (NoteKind::Release, before.record.execution));
    assert_eq!((note.actor.as_deref(), note.reason.as_deref()), (Some("ada"), Some("asked for")));
}

/// Without force, with it, and what the trail says then.
#[test]
fn every_status_has_its_answer() {
    use ReleaseError::*;
    let freely = (None, Some("why"));
    let by_force = |error| (Some(error), Some("forced: why"));
    let not_at_all = |error| (Some(error), None);
    for (state, effect, ttl, (refusal, forced)) in [
        (State::FailedRetryable, Effect::External, LEFT, freely),
        (State::FailedRetryable, Effect::Transactional, LEFT, freely),
        (State::InProgress, Effect::Transactional, OVER, freely),
        // It may have happened: ADR 0003.
        (State::FailedRetryable, YOUNG, LEFT, by_force(MayHaveHappened)),
        (State::InProgress, YOUNG, OVER, by_force(MayHaveHappened)),
        (State::InProgress, Effect::External, LEFT, by_force(InProgress)),
        (State::InProgress, Effect::Transactional, LEFT, by_force(InProgress)),
        (State::InProgress, YOUNG, LEFT, by_force(InProgress)),
        (State::Unknown, Effect::External, Ttl::Never, not_at_all(Unknown)),
        (State::InProgress, Effect::External, OVER, not_at_all(Unknown)),
        (State::InProgress, OLD, OVER, not_at_all(Unknown)),
        (State::FailedRetryable, OLD, LEFT, not_at_all(Unknown)),
        (State::Succeeded(outcome()), YOUNG, LEFT, not_at_all(Ended(Status::Succeeded))),
        (State::FailedFinal(outcome()), YOUNG, LEFT, not_at_all(Ended(Status::FailedFinal))),
        (State::Released, Effect::External, LEFT, not_at_all(Free(Status::Released))),
        (State::FailedRetryable, Effect::External, OVER, not_at_all(Free(Status::Expired))),
        (State::Succeeded(outcome()), YOUNG, OVER, not_at_all(Free(Status::Expired))),
    ] {
        let stored = stored(state, effect, ttl);
        let case = alloc::format!("{:?} {effect:?}", stored.status());
        assert_eq!(release(Force::No, Some("why"), &stored).err(), refusal, "{case}");
        match forced {
            None => {
                assert_eq!(release(Force::Yes, Some("why"), &stored).err(), refusal, "{case}");
            }
            Some(reason) => {
                let change = release(Force::Yes, Some("why"), &stored).unwrap();
                assert_eq!(change.next.state, State::Released, "{case}");
                assert_eq!(change.note.unwrap().reason.as_deref(), Some(reason), "{case}");
            }
        }
    }
}

#[test]
fn force_without_a_reason_is_told_as_well() {
    let running = stored(State::InProgress, Effect::External, LEFT);
    let note = release(Force::Yes, None, &running).unwrap().note.unwrap();
    assert_eq!(note.reason.as_deref(), Some("forced: no reason was given"));
    let failed = stored(State::FailedRetryable, Effect::External, LEFT);
    assert_eq!(release(Force::Yes, None, &failed).unwrap().note.unwrap().reason, None);
}

#[test]
fn each_refusal_says_what_to_do() {
    for (error, advice) in [
        (ReleaseError::InProgress, "force"),
        (ReleaseError::MayHaveHappened, "force"),
        (ReleaseError::Unknown, "resolve it"),
        (ReleaseError::Ended(Status::Succeeded), "purge"),
        (ReleaseError::Free(Status::Expired), "free already"),
    ] {
        let text = error.to_string();
        assert!(text.contains(advice) && text.contains("nothing was changed"), "{text}");
    }
}
