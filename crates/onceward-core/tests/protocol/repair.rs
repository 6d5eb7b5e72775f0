//! What an operator or a resolver may change, and what the trail says of it.

use std::time::Duration;

use onceward_core::{
    Change, Digest, Effect, Execution, Fence, Fingerprint, Force, Keeps, KeyDigest, NoteKind,
    OperationName, Outcome, Record, Repair, RepairError, RepairKind, Resolution, Scope, Started,
    State, Status, Stored, Terms, Timestamp, Ttl,
};

const ID: Digest = Digest([7; 32]);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const MAX_RUN: Duration = Duration::from_secs(100);

fn time(second: i64) -> Timestamp {
    Timestamp::from_unix_micros(second * 1_000_000)
}

/// First claimed at second 1000, last written at 1050.
fn stored(state: State, effect: Effect, ttl: Ttl, read_at: i64) -> Stored {
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
        attempts: 1,
        state,
        cause: None,
        started: Started::At(time(1000)),
        ttl,
    };
    Stored { record, updated_at: time(1050), read_at: time(read_at), suspect: false }
}

fn unknown(read_at: i64) -> Stored {
    stored(State::Unknown, Effect::External, Ttl::Never, read_at)
}

fn resolve(resolution: Resolution, stored: &Stored) -> Result<Change, RepairError> {
    resolve_by(Force::No, resolution, stored)
}

fn resolve_by(
    force: Force,
    resolution: Resolution,
    stored: &Stored,
) -> Result<Change, RepairError> {
    repair(RepairKind::Resolve(resolution), Some("seen"), force, stored)
}

fn release(force: Force, reason: Option<&str>, stored: &Stored) -> Result<Change, RepairError> {
    repair(RepairKind::Release, reason, force, stored)
}

fn repair(
    kind: RepairKind,
    reason: Option<&str>,
    force: Force,
    stored: &Stored,
) -> Result<Change, RepairError> {
    let terms = Terms::of(Effect::External).lease(LEASE).max_run(MAX_RUN).build().unwrap();
    let (fence, execution) = (Fence::from_random([5; 16]), Execution::from_bytes([6; 16]));
    Repair { id: ID, kind, terms: &terms, fence, execution, actor: Some("ada"), reason, force }
        .of(stored)
}

fn applied(status: u16) -> Resolution {
    Resolution::Applied(Outcome::inline(status, Vec::new()))
}

const OVER: Ttl = Ttl::For(Duration::ZERO);
const LEFT: Ttl = Ttl::For(SECOND);
const REPEATABLE: Effect = Effect::Repeatable { within: Duration::from_secs(60) };
const YOUNG: Effect = Effect::Repeatable { within: Duration::from_secs(3600) };

#[test]
fn everything_but_the_end_is_kept_and_the_old_owner_is_fenced_off() {
    let before = unknown(1050);
    let change = resolve(applied(201), &before).unwrap();
    let expected = Record {
        fence: Fence::from_random([5; 16]),
        execution: Execution::from_bytes([6; 16]),
        state: State::Succeeded(Outcome::inline(201, Vec::new())),
        ttl: Ttl::For(Duration::from_secs(24 * 3600)),
        ..before.record.clone()
    };
    assert_eq!((change.id, change.expected), (ID, Some(before.record.fence)));
    assert_eq!(change.next, expected);
    assert!(!change.is_claim(), "taken also when the store is full");
    let note = change.note.unwrap();
    assert_eq!((note.kind, note.execution), (NoteKind::Resolve, before.record.execution));
    assert_eq!((note.actor.as_deref(), note.reason.as_deref()), (Some("ada"), Some("seen")));
}

#[test]
fn the_status_says_how_it_ended() {
    for status in 100..=999 {
        let state = resolve(applied(status), &unknown(1050)).unwrap().next.state;
        let outcome = Outcome::inline(status, Vec::new());
        let succeeded = status / 100 == 2 || status / 100 == 3;
        let expected = match succeeded {
            true => State::Succeeded(outcome),
            false => State::FailedFinal(outcome),
        };
        assert_eq!(state, expected, "{status}");
    }
}

#[test]
fn computed_unknown_is_resolved_like_a_stored_one() {
    for (state, effect, ttl) in [
        (State::InProgress, Effect::External, OVER),
        (State::InProgress, REPEATABLE, OVER),
        (State::FailedRetryable, REPEATABLE, LEFT),
        (State::Unknown, Effect::Transactional, Ttl::Never),
        (State::Unknown, Effect::External, LEFT),
    ] {
        let stored = stored(state, effect, ttl, 1180);
        let change = resolve(applied(402), &stored).unwrap();
        assert!(matches!(change.next.state, State::FailedFinal(_)));
        assert_eq!(change.next.effect, effect);
        let change = resolve(Resolution::Never, &stored).unwrap();
        assert_eq!((change.next.state, change.next.ttl), (State::Released, Ttl::For(LEASE)));
    }
}

#[test]
fn what_is_not_unknown_is_refused_with_its_status() {
    for (state, effect, ttl, status) in [
        (State::InProgress, Effect::External, LEFT, Status::InProgress),
        (State::InProgress, Effect::Transactional, OVER, Status::Interrupted),
        (State::InProgress, Effect::Repeatable { within: LEASE * 9 }, OVER, Status::Interrupted),
        (State::Succeeded(outcome()), Effect::External, LEFT, Status::Succeeded),
        (State::FailedFinal(outcome()), Effect::External, LEFT, Status::FailedFinal),
        (State::FailedRetryable, Effect::External, LEFT, Status::FailedRetryable),
        (State::Released, Effect::External, LEFT, Status::Released),
        (State::Unknown, Effect::External, OVER, Status::Expired),
    ] {
        let stored = stored(state, effect, ttl, 1180);
        for resolution in [applied(200), Resolution::Never] {
            let error = resolve(resolution, &stored).unwrap_err();
            assert_eq!(error, RepairError::NotUnknown(status));
            let text = error.to_string();
            assert!(text.contains(&format!("is {status}")), "{text}");
            assert!(text.contains("nothing was changed"), "{text}");
        }
    }
}

#[test]
fn never_waits_for_max_run_and_a_lease_after_the_last_write() {
    // The first claim was made at 1000, the last one at 1050 or before.
    let due = 1180;
    for attempts in [1, 2, u32::MAX] {
        let mut stored = unknown(due - 1);
        stored.record.attempts = attempts;
        let error = resolve(Resolution::Never, &stored).unwrap_err();
        assert_eq!(error, RepairError::TooEarly { left: SECOND });
        assert!(error.to_string().contains("in 1s"), "{error}");
        assert!(resolve(applied(200), &stored).is_ok(), "the truth is never too early");
        stored.read_at = stored.read_at.plus(SECOND - Duration::from_micros(1));
        assert!(resolve(Resolution::Never, &stored).is_err());
        stored.read_at = time(due);
        assert!(resolve(Resolution::Never, &stored).is_ok());
    }
}

#[test]
fn never_is_not_believed_while_the_clock_is_suspect() {
    for read_at in [1050, 1180, 200_000] {
        let stored = Stored { suspect: true, ..unknown(read_at) };
        let error = resolve(Resolution::Never, &stored).unwrap_err();
        assert_eq!(error, RepairError::ClockSuspect);
        assert!(error.to_string().contains("clock jumped"), "{error}");
        assert!(resolve(applied(200), &stored).is_ok(), "the truth is never too early");
        let change = resolve_by(Force::Yes, Resolution::Never, &stored).unwrap();
        assert_eq!(change.note.unwrap().reason.as_deref(), Some("forced: seen"));
    }
}

#[test]
fn the_owners_own_max_run_counts_if_it_is_longer() {
    for (owner, due) in [(None, 1180), (Some(1), 1180), (Some(100), 1180), (Some(500), 1580)] {
        let mut stored = unknown(due - 1);
        stored.record.max_run = owner.map(Duration::from_secs);
        assert!(resolve(Resolution::Never, &stored).is_err(), "{owner:?}");
        stored.read_at = time(due);
        assert!(resolve(Resolution::Never, &stored).is_ok(), "{owner:?}");
    }
}

#[test]
fn a_clock_that_went_backwards_makes_it_wait_longer() {
    let error = resolve(Resolution::Never, &unknown(990)).unwrap_err();
    assert_eq!(error, RepairError::TooEarly { left: SECOND * 190 });
}

#[test]
fn force_resolves_what_runs_or_was_interrupted_and_fences_its_owner_off() {
    for (state, effect, ttl) in [
        (State::InProgress, Effect::External, LEFT),
        (State::InProgress, REPEATABLE, LEFT),
        (State::InProgress, Effect::Transactional, OVER),
        (State::InProgress, Effect::Repeatable { within: LEASE * 9 }, OVER),
    ] {
        // Read at the time of the last write: as early as can be.
        let stored = stored(state, effect, ttl, 1050);
        for (resolution, becomes) in [
            (applied(201), State::Succeeded(Outcome::inline(201, Vec::new()))),
            (applied(402), State::FailedFinal(Outcome::inline(402, Vec::new()))),
            (Resolution::Never, State::Released),
        ] {
            let change = resolve_by(Force::Yes, resolution, &stored).unwrap();
            assert_eq!(change.expected, Some(stored.record.fence));
            assert_eq!(change.next.state, becomes);
            assert_ne!(change.next.fence, stored.record.fence);
            assert_ne!(change.next.execution, stored.record.execution);
            let note = change.note.unwrap();
            assert_eq!(
                (note.kind, note.reason.as_deref()),
                (NoteKind::Resolve, Some("forced: seen"))
            );
        }
    }
}

#[test]
fn force_says_never_although_it_is_too_early() {
    let change = resolve_by(Force::Yes, Resolution::Never, &unknown(1050)).unwrap();
    assert_eq!((change.next.state, change.next.ttl), (State::Released, Ttl::For(LEASE)));
    assert_eq!(change.note.unwrap().reason.as_deref(), Some("forced: seen"));
}

#[test]
fn the_trail_tells_of_force_only_where_it_was_needed() {
    for (resolution, read_at) in [(applied(201), 1050), (Resolution::Never, 1180)] {
        let change = resolve_by(Force::Yes, resolution, &unknown(read_at)).unwrap();
        assert_eq!(change.note.unwrap().reason.as_deref(), Some("seen"));
    }
}

#[test]
fn force_does_not_touch_what_has_ended_or_is_free() {
    for (state, ttl, status) in [
        (State::Succeeded(outcome()), LEFT, Status::Succeeded),
        (State::FailedFinal(outcome()), LEFT, Status::FailedFinal),
        (State::FailedRetryable, LEFT, Status::FailedRetryable),
        (State::Released, LEFT, Status::Released),
        (State::Unknown, OVER, Status::Expired),
    ] {
        let stored = stored(state, Effect::External, ttl, 1180);
        for resolution in [applied(200), Resolution::Never] {
            let error = resolve_by(Force::Yes, resolution, &stored).unwrap_err();
            assert_eq!(error, RepairError::NotUnknown(status));
        }
    }
}

fn outcome() -> Outcome {
    Outcome::inline(200, Vec::new())
}

#[test]
fn the_record_is_released_for_one_lease_and_its_owner_fenced_off() {
    let before = stored(State::FailedRetryable, Effect::External, LEFT, 1100);
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
    use RepairError::{Ended, Free, InProgress, MayHaveHappened, Unknown};
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
        (State::InProgress, REPEATABLE, OVER, not_at_all(Unknown)),
        (State::FailedRetryable, REPEATABLE, LEFT, not_at_all(Unknown)),
        (State::Succeeded(outcome()), YOUNG, LEFT, not_at_all(Ended(Status::Succeeded))),
        (State::FailedFinal(outcome()), YOUNG, LEFT, not_at_all(Ended(Status::FailedFinal))),
        (State::Released, Effect::External, LEFT, not_at_all(Free(Status::Released))),
        (State::FailedRetryable, Effect::External, OVER, not_at_all(Free(Status::Expired))),
        (State::Succeeded(outcome()), YOUNG, OVER, not_at_all(Free(Status::Expired))),
    ] {
        let stored = stored(state, effect, ttl, 1100);
        let case = format!("{:?} {effect:?}", stored.status());
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
fn the_trail_says_also_that_force_had_no_reason() {
    let running = stored(State::InProgress, Effect::External, LEFT, 1100);
    let note = release(Force::Yes, None, &running).unwrap().note.unwrap();
    assert_eq!(note.reason.as_deref(), Some("forced: no reason was given"));
    let failed = stored(State::FailedRetryable, Effect::External, LEFT, 1100);
    assert_eq!(release(Force::Yes, None, &failed).unwrap().note.unwrap().reason, None);
}

#[test]
fn each_refusal_says_what_to_do() {
    for (error, advice) in [
        (RepairError::InProgress, "force"),
        (RepairError::MayHaveHappened, "force"),
        (RepairError::Unknown, "resolve it"),
        (RepairError::Ended(Status::Succeeded), "purge"),
        (RepairError::Free(Status::Expired), "free already"),
    ] {
        let text = error.to_string();
        assert!(text.contains(advice) && text.contains("nothing was changed"), "{text}");
    }
}
