//! What a backend implements: one primitive.

use alloc::{boxed::Box, string::String};
use core::{any::Any, error::Error, fmt, future::Future, pin::Pin, time::Duration};

use crate::{Digest, Fence, Found, Note, Record, Timestamp, Wake};

/// A boxed future, so that the traits are dyn-compatible and a store is chosen at run time.
///
/// ```
/// use onceward_core::BoxFuture;
///
/// fn answer() -> BoxFuture<'static, u32> {
///     Box::pin(async { 42 })
/// }
/// ```
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a store answers, or why it does not.
///
/// ```
/// use onceward_core::{Digest, Found, Store, StoreFuture};
///
/// /// A wrapper of a store passes the future on as it is.
/// fn read<'a>(inner: &'a dyn Store, id: &'a Digest) -> StoreFuture<'a, Found> {
///     inner.get(id)
/// }
/// ```
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The one store primitive: replace a record if its fence is the expected one.
///
/// `Err` means that the store is broken or unreachable, and says nothing about whether the change
/// was made. Everything else is a [`Swap`]. What an implementation must do is spelled out, as code
/// that runs, in the `conformance` module (feature `conformance`).
///
/// - A change is atomic, and durable as the store's class promises before `Stored` is returned.
/// - The store owns the clock: it stamps [`Started::Now`](crate::Started::Now) and `updated_at`,
///   counts every ttl from its own now, and gives back what is left.
/// - A record is returned until it is swept, however long its lease or retention is over; native
///   expiry may be used for ended records only.
///
/// ```
/// use core::future::ready;
/// use onceward_core::*;
///
/// /// Answers every question with "nothing here" and takes no change: the least store there is.
/// struct Void;
///
/// impl Store for Void {
///     fn swap<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
///         Box::pin(ready(Err(StoreError::Full("the void keeps nothing".into()))))
///     }
///     fn get<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
///         Box::pin(ready(Ok(Found::Nothing)))
///     }
///     fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
///         Box::pin(ready(Ok(0)))
///     }
/// }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Replaces the record iff the stored fence equals `change.expected` (`None`: nothing stored).
    ///
    /// Otherwise nothing is changed and what is stored is reported.
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap>;

    /// Reads one record.
    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found>;

    /// Deletes up to `limit` ended records whose retention was over an hour ago; returns how many.
    ///
    /// Never one in progress. The hour ([`SWEEP_MARGIN`]) keeps deletion reversible
    /// when a clock is set wrong.
    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32>;

    /// The store under its own type, for a caller that holds it as `dyn Store` and has a connection that
    /// only this type knows; a wrapper passes on what it wraps.
    ///
    /// A store that is not [`Transactional`](crate::Transactional) has no need of it.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// How processes on this store tell each other that an operation has ended, if they can.
    fn wake(&self) -> Option<&dyn Wake> {
        None
    }
}

/// How long an ended record outlives its retention before a sweep deletes it.
pub const SWEEP_MARGIN: Duration = Duration::from_secs(3600);

/// A proposed write.
///
/// ```
/// # use onceward_core::*;
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// let change = admission.change();
/// assert_eq!((change.expected, change.is_claim()), (None, true));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The operation's digest.
    pub id: Digest,
    /// The fence that must be stored; `None`: nothing may be stored.
    pub expected: Option<Fence>,
    /// What is stored then.
    pub next: Record,
    /// An entry for the trail, written in the same commit.
    pub note: Option<Note>,
    /// With a new claim: how long its end will be remembered, if it ends well.
    ///
    /// For stores where a service may end it in SQL, or that set up their purge when a record is
    /// made. What counts is the ttl that the ending brings.
    pub retain: Option<Duration>,
}

impl Change {
    /// Whether this makes a new claim, as opposed to renewing or ending one.
    ///
    /// Stores refuse claims first when space runs out, so that what runs can still be settled.
    #[must_use]
    pub fn is_claim(&self) -> bool {
        self.next.state == crate::State::InProgress && self.expected != Some(self.next.fence)
    }
}

/// The result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The change was made.
    Stored {
        /// The store's time of the change.
        at: Timestamp,
    },
    /// Something else is stored.
    Conflict(Found),
    /// Nothing else is stored yet, but a transaction that is still open holds the record, and
    /// decides what will be. Nothing was changed; the same change may be proposed again.
    Held,
}

/// The store is broken or unreachable. Protocol results are never errors.
///
/// ```
/// use onceward_core::StoreError;
///
/// let error = StoreError::Unavailable("connection reset".into());
/// assert!(!error.is_definite(), "the change may have been made");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer, or a failing one; the change may or may not have been made.
    Unavailable(String),
    /// No room for new claims; nothing was written. Settling and purging still work.
    Full(String),
    /// The record was written by newer software that this one must not touch; nothing was written.
    Newer(String),
    /// The store cannot be used as it is (corrupt, read-only, wrong file); nothing was written.
    Unusable(String),
    /// No transaction is open on the connection that a [`Transactional`](crate::Transactional) store was given; nothing was
    /// written, but what the caller has written on it before may be committed already.
    NotOpen(String),
    /// What was to be written cannot be: a value is over its limit, or is none. Nothing was written.
    Refused(String),
    /// What was to be written once is there already; nothing was written.
    Repeated(String),
}

impl StoreError {
    /// Whether it is certain that nothing was written, now or later.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(detail) => write!(formatter, "the store does not answer: {detail}"),
            Self::Full(detail) => write!(formatter, "the store takes no new claims: {detail}"),
            Self::Newer(detail) => write!(formatter, "written by newer software: {detail}"),
            Self::Unusable(detail) => write!(formatter, "the store cannot be used: {detail}"),
            Self::NotOpen(detail) => write!(formatter, "no transaction is open: {detail}"),
            Self::Refused(detail) => write!(formatter, "the store does not take this: {detail}"),
            Self::Repeated(detail) => write!(formatter, "it is in the store already: {detail}"),
        }
    }
}

impl Error for StoreError {}
