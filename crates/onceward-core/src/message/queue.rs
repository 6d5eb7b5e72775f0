//! What a backend of the outbox implements.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, time::Duration};

use super::{Aggregate, Lane, Message, MessageId, NewMessage, SinkName};
use crate::{Fence, StoreFuture, Timestamp};

/// The outbox as relays use it.
///
/// Each sink has a place in each lane. The newest *step* of a lane says where it is; a relay that leases
/// the lane moves it on by one [`Settlement`] a page, which expects that step. A take-over appends a step
/// of its own, so that whatever an earlier owner still settles misses, whether its lease is over or not.
/// What an implementation must do is spelled out, as code that runs, in the `conformance` module.
///
/// ```
/// use onceward_core::message::{Position, Queue};
/// use onceward_core::StoreError;
///
/// async fn has_more(queue: &dyn Queue, position: &Position) -> Result<bool, StoreError> {
///     Ok(!queue.take(position, 1).await?.fresh.is_empty())
/// }
/// ```
pub trait Queue: Send + Sync + 'static {
    /// Gives the sink of this name, made if there is none: at the place that is asked for.
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId>;

    /// Renews the leases of a relay, takes over free lanes up to its fair share of those that live, gives
    /// back what is above it, and returns the positions of all lanes that it holds now.
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>>;

    /// Gives back all lanes of a relay that ends.
    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()>;

    /// Which of these lanes have something to take now, in one question.
    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>>;

    /// Reads the parked messages that are due, then the next ones at a position, at most so many together;
    /// nothing is changed for other relays.
    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page>;

    /// Moves a lane on, if the step that the settlement expects is still the newest.
    ///
    /// A relay whose reply was lost proposes the same again: if the step after the expected one has the
    /// settlement's fence, it was made.
    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled>;

    /// Deletes what every sink has passed, whose retention is over and that no entry names which may still be
    /// sent; nothing while there is no sink.
    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep>;
}

/// The outbox as producers use it: inside a transaction of their own.
///
/// ```
/// use onceward_core::{StoreError, message::{Enqueue, MessageId, NewMessage}};
///
/// async fn placed<C>(queue: &impl Enqueue<C>, transaction: &mut C) -> Result<MessageId, StoreError> {
///     let message = NewMessage::new("order.placed", "7").expect("a valid topic");
///     queue.enqueue_in(transaction, &message).await // the caller's commit sends it
/// }
/// ```
pub trait Enqueue<Connection: ?Sized>: Queue {
    /// Puts a message into the outbox; the caller's commit sends it, a rollback leaves nothing of it.
    ///
    /// After an error the caller must roll back. A message that [`NewMessage::check`] does not pass is
    /// [`StoreError::Refused`](crate::StoreError::Refused), an id that is there already
    /// [`StoreError::Repeated`](crate::StoreError::Repeated).
    fn enqueue_in<'a>(
        &'a self,
        connection: &'a mut Connection,
        message: &'a NewMessage,
    ) -> StoreFuture<'a, MessageId>;
}

/// The inbox: recognises a message that comes again, inside the consumer's own transaction.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{StoreError, message::Receive};
///
/// async fn is_new<C>(inbox: &impl Receive<C>, transaction: &mut C, id: &str) -> Result<bool, StoreError> {
///     let week = Duration::from_secs(7 * 86_400);
///     inbox.first_time_in(transaction, "billing", id, week).await // true: apply it, then commit
/// }
/// ```
pub trait Receive<Connection: ?Sized>: Send + Sync + 'static {
    /// Whether a consumer gets this message for the first time; remembered by the caller's commit, for so long.
    ///
    /// A second delivery waits for the transaction of the first one. After an error the caller must roll back.
    fn first_time_in<'a>(
        &'a self,
        connection: &'a mut Connection,
        consumer: &'a str,
        message: &'a str,
        retain: Duration,
    ) -> StoreFuture<'a, bool>;
}

/// Which sink: the number that the queue gave to its name.
///
/// ```
/// use onceward_core::message::SinkId;
///
/// assert_ne!(SinkId(1), SinkId(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkId(pub i16);

/// Which relay: a random id for each start of a process.
///
/// ```
/// use onceward_core::message::RelayId;
///
/// assert_ne!(RelayId::from_random([1; 16]), RelayId::from_random([2; 16]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayId([u8; 16]);

impl RelayId {
    /// Takes fresh random bytes.
    #[must_use]
    pub const fn from_random(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The bytes, for storing.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Where a new sink begins.
///
/// ```
/// use onceward_core::message::StartFrom;
///
/// assert_eq!(StartFrom::default(), StartFrom::Now);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartFrom {
    /// With what commits from now on.
    #[default]
    Now,
    /// With the oldest message that is still there.
    Oldest,
}

/// What a relay asks for when it renews its leases.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::message::{LeaseRequest, RelayId, SinkId};
///
/// let request = LeaseRequest {
///     sink: SinkId(1),
///     relay: RelayId::from_random([7; 16]),
///     lease: Duration::from_secs(10),
/// };
/// # let _ = request;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// For which sink.
    pub sink: SinkId,
    /// Who asks.
    pub relay: RelayId,
    /// How long a lane is held unrenewed.
    pub lease: Duration,
}

/// Where a sink is in a lane, and the step that says so.
///
/// ```
/// use onceward_core::message::Position;
///
/// fn is_older(one: &Position, other: &Position) -> bool {
///     one.lane == other.lane && one.step < other.step
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Whose place it is.
    pub sink: SinkId,
    /// In which lane.
    pub lane: Lane,
    /// Who holds the lane.
    pub relay: RelayId,
    /// The number of the step: the next one has the next number.
    pub step: u64,
    /// The fence of the step.
    pub fence: Fence,
    /// Up to where everything was dealt with.
    pub cursor: Cursor,
}

/// A place in a lane, as its queue writes it. Only that queue reads it.
///
/// ```
/// use onceward_core::message::Cursor;
///
/// assert_eq!(Cursor::new("42").as_str(), "42");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// Takes the queue's own text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The queue's own text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The order of a message among those of its lane that one page can hold.
///
/// ```
/// use onceward_core::message::Place;
///
/// assert!(Place(1) < Place(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub i64);

/// What a relay finds at a position.
///
/// ```
/// use onceward_core::message::Page;
///
/// fn is_idle(page: &Page) -> bool {
///     page.fresh.is_empty() && page.due.is_empty()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The queue's time of the reading.
    pub read_at: Timestamp,
    /// New messages, in their order.
    pub fresh: Vec<Fresh>,
    /// Parked messages that may be tried now, in their order.
    ///
    /// A waiting one is due when its time has come and that of every earlier entry of its aggregate that
    /// [blocks](Parking::blocks_its_aggregate) it; behind a held or dead one none is. A scheduled one is due
    /// when its time has come and no entry of its aggregate blocks that is not due itself.
    pub due: Vec<Due>,
    /// The cursor with which a settlement counts places: what [`Advance::Through`] refers to.
    pub opened: Cursor,
    /// The cursor when all of `fresh` is dealt with. An idle lane ends where it is: it appends no steps.
    pub end: Cursor,
    /// Whether the queue has more than this page.
    pub is_full: bool,
}

/// A message that the lane has not dealt with yet.
///
/// ```
/// use onceward_core::message::Fresh;
///
/// fn may_go_now(fresh: &Fresh) -> bool {
///     !fresh.is_blocked
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// Its place.
    pub place: Place,
    /// What is delivered.
    pub message: Message,
    /// An entry of its aggregate [blocks](Parking::blocks_its_aggregate) it that is not among those due in
    /// this page.
    pub is_blocked: bool,
}

/// A parked message that may be tried now.
///
/// ```
/// use onceward_core::message::Due;
///
/// fn is_first_try(due: &Due) -> bool {
///     due.attempts == 0
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its place.
    pub place: Place,
    /// What is delivered.
    pub message: Message,
    /// How many attempts have failed.
    pub attempts: u32,
}

/// One step of a lane: what was dealt with, in one atomic change.
///
/// ```
/// use onceward_core::message::{Settled, Settlement};
///
/// fn was_made(settled: &Settled) -> bool {
///     matches!(settled, Settled::Moved(_))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The step that must be the newest.
    pub from: Position,
    /// The fence of the step that this appends: fresh, and the same when it is proposed again.
    pub fence: Fence,
    /// How far the lane moves.
    pub advance: Advance,
    /// What becomes of parked messages, and which are parked.
    pub changes: Vec<ParkChange>,
}

/// How far a lane moves.
///
/// ```
/// use onceward_core::message::{Advance, Page};
///
/// fn all_of(page: &Page) -> Advance {
///     Advance::Past(page.end.clone())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Only parked messages change.
    Stay,
    /// Up to this place of the page that was opened so, and no further.
    Through {
        /// [`Page::opened`].
        opened: Cursor,
        /// The last place that was dealt with.
        place: Place,
    },
    /// All of the page: [`Page::end`].
    Past(Cursor),
}

/// What becomes of one message that is not simply delivered.
///
/// ```
/// use onceward_core::message::{ParkChange, Parking};
///
/// fn ends(change: &ParkChange) -> bool {
///     matches!(change.to, Parking::Delivered)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkChange {
    /// Its place.
    pub place: Place,
    /// Its id.
    pub id: MessageId,
    /// Its aggregate.
    pub aggregate: Aggregate,
    /// Whether it was parked before. If its entry waits no longer, nor is scheduled, this change is none: an
    /// operator discarded it, say.
    pub was_parked: bool,
    /// What becomes of it.
    pub to: Parking,
}

/// Where a message is that its lane has passed without delivering it.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::message::Parking;
///
/// let later = Parking::Waiting { attempts: 1, wait: Duration::from_secs(2), why: "503".into() };
/// assert!(later.blocks_its_aggregate());
/// assert!(!Parking::Expired.blocks_its_aggregate());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parking {
    /// It was delivered after all: its entry goes.
    Delivered,
    /// It is tried again after this time; later ones of its aggregate wait behind it.
    Waiting {
        /// How many attempts have failed.
        attempts: u32,
        /// How long to wait, from the change on.
        wait: Duration,
        /// What the last attempt said; empty: it waits behind another one.
        why: String,
    },
    /// It is tried at its `not_before`; until then it has no order.
    Scheduled,
    /// Its endpoint is disabled. It waits for an operator, and so do later ones of its aggregate.
    Held {
        /// How many attempts have failed.
        attempts: u32,
        /// What the endpoint said.
        why: String,
    },
    /// It is not tried again unless an operator says so, and blocks its aggregate until then.
    Dead {
        /// How many attempts have failed.
        attempts: u32,
        /// Why.
        why: String,
        /// Later ones of its aggregate go on: the operator chose `skip`.
        is_skipped: bool,
    },
    /// Its `expires_at` came before its delivery.
    Expired,
}

impl Parking {
    /// Whether later messages of the aggregate wait for it.
    #[must_use]
    pub fn blocks_its_aggregate(&self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Held { .. } => true,
            Self::Dead { is_skipped, .. } => !is_skipped,
            Self::Delivered | Self::Scheduled | Self::Expired => false,
        }
    }
}

/// What became of a settlement.
///
/// ```
/// use onceward_core::message::{Position, Settled};
///
/// /// Where the relay goes on; `None`: the lane is another relay's.
/// fn goes_on(settled: Settled) -> Option<Position> {
///     match settled {
///         Settled::Moved(position) => Some(position),
///         Settled::Fenced(position) => position,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The lane is here now.
    Moved(Position),
    /// Another step came in between, and nothing was changed now. With a position: the relay still holds the
    /// lane, at the same cursor, and may propose the same changes from there under a fresh fence.
    Fenced(Option<Position>),
}

/// What a sweep did.
///
/// ```
/// use onceward_core::message::Sweep;
///
/// assert_eq!(Sweep::default().messages, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// How many messages were deleted.
    pub messages: u32,
    /// How many old steps were deleted.
    pub steps: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
