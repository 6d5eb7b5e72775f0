//! What a stored record means, and how it is shown.

use std::time::Duration;

use onceward_core::{
    Effect, Execution, Fence, Fingerprint, Found, Outcome, PURGE_MARGIN, Purge, Record, Started,
    State, Status, Step, Stored, StoredBody, Swap, Timestamp, Ttl, Verdict,
};

use crate::{MINUTE, OVER, admission};

const NOW: Timestamp = Timestamp::from_unix_micros(3_600_000_000);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Written so long ago.
fn stored(effect: Effect, state: State, ttl: Ttl, ago: Duration) -> Stored {
    let updated_at = NOW.minus(ago);
    let started = Started::At(updated_at);
    let record = Record { effect, state, ttl, started, ..admission().change().next.clone() };
    Stored { record, updated_at, read_at: NOW, suspect: false }
}

#[test]
fn what_is_open_or_may_have_happened_or_has_just_ended_is_not_purged() {
    let repeatable = Effect::Repeatable { within: Duration::from_secs(3600) };
    let ended = || State::Succeeded(Outcome::inline(200, Vec::new()));
    let (old, recent) = (PURGE_MARGIN, PURGE_MARGIN - MICROSECOND);
    for (effect, state, ttl, ago, refusal) in [
        (Effect::External, State::InProgress, MINUTE, old, Some(Purge::Open)),
        (Effect::External, State::InProgress, OVER, old, Some(Purge::Open)),
        (Effect::External, State::Unknown, Ttl::Never, old, Some(Purge::Open)),
        (repeatable, State::FailedRetryable, MINUTE, old, Some(Purge::Open)),
        (Effect::External, State::FailedRetryable, MINUTE, old, None),
        (repeatable, ended(), MINUTE, old, None),
        (Effect::External, ended(), MINUTE, old, None),
        (Effect::External, ended(), MINUTE, old + MICROSECOND, None),
        (Effect::External, ended(), MINUTE, recent, Some(Purge::Recent)),
        (Effect::External, ended(), MINUTE, Duration::ZERO, Some(Purge::Recent)),
    ] {
        let stored = stored(effect, state, ttl, ago);
        assert_eq!(stored.refuses_purge(), refusal, "{stored:?}");
    }
}

#[test]
fn what_only_a_jump_of_the_clock_lets_expire_is_neither_absent_nor_replayed() {
    let ended = || State::Succeeded(Outcome::inline(200, Vec::new()));
    let repeatable = Effect::Repeatable { within: Duration::from_secs(3600) };
    for (effect, state, ttl, status, refusal) in [
        (Effect::External, ended(), OVER, Status::ClockSuspect, None),
        (Effect::External, State::FailedRetryable, OVER, Status::ClockSuspect, None),
        (repeatable, State::FailedRetryable, OVER, Status::ClockSuspect, Some(Purge::Open)),
        (Effect::External, State::Unknown, OVER, Status::ClockSuspect, Some(Purge::Open)),
        (Effect::External, State::Released, OVER, Status::Released, None),
        (Effect::Transactional, State::InProgress, OVER, Status::Interrupted, Some(Purge::Open)),
        (Effect::External, ended(), MINUTE, Status::Succeeded, None),
    ] {
        let stored = Stored { suspect: true, ..stored(effect, state, ttl, PURGE_MARGIN) };
        assert_eq!((stored.status(), stored.refuses_purge()), (status, refusal), "{stored:?}");
    }
}

#[test]
fn a_suspect_record_is_refused_whatever_the_request_means() {
    let state = State::Succeeded(Outcome::inline(200, Vec::new()));
    let stored = stored(Effect::External, state, OVER, PURGE_MARGIN);
    for fingerprint in [1, 2].map(|byte| Fingerprint::from_parts(1, [byte; 32])) {
        let fence = Fence::from_random([9; 16]);
        let record = Record { fence, fingerprint, ..stored.record.clone() };
        let found = |suspect| {
            let stored = Stored { record: record.clone(), suspect, ..stored.clone() };
            Swap::Conflict(Found::Record(Box::new(stored)))
        };
        assert_eq!(admission().next(found(true)), Step::Done(Verdict::ClockSuspect));
        let Step::Swap(claim) = admission().next(found(false)) else { panic!("it is absent") };
        assert_eq!(claim.change().expected, Some(fence));
    }
}

#[test]
fn a_jump_explains_what_would_not_be_over_without_it() {
    let hour = Duration::from_secs(3600);
    let old = NOW.minus(hour * 9);
    let suspect = |end, ahead| Ttl::is_suspect(end, old, NOW, &(ahead..=ahead));
    let is_suspect = |ago: Duration, ahead| suspect(Some(NOW.minus(ago)), ahead);
    assert!(is_suspect(Duration::ZERO, MICROSECOND) && !is_suspect(Duration::ZERO, Duration::ZERO));
    assert!(is_suspect(hour - MICROSECOND, hour) && !is_suspect(hour, hour));
    assert!(!suspect(Some(NOW.plus(MICROSECOND)), hour), "it is not over");
    assert!(!suspect(None, hour), "it never is");
}

#[test]
fn what_was_written_after_the_jump_is_counted_by_the_clock_as_it_is() {
    let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
    let ahead = hour - minute..=hour + minute;
    let ended = State::Succeeded(Outcome::inline(200, Vec::new()));
    let is_suspect = |state, end, ago| {
        let (end, written_at): (Option<Timestamp>, _) = (end, NOW.minus(ago));
        Stored::is_suspect(state, end, written_at, NOW, &ahead)
    };
    for state in [&ended, &State::FailedRetryable, &State::Unknown, &State::InProgress] {
        assert!(!is_suspect(state, Some(NOW), hour - minute - MICROSECOND), "{state:?}");
        assert!(is_suspect(state, Some(NOW), hour - minute), "believed only if it is certain");
    }
    let long_ago = Some(NOW.minus(hour * 2));
    assert!(!is_suspect(&ended, long_ago, hour * 3), "it is over whatever the clock did");
    assert!(is_suspect(&State::InProgress, long_ago, hour * 3), "how old it is, is not known");
    assert!(is_suspect(&State::Unknown, None, hour * 3));
    let right = Duration::ZERO..=Duration::ZERO;
    assert!(!Stored::is_suspect(&State::Unknown, None, NOW.minus(hour), NOW, &right));
}

#[test]
fn a_record_ends_when_its_time_is_over_and_otherwise_never() {
    let ends = |ttl| stored(Effect::External, State::InProgress, ttl, Duration::ZERO).expires_at();
    assert_eq!(ends(MINUTE), Some(NOW.plus(Duration::from_secs(60))));
    assert_eq!(ends(OVER), Some(NOW));
    assert_eq!(ends(Ttl::Never), None);
    for ttl in [MINUTE, OVER, Ttl::Never] {
        assert_eq!(ttl.ends_at(NOW), ends(ttl));
        assert_eq!(Ttl::left(ttl.ends_at(NOW), NOW), ttl);
    }
    assert_eq!(NOW.unix_micros(), 3_600_000_000);
}

#[test]
fn every_status_has_its_word_and_only_three_are_open() {
    let words = Status::ALL.map(|status| (status.as_str(), status.is_open()));
    let expected = [
        ("in_progress", true),
        ("succeeded", false),
        ("failed_final", false),
        ("failed_retryable", false),
        ("unknown", true),
        ("interrupted", true),
        ("released", false),
        ("expired", false),
        ("clock_suspect", false),
    ];
    assert_eq!(words, expected);
    assert_eq!(Status::ALL.map(|status| status.to_string()), expected.map(|(word, _)| word));
}

/// Answers may hold secrets: a log line has sizes only.
#[test]
fn debugging_shows_sizes_and_names_and_no_answer() {
    let outcome = Outcome::inline(201, b"secret".to_vec()).header("set-cookie", b"secret");
    assert_eq!(format!("{outcome:?}"), "Outcome(201, 1 headers, Inline(6 bytes))");
    let outcome = outcome.trailer("grpc-message", b"secret");
    assert_eq!(format!("{outcome:?}"), "Outcome(201, 1 headers, Inline(6 bytes), 1 trailers)");
    let spooled = StoredBody::Spooled { length: 7, digest: [0; 32] };
    assert_eq!(
        format!("{spooled:?} {:?}", StoredBody::Unavailable),
        "Spooled(7 bytes) Unavailable"
    );
    let fence = Fence::from_random([0xab; 16]);
    assert_eq!(format!("{fence:?}"), format!("Fence({})", "ab".repeat(16)));
    let execution = Execution::from_bytes([1; 16]);
    assert_eq!(execution.to_string(), "01010101-0101-0101-0101-010101010101");
    assert_eq!(format!("{execution:?}"), format!("Execution({execution})"));
}
