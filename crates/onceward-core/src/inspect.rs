//! How operators find records and delete them.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::{
    Digest, Effect, Fence, Found, Key, Note, OperationName, Scope, State, Status, Store,
    StoreFuture, Stored,
};

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
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page>;

    /// Deletes one ended or unreadable record if its fence is the expected one.
    ///
    /// Not before it was unchanged for [`PURGE_MARGIN`].
    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> StoreFuture<'a, Purge>;
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
///
/// ```
/// use onceward_core::{Cursor, Filter};
///
/// // What a page gave as `next` asks for the page after it, in any process on the store.
/// let next = Cursor("1700000000000000".into());
/// let filter = Filter { after: Some(next), ..Filter::default() };
/// # let _ = filter;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One page of a list.
///
/// ```
/// use onceward_core::{Digest, Page};
///
/// fn ids(page: &Page) -> Vec<Digest> {
///     page.listed.iter().map(|listed| listed.id).collect()
/// }
///
/// let last = Page { listed: Vec::new(), next: None };
/// assert!(ids(&last).is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records; none is in progress of being changed, but the next page may see newer ones.
    pub listed: Vec<Listed>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// One line of a list.
///
/// ```
/// use onceward_core::{Found, Listed};
///
/// fn line(listed: &Listed) -> String {
///     match &listed.found {
///         Found::Record(stored) => format!("{} {}", listed.id, stored.status()),
///         Found::Unreadable { why, .. } => format!("{} unreadable: {}", listed.id, why.as_str()),
///         Found::Nothing => unreachable!("a list has no line for nothing"),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The operation's digest.
    pub id: Digest,
    /// What is stored; never [`Found::Nothing`].
    pub found: Found,
}

/// The result of a purge.
///
/// ```
/// use onceward_core::{Purge, StoreError};
///
/// fn explain(purged: Result<Purge, StoreError>) -> &'static str {
///     match purged {
///         Ok(Purge::Purged) => "the next request with this key runs",
///         Ok(Purge::Conflict(_)) => "another process changed the record: read it again",
///         Ok(Purge::Open) => "resolve it first",
///         Ok(Purge::Recent) => "try again in a minute",
///         Err(_) => "the store does not answer: it may be deleted or not",
///     }
/// }
/// ```
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

/// How long a record must be unchanged before an operator may delete it.
///
/// A claim whose answer was lost may still be on its way. If the record went before it lands, it
/// would be made from nothing, and a zombie would have its fence back. No message lives so long.
pub const PURGE_MARGIN: Duration = Duration::from_secs(60);

impl Stored {
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
}
