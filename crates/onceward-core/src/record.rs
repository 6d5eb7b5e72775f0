//! What is remembered of one operation, and what it means at the moment it is read.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, ops::RangeInclusive, time::Duration};

use crate::{
    Cause, Fingerprint, KeyDigest, OperationName, PURGE_MARGIN, Purge, Scope, Started, Timestamp,
    Ttl, times::is_older_than_the_jump,
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

/// What of an answer may be stored by code that does not know the rules of its route: a service that ends an
/// operation by SQL has no redaction and no key.
///
/// Who claims says it, and it stands in the record, so that it holds wherever the operation is ended.
///
/// ```
/// use onceward_core::{Effect, Keeps, Terms};
///
/// let terms = Terms::of(Effect::Transactional).keeps(Keeps::StatusAndLocation).build()?;
/// assert_eq!(terms.keeps(), Keeps::StatusAndLocation);
/// # Ok::<(), onceward_core::TermsError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// All of it.
    #[default]
    Everything,
    /// No body, and of the header lines none but `Location`.
    StatusAndLocation,
    /// Neither header lines nor a body.
    Status,
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
    /// What a store says as `suspect` of a record that it reads by a clock which may be so far ahead.
    ///
    /// Of an end whose time is over: the jump explains that, see [`Ttl::is_suspect`]. Of all else: the clock
    /// jumped since it was written, so that how long ago that was is not known.
    ///
    /// ```
    /// use core::time::Duration;
    /// use onceward_core::{State, Stored, Timestamp};
    ///
    /// let (written, hour) = (Timestamp::from_unix_micros(0), Duration::from_secs(3600));
    /// let is_suspect = |ahead| {
    ///     Stored::is_suspect(&State::Unknown, None, written, written.plus(hour), &ahead)
    /// };
    /// assert!(is_suspect(hour..=hour) && !is_suspect(Duration::ZERO..=Duration::ZERO));
    /// ```
    #[must_use]
    pub fn is_suspect(
        state: &State,
        ends_at: Option<Timestamp>,
        written_at: Timestamp,
        now: Timestamp,
        ahead: &RangeInclusive<Duration>,
    ) -> bool {
        let is_over = ends_at.is_some_and(|end| end <= now);
        match state {
            State::InProgress => is_older_than_the_jump(written_at, now, ahead),
            _ if is_over => Ttl::is_suspect(ends_at, written_at, now, ahead),
            _ => is_older_than_the_jump(written_at, now, ahead),
        }
    }

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

    /// What keeps an operator from deleting this record; `None`: nothing does.
    #[must_use]
    pub fn refuses_purge(&self) -> Option<Purge> {
        let status = self.status();
        // An earlier run may have had its effect, and a new key would start the time anew in which
        // another one is harmless.
        let may_have_happened = self.record.state == State::FailedRetryable
            && matches!(self.record.effect, Effect::Repeatable { .. });
        // An operator who believes the clock says so first: then it has expired.
        let is_suspect = status == Status::ClockSuspect
            && (may_have_happened || self.record.state == State::Unknown);
        let may_have_happened = may_have_happened && status == Status::FailedRetryable;
        if status.is_open() || may_have_happened || is_suspect {
            return Some(Purge::Open);
        }
        (self.read_at.since(self.updated_at) < PURGE_MARGIN).then_some(Purge::Recent)
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

/// What a [`Stored`] record means at the time it was read.
///
/// ```
/// use onceward_core::Status;
///
/// assert!(Status::Unknown.is_open(), "somebody must look at it");
/// assert_eq!(Status::Interrupted.to_string(), "interrupted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// An execution holds the claim and its lease.
    InProgress,
    /// Ended well; its outcome is replayed.
    Succeeded,
    /// Ended badly for good; its outcome is replayed.
    FailedFinal,
    /// Ended without effect; the next request runs it again.
    FailedRetryable,
    /// It cannot be proven whether the effect happened.
    Unknown,
    /// The owner vanished and another run is safe; the next request takes over.
    Interrupted,
    /// Given back without effect; binds nothing.
    Released,
    /// Remembered longer than promised; binds nothing.
    Expired,
    /// Remembered longer than promised only if a clock is right that jumped; nothing is run.
    ClockSuspect,
}

impl Status {
    /// All of them, in the order of this enumeration.
    pub const ALL: [Self; 9] = [
        Self::InProgress,
        Self::Succeeded,
        Self::FailedFinal,
        Self::FailedRetryable,
        Self::Unknown,
        Self::Interrupted,
        Self::Released,
        Self::Expired,
        Self::ClockSuspect,
    ];

    /// Whether the operation still has to end: an operator may not delete it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::InProgress | Self::Interrupted | Self::Unknown)
    }

    /// The word for it in status documents, lists and metrics.
    ///
    /// ```
    /// # use onceward_core::Status;
    /// assert_eq!(Status::FailedFinal.as_str(), "failed_final");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Succeeded => "succeeded",
            Self::FailedFinal => "failed_final",
            Self::FailedRetryable => "failed_retryable",
            Self::Unknown => "unknown",
            Self::Interrupted => "interrupted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::ClockSuspect => "clock_suspect",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
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

/// The remembered result of an operation: what a duplicate is answered with.
///
/// ```
/// use onceward_core::{StoredBody, Outcome};
///
/// let outcome = Outcome::inline(201, b"{}".to_vec()).header("content-type", b"application/json");
/// assert_eq!(outcome.body, StoredBody::Inline(b"{}".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The HTTP status, or a number with the same meaning.
    pub status: u16,
    /// Header lines in order, repeated names included, values as bytes.
    pub headers: Vec<Header>,
    /// The bytes of the answer, or where they are.
    pub body: StoredBody,
    /// Lines after the body, in order, like `headers`.
    pub trailers: Vec<Header>,
}

/// One header line: name and value.
pub type Header = (Box<str>, Box<[u8]>);

impl Outcome {
    /// An outcome whose body is kept in the record.
    #[must_use]
    pub fn inline(status: u16, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), body: StoredBody::Inline(body), trailers: Vec::new() }
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a line after the body.
    ///
    /// ```
    /// # use onceward_core::Outcome;
    /// let outcome = Outcome::inline(200, Vec::new()).trailer("grpc-status", b"0");
    /// assert_eq!(outcome.trailers, [("grpc-status".into(), b"0"[..].into())]);
    /// ```
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &[u8]) -> Self {
        self.trailers.push((name.into(), value.into()));
        self
    }
}

/// Sizes and status only: answers may hold secrets.
impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, body, trailers } = self;
        write!(formatter, "Outcome({status}, {} headers, {body:?}", headers.len())?;
        match trailers.len() {
            0 => formatter.write_str(")"),
            count => write!(formatter, ", {count} trailers)"),
        }
    }
}

/// The body of an [`Outcome`].
///
/// ```
/// use onceward_core::{StoredBody, Outcome};
///
/// let kept = StoredBody::Reference { kind: "payment".into(), id: "pay_7".into() };
/// let outcome = Outcome { body: kept, ..Outcome::inline(201, Vec::new()) };
/// assert_eq!(format!("{outcome:?}"), "Outcome(201, 0 headers, Reference(payment/pay_7))");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StoredBody {
    /// Kept in the record.
    Inline(Vec<u8>),
    /// Kept beside the record, see [`Spool`](crate::Spool).
    Spooled {
        /// Its length in bytes.
        length: u64,
        /// Its SHA-256 digest, checked at replay.
        digest: [u8; 32],
    },
    /// Rebuilt from the source of truth.
    Reference {
        /// The resource's type, like `payment`.
        kind: String,
        /// The resource's id.
        id: String,
    },
    /// Could not be kept; a duplicate is told so and is never run again.
    Unavailable,
}

impl fmt::Debug for StoredBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(formatter, "Inline({} bytes)", bytes.len()),
            Self::Spooled { length, .. } => write!(formatter, "Spooled({length} bytes)"),
            Self::Reference { kind, id } => write!(formatter, "Reference({kind}/{id})"),
            Self::Unavailable => formatter.write_str("Unavailable"),
        }
    }
}

/// 128 bits, unique for ever: names the current version of a claim.
///
/// Ending a claim replaces its fence, so that whatever an earlier owner still sends misses. It is
/// random and not a counter of the row, because a counter restarts after a purge and would let a
/// zombie through.
///
/// ```
/// # use onceward_core::Fence;
/// assert_ne!(Fence::from_random([1; 16]), Fence::from_random([2; 16]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence([u8; 16]);

impl Fence {
    /// Makes a fence of fresh random bytes: never use the same twice, nor count up by yourself.
    #[must_use]
    pub const fn from_random(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The fence after this one: a request counts up, so that each of its claims has its own.
    pub(crate) const fn successor(self) -> Self {
        Self(u128::from_be_bytes(self.0).wrapping_add(1).to_be_bytes())
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fence({})", uuid::Uuid::from_bytes(self.0).simple())
    }
}

/// The owner execution id: the `UUIDv7` of the claim that ran last.
///
/// ```
/// # use onceward_core::Execution;
/// let execution = Execution::from_bytes([0; 16]);
/// assert_eq!(execution.to_string(), "00000000-0000-0000-0000-000000000000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution([u8; 16]);

impl Execution {
    /// Makes an execution id of a fresh UUID's bytes.
    #[must_use]
    pub const fn from_bytes(uuid: [u8; 16]) -> Self {
        Self(uuid)
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The execution after this one: a request counts up, so that each of its claims has its own.
    pub(crate) const fn successor(self) -> Self {
        Self(u128::from_be_bytes(self.0).wrapping_add(1).to_be_bytes())
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(formatter)
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Execution({self})")
    }
}
