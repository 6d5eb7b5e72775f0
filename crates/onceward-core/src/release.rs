//! How an operator gives a key back, and what force is for.

use alloc::{format, string::String};
use core::{error::Error, fmt};

use crate::{
    Change, Digest, Effect, Execution, Fence, Note, NoteKind, Record, State, Status, Stored, Terms,
    Ttl,
};

/// Whether an operator answers for what the protocol cannot know.
///
/// Without force nothing can double the effect. With it, only the operator's word says so: an owner
/// that still runs is fenced off, but what it has done or is doing is not undone.
///
/// ```
/// use onceward_core::Force;
///
/// assert_eq!(Force::default(), Force::No);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Force {
    /// Only what is certain to be safe.
    #[default]
    No,
    /// Also what may be wrong: the trail tells that it was forced.
    Yes,
}

/// Whether a change was made only because it was forced.
#[derive(Clone, Copy)]
pub(crate) enum Needed {
    NoForce,
    Force,
}

/// The reason as the trail keeps it.
pub(crate) fn told(reason: Option<&str>, needed: Needed) -> Option<String> {
    match needed {
        Needed::NoForce => reason.map(String::from),
        Needed::Force => Some(format!("forced: {}", reason.unwrap_or("no reason was given"))),
    }
}

/// An operator gives the key of one operation back, before it is known whether the record allows it.
///
/// The key binds nothing afterwards, not even the fingerprint: whatever comes next under it runs.
/// Whoever owned the claim is fenced off.
///
/// ```
/// use onceward_core::*;
///
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// # let at = Timestamp::from_unix_micros(0);
/// # let Change { id, next, .. } = admission.change().clone();
/// # let record = Record { state: State::FailedRetryable, started: Started::At(at), ttl: Ttl::Never, ..next };
/// # let failed = Stored { record, updated_at: at, read_at: at, suspect: false };
/// let release = Release {
///     id,
///     terms: &terms,
///     fence: Fence::from_random([3; 16]),
///     execution: Execution::from_bytes([4; 16]),
///     actor: Some("ada"),
///     reason: Some("the customer asked for something else"),
///     force: Force::No,
/// };
/// let change = release.of(&failed)?;
/// assert_eq!(change.next.state, State::Released);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    /// The operation's digest.
    pub id: Digest,
    /// The terms of the operation: the released record is kept for its lease.
    pub terms: &'a Terms,
    /// Must be fresh: it is what the released record will carry.
    pub fence: Fence,
    /// Must be fresh: the execution that ran last loses its right to tell the truth late.
    pub execution: Execution,
    /// The operator.
    pub actor: Option<&'a str>,
    /// Why, in a person's words.
    pub reason: Option<&'a str>,
    /// Whether to release what may have happened, or may still happen.
    pub force: Force,
}

impl Release<'_> {
    /// The change that releases this record, as it was read.
    ///
    /// If the store answers with a conflict, somebody else was faster: read again.
    ///
    /// ```
    /// use onceward_core::*;
    ///
    /// async fn release(store: &dyn Store, release: Release<'_>, failed: &Stored) -> String {
    ///     match release.of(failed) {
    ///         Err(error) => error.to_string(),
    ///         Ok(change) => format!("{:?}", store.swap(&change).await),
    ///     }
    /// }
    /// ```
    pub fn of(self, stored: &Stored) -> Result<Change, ReleaseError> {
        let needed = self.needed(stored)?;
        let Self { id, terms, fence, execution, actor, reason, .. } = self;
        let note = Note {
            kind: NoteKind::Release,
            execution: stored.record.execution,
            actor: actor.map(String::from),
            reason: told(reason, needed),
        };
        let (state, ttl) = (State::Released, Ttl::For(terms.lease()));
        let next = Record { fence, execution, state, ttl, ..stored.record.clone() };
        Ok(Change { id, expected: Some(stored.record.fence), next, note: Some(note), retain: None })
    }

    fn needed(&self, stored: &Stored) -> Result<Needed, ReleaseError> {
        let refusal = match stored.status() {
            // Another run under another age of the key could double what an earlier one did.
            Status::FailedRetryable | Status::Interrupted => match stored.record.effect {
                Effect::Transactional | Effect::External => return Ok(Needed::NoForce),
                Effect::Repeatable { .. } => ReleaseError::MayHaveHappened,
            },
            Status::InProgress => ReleaseError::InProgress,
            Status::Unknown => return Err(ReleaseError::Unknown),
            status @ (Status::Succeeded | Status::FailedFinal | Status::ClockSuspect) => {
                return Err(ReleaseError::Ended(status));
            }
            status @ (Status::Released | Status::Expired) => {
                return Err(ReleaseError::Free(status));
            }
        };
        match self.force {
            Force::Yes => Ok(Needed::Force),
            Force::No => Err(refusal),
        }
    }
}

/// Why a record takes no [`Release`]. Nothing was changed.
///
/// ```
/// use onceward_core::ReleaseError;
///
/// assert!(ReleaseError::Unknown.to_string().contains("resolve"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseError {
    /// An execution runs: only with [`Force::Yes`].
    InProgress,
    /// A repeatable effect may have happened already: only with [`Force::Yes`].
    MayHaveHappened,
    /// The outcome is unknown: it is for [`Resolve`](crate::Resolve).
    Unknown,
    /// It has ended: it is for [`Inspect::purge`](crate::Inspect::purge).
    Ended(Status),
    /// Its key is free already.
    Free(Status),
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress => formatter.write_str(
                "the operation is in progress and its effect may still happen; nothing was changed; \
                 wait for its end or its lease, or force the release: its owner is then fenced off, \
                 but what it does is not undone",
            ),
            Self::MayHaveHappened => formatter.write_str(
                "an earlier run may have had its effect, and a request under the freed key could \
                 repeat it after downstream has forgotten the key; nothing was changed; send the same \
                 request again with the same key, or force the release if you know that it did not \
                 happen",
            ),
            Self::Unknown => formatter.write_str(
                "the outcome is unknown, and a release would run it again; nothing was changed; find \
                 out what happened and resolve it",
            ),
            Self::Ended(status) => write!(
                formatter,
                "the operation is {status}: it has ended and its answer is kept; nothing was changed; \
                 to make its key new, purge the record"
            ),
            Self::Free(status) => write!(
                formatter,
                "the operation is {status}: its key is free already; nothing was changed and nothing \
                 is left to do"
            ),
        }
    }
}

impl Error for ReleaseError {}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
