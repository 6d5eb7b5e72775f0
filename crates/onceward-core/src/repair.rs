//! What an operator or a resolver changes because they know more than the protocol: they say what became
//! of an unknown outcome, or give a key back.

use alloc::{format, string::String};
use core::{error::Error, fmt, time::Duration};

use crate::{
    Change, Digest, Effect, Execution, Fence, Note, NoteKind, Outcome, Record, State, Status,
    Stored, Terms, Ttl,
};

/// A repair of one operation, before the record has taken or refused it.
///
/// It fences the owner of the claim off: a settlement that comes late changes nothing. With
/// [`Force::Yes`] a record takes it also while an execution runs, and [`Resolution::Never`] however early:
/// the operator answers for what the repair does not undo.
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
/// # let record = Record { state: State::Unknown, started: Started::At(at), ttl: Ttl::Never, ..next };
/// # let unknown = Stored { record, updated_at: at, read_at: at, suspect: false };
/// let applied = Resolution::Applied(Outcome::inline(201, b"{\"id\":7}".to_vec()));
/// let repair = Repair {
///     id,
///     kind: RepairKind::Resolve(applied),
///     terms: &terms,
///     fence: Fence::from_random([3; 16]),
///     execution: Execution::from_bytes([4; 16]),
///     actor: Some("ada"),
///     reason: Some("found in the provider's dashboard"),
///     force: Force::No,
/// };
/// let change = repair.of(&unknown)?;
/// assert_eq!(change.expected, Some(unknown.record.fence));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The operation's digest.
    pub id: Digest,
    /// What is changed.
    pub kind: RepairKind,
    /// The terms of the operation: a freed key is kept for its lease, an answer for its retention.
    pub terms: &'a Terms,
    /// Must be fresh: the repaired record carries it.
    pub fence: Fence,
    /// Must be fresh: the execution that ran last loses its right to tell the truth late.
    pub execution: Execution,
    /// The operator; `None`: the protocol itself, which asked a resolver.
    pub actor: Option<&'a str>,
    /// Why, in a person's words.
    pub reason: Option<&'a str>,
    /// Whether to change what may have happened, or may still happen.
    pub force: Force,
}

/// The two kinds of [`Repair`].
///
/// ```
/// use onceward_core::{RepairKind, Resolution};
///
/// assert_ne!(RepairKind::Release, RepairKind::Resolve(Resolution::Never));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// Ends an unknown outcome.
    Resolve(Resolution),
    /// Gives the key back. It binds nothing afterwards, not even the fingerprint: whatever request
    /// comes next under it runs.
    Release,
}

/// What became of an unknown outcome.
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
    /// Also what may be wrong: the trail says that it was forced.
    Yes,
}

impl Repair<'_> {
    /// The change that repairs this record, as it was read.
    ///
    /// If the store answers with a conflict, another change came first: read again.
    ///
    /// ```
    /// use onceward_core::*;
    ///
    /// async fn repair(store: &dyn Store, repair: Repair<'_>, unknown: &Stored) -> String {
    ///     match repair.of(unknown) {
    ///         Err(error) => error.to_string(),
    ///         Ok(change) => format!("{:?}", store.swap(&change).await),
    ///     }
    /// }
    /// ```
    pub fn of(self, stored: &Stored) -> Result<Change, RepairError> {
        let objection = self.objection(stored)?;
        let Self { id, kind, terms, fence, execution, actor, reason, force } = self;
        let reason = match (objection, force) {
            (None, _) => reason.map(String::from),
            (Some(_), Force::Yes) => {
                Some(format!("forced: {}", reason.unwrap_or("no reason was given")))
            }
            (Some(refusal), Force::No) => return Err(refusal),
        };
        let (kind, state, ttl) = match kind {
            RepairKind::Resolve(Resolution::Applied(outcome)) => {
                (NoteKind::Resolve, ended(outcome), terms.retain())
            }
            RepairKind::Resolve(Resolution::Never) => {
                (NoteKind::Resolve, State::Released, terms.lease())
            }
            RepairKind::Release => (NoteKind::Release, State::Released, terms.lease()),
        };
        let actor = actor.map(String::from);
        let note = Note { kind, execution: stored.record.execution, actor, reason };
        let ttl = Ttl::For(ttl);
        let next = Record { fence, execution, state, ttl, cause: None, ..stored.record.clone() };
        Ok(Change { id, expected: Some(stored.record.fence), next, note: Some(note), retain: None })
    }

    /// `Ok(Some)`: why the record takes the repair only with force.
    fn objection(&self, stored: &Stored) -> Result<Option<RepairError>, RepairError> {
        match &self.kind {
            RepairKind::Resolve(resolution) => self.objection_to_resolve(resolution, stored),
            RepairKind::Release => objection_to_release(stored),
        }
    }

    fn objection_to_resolve(
        &self,
        resolution: &Resolution,
        stored: &Stored,
    ) -> Result<Option<RepairError>, RepairError> {
        let (left, is_suspect) = match resolution {
            Resolution::Applied(_) => (Duration::ZERO, false),
            // A clock that jumped does not say how long ago the last run began.
            Resolution::Never => (time_until_never(stored, self.terms), stored.suspect),
        };
        match stored.status() {
            Status::Unknown if is_suspect => Ok(Some(RepairError::ClockSuspect)),
            Status::Unknown if left.is_zero() => Ok(None),
            Status::Unknown => Ok(Some(RepairError::TooEarly { left })),
            status @ (Status::InProgress | Status::Interrupted) => {
                Ok(Some(RepairError::NotUnknown(status)))
            }
            status => Err(RepairError::NotUnknown(status)),
        }
    }
}

fn objection_to_release(stored: &Stored) -> Result<Option<RepairError>, RepairError> {
    match stored.status() {
        Status::FailedRetryable | Status::Interrupted => Ok(match stored.record.effect {
            Effect::Transactional | Effect::External => None,
            // Another run under another age of the key could double what an earlier one did.
            Effect::Repeatable { .. } => Some(RepairError::MayHaveHappened),
        }),
        Status::InProgress => Ok(Some(RepairError::InProgress)),
        Status::Unknown => Err(RepairError::Unknown),
        status @ (Status::Succeeded | Status::FailedFinal | Status::ClockSuspect) => {
            Err(RepairError::Ended(status))
        }
        status @ (Status::Released | Status::Expired) => Err(RepairError::Free(status)),
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

/// Why a record takes no [`Repair`]. Nothing was changed.
///
/// ```
/// use onceward_core::{RepairError, Status};
///
/// let error = RepairError::NotUnknown(Status::InProgress);
/// assert!(error.to_string().contains("in_progress"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairError {
    /// Resolve: the outcome is not unknown.
    NotUnknown(Status),
    /// Resolve: the operation may still happen, so that it is too early for [`Resolution::Never`].
    TooEarly {
        /// How long to wait.
        left: Duration,
    },
    /// Resolve: the store's clock jumped and does not say whether it is too early for [`Resolution::Never`].
    ClockSuspect,
    /// Release: an execution runs, so that it needs [`Force::Yes`].
    InProgress,
    /// Release: a repeatable effect may have happened already, so that it needs [`Force::Yes`].
    MayHaveHappened,
    /// Release: the outcome is unknown: it is for [`RepairKind::Resolve`].
    Unknown,
    /// Release: it has ended: it is for [`Inspect::purge`](crate::Inspect::purge).
    Ended(Status),
    /// Release: the key is free already.
    Free(Status),
}

impl fmt::Display for RepairError {
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

impl Error for RepairError {}
