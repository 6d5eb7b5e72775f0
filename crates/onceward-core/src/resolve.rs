//! How an unknown outcome is left because somebody found out what happened.

use alloc::string::String;
use core::{error::Error, fmt, time::Duration};

use crate::{
    Change, Digest, Execution, Fence, Force, Note, NoteKind, Outcome, Record, State, Status,
    Stored, Terms, Ttl,
    release::{Needed, told},
};

/// What somebody found out about an unknown outcome.
///
/// ```
/// use onceward_core::{Outcome, Resolution};
///
/// let charged = Resolution::Applied(Outcome::inline(201, b"{\"id\":7}".to_vec()));
/// assert_ne!(charged, Resolution::Never);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It is settled: duplicates get this answer.
    Applied(Outcome),
    /// It did not happen and can no longer happen: the key is given back.
    Never,
}

/// A resolution of one unknown outcome, before it is known whether the record takes it.
///
/// Whoever owned the claim is fenced off by it: a settlement that comes late changes nothing. With
/// [`Force::Yes`] it is also taken for an operation that runs or was interrupted, and
/// [`Resolution::Never`] however early it is said: the operator answers for what is not undone by it.
///
/// ```
/// # use core::time::Duration;
/// use onceward_core::*;
///
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// # let at = Timestamp::from_unix_micros(0);
/// # let Change { id, next, .. } = admission.change().clone();
/// # let record = Record { state: State::Unknown, started: Started::At(at), ttl: Ttl::Never, ..next };
/// # let unknown = Stored { record, updated_at: at, read_at: at, suspect: false };
/// let resolve = Resolve {
///     id,
///     resolution: Resolution::Applied(Outcome::inline(201, b"{\"id\":7}".to_vec())),
///     terms: &terms,
///     fence: Fence::from_random([3; 16]),
///     execution: Execution::from_bytes([4; 16]),
///     actor: Some("ada"),
///     reason: Some("found in the provider's dashboard"),
///     force: Force::No,
/// };
/// let change = resolve.of(&unknown)?;
/// assert_eq!(change.expected, Some(unknown.record.fence));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve<'a> {
    /// The operation's digest.
    pub id: Digest,
    /// What was found out.
    pub resolution: Resolution,
    /// The terms of the operation.
    pub terms: &'a Terms,
    /// Must be fresh: it is what the resolved record will carry.
    pub fence: Fence,
    /// Must be fresh: the execution that is resolved loses its right to tell the truth late.
    pub execution: Execution,
    /// The operator; `None`: the protocol itself, which asked a resolver.
    pub actor: Option<&'a str>,
    /// Why, in a person's words.
    pub reason: Option<&'a str>,
    /// Whether to resolve what may still happen.
    pub force: Force,
}

impl Resolve<'_> {
    /// The change that resolves this record, as it was read.
    ///
    /// If the store answers with a conflict, somebody else was faster: read again.
    ///
    /// ```
    /// use onceward_core::*;
    ///
    /// async fn resolve(store: &dyn Store, resolve: Resolve<'_>, unknown: &Stored) -> String {
    ///     match resolve.of(unknown) {
    ///         Err(error) => error.to_string(),
    ///         Ok(change) => format!("{:?}", store.swap(&change).await),
    ///     }
    /// }
    /// ```
    pub fn of(self, stored: &Stored) -> Result<Change, ResolveError> {
        let needed = self.needed(stored)?;
        let Self { id, resolution, terms, fence, execution, actor, reason, .. } = self;
        let (state, ttl) = match resolution {
            Resolution::Applied(outcome) => (ended(outcome), terms.retain()),
            Resolution::Never => (State::Released, terms.lease()),
        };
        let note = Note {
            kind: NoteKind::Resolve,
            execution: stored.record.execution,
            actor: actor.map(String::from),
            reason: told(reason, needed),
        };
        let ttl = Ttl::For(ttl);
        let next = Record { fence, execution, state, ttl, cause: None, ..stored.record.clone() };
        Ok(Change { id, expected: Some(stored.record.fence), next, note: Some(note), retain: None })
    }

    fn needed(&self, stored: &Stored) -> Result<Needed, ResolveError> {
        let status = stored.status();
        let left = match self.resolution {
            Resolution::Applied(_) => Duration::ZERO,
            Resolution::Never => time_until_never(stored, self.terms),
        };
        // A clock that jumped does not say how long ago the last run began.
        let is_suspect = stored.suspect && self.resolution == Resolution::Never;
        match (status, self.force) {
            (Status::Unknown, Force::No) if is_suspect => Err(ResolveError::ClockSuspect),
            (Status::Unknown, _) if left.is_zero() && !is_suspect => Ok(Needed::NoForce),
            (Status::Unknown, Force::No) => Err(ResolveError::TooEarly { left }),
            (Status::Unknown | Status::InProgress | Status::Interrupted, Force::Yes) => {
                Ok(Needed::Force)
            }
            _ => Err(ResolveError::NotUnknown(status)),
        }
    }
}

fn ended(outcome: Outcome) -> State {
    match outcome.status {
        200..=399 => State::Succeeded(outcome),
        _ => State::FailedFinal(outcome),
    }
}

/// The last owner may send until `max_run` is over, and what it sent may be on its way for a lease.
fn time_until_never(stored: &Stored, terms: &Terms) -> Duration {
    let max_run = stored.record.max_run.map_or(terms.max_run(), |owner| owner.max(terms.max_run()));
    let margin = max_run.saturating_add(terms.lease());
    // The time of the last claim is not stored; the last write is not earlier than that.
    stored.updated_at.plus(margin).since(stored.read_at)
}

/// Why a record takes no [`Resolve`]. Nothing was changed.
///
/// ```
/// use onceward_core::{ResolveError, Status};
///
/// let error = ResolveError::NotUnknown(Status::InProgress);
/// assert!(error.to_string().contains("in_progress"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The outcome is not unknown: there is nothing to resolve.
    NotUnknown(Status),
    /// The operation may still happen: it is too early for [`Resolution::Never`].
    TooEarly {
        /// How long to wait.
        left: Duration,
    },
    /// The store's clock jumped, so that it does not say whether it is too early for [`Resolution::Never`].
    ClockSuspect,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnknown(status @ (Status::InProgress | Status::Interrupted)) => write!(
                formatter,
                "the operation is {status}, and only an unknown outcome can be resolved; nothing \
                 was changed; look at its status again and resolve it if it becomes unknown, or force \
                 it: its owner is then fenced off, but what it does is not undone"
            ),
            Self::NotUnknown(status) => write!(
                formatter,
                "the operation is {status}, and only an unknown outcome can be resolved; nothing \
                 was changed; look at its status again and resolve it only if it becomes unknown"
            ),
            Self::ClockSuspect => formatter.write_str(
                "the store's clock jumped, so that it does not say whether the last run may still have its \
                 effect, and the key cannot be given back; nothing was changed and the outcome stays \
                 unknown; set the clock right or say that it is right, and ask again; or force it if you \
                 know that it cannot happen any more",
            ),
            Self::TooEarly { left } => write!(
                formatter,
                "the last run may still have its effect, so that the key cannot be given back yet; \
                 nothing was changed and the outcome stays unknown; ask again in {left:?} whether \
                 it happened, or force it if you know that it cannot happen any more"
            ),
        }
    }
}

impl Error for ResolveError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effect, Fingerprint, Keeps, KeyDigest, OperationName, Scope, Started, Timestamp};
    use std::{format, string::ToString, vec::Vec};

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

    fn resolve(resolution: Resolution, stored: &Stored) -> Result<Change, ResolveError> {
        resolve_by(Force::No, resolution, stored)
    }

    fn resolve_by(
        force: Force,
        resolution: Resolution,
        stored: &Stored,
    ) -> Result<Change, ResolveError> {
        let terms = Terms::of(Effect::External).lease(LEASE).max_run(MAX_RUN).build().unwrap();
        let (fence, execution) = (Fence::from_random([5; 16]), Execution::from_bytes([6; 16]));
        let (actor, reason) = (Some("ada"), Some("seen"));
        Resolve { id: ID, resolution, terms: &terms, fence, execution, actor, reason, force }
            .of(stored)
    }

    fn applied(status: u16) -> Resolution {
        Resolution::Applied(Outcome::inline(status, Vec::new()))
    }

    const OVER: Ttl = Ttl::For(Duration::ZERO);
    const LEFT: Ttl = Ttl::For(SECOND);
    const REPEATABLE: Effect = Effect::Repeatable { within: Duration::from_secs(60) };

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
        let outcome = || Outcome::inline(200, Vec::new());
        for (state, effect, ttl, status) in [
            (State::InProgress, Effect::External, LEFT, Status::InProgress),
            (State::InProgress, Effect::Transactional, OVER, Status::Interrupted),
            (
                State::InProgress,
                Effect::Repeatable { within: LEASE * 9 },
                OVER,
                Status::Interrupted,
            ),
            (State::Succeeded(outcome()), Effect::External, LEFT, Status::Succeeded),
            (State::FailedFinal(outcome()), Effect::External, LEFT, Status::FailedFinal),
            (State::FailedRetryable, Effect::External, LEFT, Status::FailedRetryable),
            (State::Released, Effect::External, LEFT, Status::Released),
            (State::Unknown, Effect::External, OVER, Status::Expired),
        ] {
            let stored = stored(state, effect, ttl, 1180);
            for resolution in [applied(200), Resolution::Never] {
                let error = resolve(resolution, &stored).unwrap_err();
                assert_eq!(error, ResolveError::NotUnknown(status));
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
            assert_eq!(error, ResolveError::TooEarly { left: SECOND });
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
            assert_eq!(error, ResolveError::ClockSuspect);
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
        assert_eq!(error, ResolveError::TooEarly { left: SECOND * 190 });
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
        let outcome = || Outcome::inline(200, Vec::new());
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
                assert_eq!(error, ResolveError::NotUnknown(status));
            }
        }
    }
}
