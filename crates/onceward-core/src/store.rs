//! What a backend implements: one primitive, and separate traits for what not every store can do.

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::{any::Any, error::Error, fmt, future::Future, pin::Pin, time::Duration};

use crate::{
    Digest, Execution, Fence, Found, Key, OperationName, Record, Scope, Status, Stored, Timestamp,
    Wake,
};

/// A boxed future, so that the traits are dyn-compatible and a store is chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>>;

    /// Reads one record.
    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>>;

    /// Deletes up to `limit` ended records whose retention was over an hour ago; returns how many.
    ///
    /// Never one in progress. The hour ([`SWEEP_MARGIN`]) keeps deletion reversible
    /// when a clock is set wrong.
    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>>;

    /// The store under its own type, for whoever holds it as `dyn Store` and has a connection that
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

/// How long a record must be unchanged before an operator may delete it.
///
/// A claim whose answer was lost may still be on its way. If the record went before it lands, it
/// would be made from nothing, and a zombie would have its fence back. No message lives so long.
pub const PURGE_MARGIN: Duration = Duration::from_secs(60);

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
    /// For stores where somebody else may end it, in SQL, or that set up their purge when a record is
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
    /// Nothing else is stored yet, but somebody's transaction that is still open holds the record, and
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
        }
    }
}

impl Error for StoreError {}

/// An entry of the trail: who changed an operation in an exceptional way, and why.
///
/// Claims, completions and replays leave no entry; take-overs, releases, unknown outcomes and
/// everything that an operator does leave one.
///
/// ```
/// use onceward_core::{Execution, Note, NoteKind};
///
/// let by_hand = Note {
///     actor: Some("ada".into()),
///     reason: Some("the provider confirms that nothing was charged".into()),
///     ..Note::of_protocol(NoteKind::Purge, Execution::from_bytes([0; 16]))
/// };
/// # let _ = by_hand;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// What happened.
    pub kind: NoteKind,
    /// The execution that the record had before.
    pub execution: Execution,
    /// The operator; `None`: the protocol itself.
    pub actor: Option<String>,
    /// Why, in a person's words.
    pub reason: Option<String>,
}

impl Note {
    /// An entry that the protocol itself makes.
    #[must_use]
    pub fn of_protocol(kind: NoteKind, execution: Execution) -> Self {
        Self { kind, execution, actor: None, reason: None }
    }
}

/// The kinds of trail entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteKind {
    /// A claim past its lease was taken over.
    TakeOver,
    /// A claim was given back.
    Release,
    /// The outcome was declared unknown.
    Unknown,
    /// An unknown outcome was resolved.
    Resolve,
    /// The record was deleted by an operator.
    Purge,
    /// An operator said that the store's clock is right: of no operation, see the admin API.
    TrustClock,
}

impl NoteKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TakeOver,
        Self::Release,
        Self::Unknown,
        Self::Resolve,
        Self::Purge,
        Self::TrustClock,
    ];

    /// The word for it in stored trails, lists and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TakeOver => "take_over",
            Self::Release => "release",
            Self::Unknown => "unknown",
            Self::Resolve => "resolve",
            Self::Purge => "purge",
            Self::TrustClock => "trust_clock",
        }
    }
}

/// For operators: finds records by what they mean, and deletes one.
///
/// ```
/// use onceward_core::{Filter, Inspect, Status, StoreError};
///
/// async fn how_many_are_stuck(store: &dyn Inspect) -> Result<usize, StoreError> {
///     let mut filter = Filter { status: Some(Status::Unknown), ..Filter::default() };
///     let mut count = 0;
///     loop {
///         let page = store.list(&filter).await?;
///         count += page.listed.len();
///         match page.next {
///             Some(next) => filter.after = Some(next),
///             None => return Ok(count),
///         }
///     }
/// }
/// ```
pub trait Inspect: Store {
    /// Lists records page by page, in a stable order.
    ///
    /// A page may be short, even empty, while `next` is there: a store looks at a bounded number
    /// of records for each page.
    fn list<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// Deletes one ended or unreadable record if its fence is the expected one.
    ///
    /// Not before it was unchanged for [`PURGE_MARGIN`].
    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Purge, StoreError>>;
}

/// Which records to list.
///
/// ```
/// use onceward_core::{Filter, Status};
///
/// let stuck = Filter { status: Some(Status::Unknown), limit: 50, ..Filter::default() };
/// # let _ = stuck;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only what means this now; computed, so a claim of an external effect past its lease is unknown.
    pub status: Option<Status>,
    /// Only of this scope.
    pub scope: Option<Scope>,
    /// Only of this operation name.
    pub operation: Option<OperationName>,
    /// Only of this key, in whichever scope and operation.
    pub key: Option<Key>,
    /// Only whose first claim is at least so old.
    pub older: Option<Duration>,
    /// Which records come first.
    pub order: Order,
    /// Where the page before ended; the other fields must be the same as for that page.
    pub after: Option<Cursor>,
    /// At most so many, and at most [`Filter::MAX_PAGE`].
    pub limit: u32,
}

impl Filter {
    /// The longest page: 500 records with inline answers still fit in memory.
    pub const MAX_PAGE: u32 = 500;

    /// Whether a record is asked for; `after` and `limit` are the store's business.
    #[must_use]
    pub fn matches(&self, stored: &Stored) -> bool {
        let record = &stored.record;
        self.status.is_none_or(|status| status == stored.status())
            && self.scope.as_ref().is_none_or(|scope| *scope == record.scope)
            && self.operation.as_ref().is_none_or(|operation| *operation == record.operation)
            && self.older.is_none_or(|older| stored.age() >= older)
            && self.key.as_ref().is_none_or(|key| key.digest() == record.key_digest)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            status: None,
            scope: None,
            operation: None,
            key: None,
            older: None,
            order: Order::OldestFirst,
            after: None,
            limit: 100,
        }
    }
}

/// Which records come first in a list: by the time at which they came into the store.
///
/// Where a store finds them by another time, their order may be by that: lists by age by the first
/// claim, lists of what has expired by the time at which it did.
///
/// ```
/// use onceward_core::{Filter, Order};
///
/// let latest = Filter { order: Order::NewestFirst, limit: 20, ..Filter::default() };
/// assert_eq!(Filter::default().order, Order::OldestFirst);
/// # let _ = latest;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// What has waited longest comes first; what is new meanwhile comes on a later page.
    #[default]
    OldestFirst,
    /// The latest comes first; what is new meanwhile is on no later page.
    NewestFirst,
}

/// A place between two pages; its meaning is the store's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records; none is in progress of being changed, but the next page may see newer ones.
    pub listed: Vec<Listed>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The operation's digest.
    pub id: Digest,
    /// What is stored; never [`Found::Nothing`].
    pub found: Found,
}

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// The record is gone; the key is new.
    Purged,
    /// Something else is stored.
    Conflict(Found),
    /// The operation is in progress or unknown: it must be resolved first.
    Open,
    /// The record was changed less than [`PURGE_MARGIN`] ago: try again in a minute.
    Recent,
}

/// Reads the notes that swaps and purges left, oldest first.
///
/// ```
/// use onceward_core::{Digest, StoreError, Trail};
///
/// async fn tell(store: &dyn Trail, id: &Digest) -> Result<(), StoreError> {
///     for entry in store.trail(id).await? {
///         println!("{} by {:?}", entry.note.kind.as_str(), entry.note.actor);
///     }
///     Ok(())
/// }
/// ```
pub trait Trail: Store {
    /// All entries of one operation, also after it was swept or purged.
    fn trail<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Vec<TrailEntry>, StoreError>>;
}

/// A note with the store's time of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailEntry {
    /// When the store wrote it.
    pub at: Timestamp,
    /// What it says.
    pub note: Note,
}

/// Keeps answers that are too large for a record, in chunks beside it.
///
/// Chunks are written before the swap that makes their record, under the fence that this swap
/// proposes. A sweep drops chunks without such a record after an hour.
///
/// ```
/// use onceward_core::{Spool, SpoolId, StoreError};
///
/// async fn keep(store: &dyn Spool, id: SpoolId, answer: &[u8]) -> Result<(), StoreError> {
///     for (index, chunk) in (0..).zip(answer.chunks(64 << 10)) {
///         store.put(&id, index, chunk).await?;
///     }
///     Ok(())
/// }
/// ```
pub trait Spool: Store {
    /// Writes one chunk; the same chunk may be written again.
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Reads one chunk.
    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>>;

    /// Drops all chunks of one answer.
    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Names one spooled answer: the operation and the fence of the record that refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpoolId {
    /// The operation's digest.
    pub operation: Digest,
    /// The fence of the ended record.
    pub fence: Fence,
}

/// A shared store is a store: also `Arc<dyn Store>`, chosen at run time.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        (**self).swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        (**self).get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        (**self).sweep(limit)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        (**self).as_any()
    }

    fn wake(&self) -> Option<&dyn Wake> {
        (**self).wake()
    }
}

impl<S: Inspect + ?Sized> Inspect for Arc<S> {
    fn list<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Result<Page, StoreError>> {
        (**self).list(filter)
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Purge, StoreError>> {
        (**self).purge(id, expected, note)
    }
}

impl<S: Trail + ?Sized> Trail for Arc<S> {
    fn trail<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Vec<TrailEntry>, StoreError>> {
        (**self).trail(id)
    }
}

impl<S: Spool + ?Sized> Spool for Arc<S> {
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).put(id, index, chunk)
    }

    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        (**self).chunk(id, index)
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).discard(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gateway picks the store from a URL at run time.
    #[test]
    fn the_traits_are_dyn_compatible() {
        fn takes(_: &dyn Store, _: &dyn Inspect, _: &dyn Trail, _: &dyn Spool) {}
        let _ = takes;
        fn is_store<S: Store>() {}
        is_store::<Arc<dyn Store>>();
    }
}
