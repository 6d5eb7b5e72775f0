//! What is remembered of one operation, and what it means at the moment it is read.

use core::time::Duration;

use crate::{
    Cause, Execution, Fence, Fingerprint, Keeps, KeyDigest, OperationName, Outcome, Scope, Started,
    Status, Timestamp, Ttl,
};

/// The durable row of one operation: everything that its writer decides.
///
/// ```
/// use onceward_core::*;
///
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// let record = &admission.change().next;
/// assert_eq!((&record.state, record.attempts), (&State::InProgress, 1));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// To whom the operation belongs.
    pub scope: Scope,
    /// What was asked for.
    pub operation: OperationName,
    /// Stands for the key, which itself is never stored.
    pub key_digest: KeyDigest,
    /// The version of this record that a change must expect.
    pub fence: Fence,
    /// The claim that ran last.
    pub execution: Execution,
    /// What is at stake if that claim is abandoned.
    pub effect: Effect,
    /// How long that claim's owner may run; `None` where it was not said.
    pub max_run: Option<Duration>,
    /// What of its answer may be stored by code that does not know the rules of its route.
    pub keeps: Keeps,
    /// What the request meant.
    pub fingerprint: Fingerprint,
    /// How many claims there were, counted from 1.
    pub attempts: u32,
    /// Where the operation stands.
    pub state: State,
    /// Why the outcome is unknown, where it is and the writer said so.
    pub cause: Option<Cause>,
    /// When the first claim was made.
    pub started: Started,
    /// How long the lease (in progress) or the memory (ended) lasts from now on.
    pub ttl: Ttl,
}

/// A record as a store gives it back, with the store's own times.
///
/// All ages are differences of times of the same clock, the store's; `record.ttl` is what was left
/// at `read_at`.
///
/// ```
/// use onceward_core::{Status, Stored};
///
/// fn is_stuck(stored: &Stored) -> bool {
///     stored.status() == Status::Unknown
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// What was written; `ttl` is what is left of it and `started` is a time.
    pub record: Record,
    /// When the store last wrote it: for an ended record, when it ended or was last repaired.
    pub updated_at: Timestamp,
    /// The store's time when it was read.
    pub read_at: Timestamp,
    /// A jump of the store's clock may explain what its times say: see [`is_suspect`](Self::is_suspect).
    pub suspect: bool,
}

impl Stored {
    /// What the record means now. This is all that admission, status pages and lists look at.
    #[must_use]
    pub fn status(&self) -> Status {
        let over = self.record.ttl.is_over();
        match self.record.state {
            State::Released => Status::Released,
            State::InProgress if !over => Status::InProgress,
            State::InProgress => self.status_when_abandoned(),
            // The store cannot tell whether its retention is over: it may still bind.
            _ if over && self.suspect => Status::ClockSuspect,
            // An ended record whose retention is over binds nothing, swept or not.
            _ if over => Status::Expired,
            State::Succeeded(_) => Status::Succeeded,
            State::FailedFinal(_) => Status::FailedFinal,
            State::FailedRetryable if self.is_too_old_to_repeat() => Status::Unknown,
            State::FailedRetryable => Status::FailedRetryable,
            State::Unknown => Status::Unknown,
        }
    }

    fn status_when_abandoned(&self) -> Status {
        match self.record.effect {
            Effect::Transactional => Status::Interrupted,
            Effect::External => Status::Unknown,
            Effect::Repeatable { .. } if self.is_too_old_to_repeat() => Status::Unknown,
            Effect::Repeatable { .. } => Status::Interrupted,
        }
    }

    /// Downstream may have forgotten the key by now: another run could double the effect.
    fn is_too_old_to_repeat(&self) -> bool {
        matches!(self.record.effect, Effect::Repeatable { within } if self.age() >= within)
    }

    /// How long ago the first claim was made, by the store's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.read_at.since(self.started_at())
    }

    /// When the first claim was made.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        match self.record.started {
            Started::At(time) => time,
            Started::Now => self.read_at,
        }
    }

    /// When the lease or the retention ends (the time of reading, once it is over), if it does.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self.record.ttl {
            Ttl::For(left) => Some(self.read_at.plus(left)),
            Ttl::Never => None,
        }
    }
}

/// Where an operation stands, as stored. What it means now is its [`Status`].
///
/// ```
/// use onceward_core::{Outcome, State};
///
/// let state = State::Succeeded(Outcome::inline(204, Vec::new()));
/// assert_ne!(state, State::Released);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Claimed; the claim's lease is the record's ttl.
    InProgress,
    /// The effect happened; this is the answer.
    Succeeded(Outcome),
    /// The operation was refused for good; this is the answer.
    FailedFinal(Outcome),
    /// Nothing happened, or happening again is harmless; may be run again.
    FailedRetryable,
    /// The outcome cannot be proven.
    Unknown,
    /// Binds nothing, not even the fingerprint; kept for one lease, then swept.
    Released,
}

/// What is at stake in an operation: decides what happens when its owner vanishes.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::Effect;
///
/// // The provider remembers keys for a day: a second run with the same key is harmless until then.
/// let effect = Effect::Repeatable { within: Duration::from_secs(23 * 3600) };
/// # let _ = effect;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Happens only in the transaction that ends the record. Abandoned: taken over.
    Transactional,
    /// Opaque. Abandoned: unknown, never run again by itself.
    External,
    /// Downstream honours the operation's key. Abandoned: taken over while young enough.
    ///
    /// This is your word for three things: downstream recognises
    /// [`key_for`](crate::OperationId::key_for) on a second run; it remembers the key for at least
    /// `within` *plus* the longest time that one run takes; and it remembers refusals too, or you
    /// end a refused run as [`FailedRetryable`](crate::Ending::FailedRetryable).
    Repeatable {
        /// How long after the first claim another run may be started.
        within: Duration,
    },
}
