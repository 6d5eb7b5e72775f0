//! What operators see of the outbox and change in it.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{Aggregate, Lane, Message, MessageId, Queue, RelayId, SinkId, SinkName, Topic};
use crate::{StoreFuture, Timestamp};

/// For operators: finds messages, and changes what became of them.
///
/// ```
/// use onceward_core::{StoreError, message::{InspectQueue, MessageFilter, MessageState}};
///
/// async fn dead_letters(queue: &dyn InspectQueue) -> Result<usize, StoreError> {
///     let dead = MessageFilter { state: Some(MessageState::Dead), ..MessageFilter::default() };
///     Ok(queue.list(&dead).await?.messages.len())
/// }
/// ```
pub trait InspectQueue: Queue {
    /// Lists messages page by page, each once for every sink, oldest first.
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage>;

    /// One message as each sink has it; empty: it is not there.
    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>>;

    /// Changes what became of one message, in a step of its lane, with an entry in the trail.
    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed>;

    /// Forgets a sink: its places and what it parked. What it had not got, it never gets.
    fn remove_sink<'a>(&'a self, sink: &'a SinkName) -> StoreFuture<'a, bool>;

    /// How the outbox is: for metrics and health checks.
    fn condition(&self) -> StoreFuture<'_, QueueCondition>;
}

/// What became of a message at one sink.
///
/// ```
/// use onceward_core::message::MessageState;
///
/// assert_eq!(MessageState::Dead.as_str(), "dead");
/// assert_eq!(MessageState::parse("held"), Some(MessageState::Held));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// It will be sent.
    Waiting,
    /// It will be sent at its time.
    Scheduled,
    /// The sink has it.
    Delivered,
    /// It is not tried again by itself.
    Dead,
    /// An operator said that it is not to be sent.
    Discarded,
    /// Its time was over before it was sent.
    Expired,
    /// Its endpoint is disabled.
    Held,
}

impl MessageState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Scheduled,
        Self::Delivered,
        Self::Dead,
        Self::Discarded,
        Self::Expired,
        Self::Held,
    ];

    /// One word for it, as in metrics, JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
            Self::Expired => "expired",
            Self::Held => "held",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Which messages to list.
///
/// ```
/// use onceward_core::message::{MessageFilter, MessageState};
///
/// let dead = MessageFilter { state: Some(MessageState::Dead), limit: 20, ..MessageFilter::default() };
/// # let _ = dead;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Only of this sink.
    pub sink: Option<SinkName>,
    /// Only what is so at a sink.
    pub state: Option<MessageState>,
    /// Only of this topic.
    pub topic: Option<Topic>,
    /// Only of this aggregate.
    pub aggregate: Option<Aggregate>,
    /// Only what was enqueued so long ago.
    pub older: Option<Duration>,
    /// Where the page before ended; the other fields must be the same.
    pub after: Option<String>,
    /// At most so many; 0: a hundred. At most [`MessageFilter::MAX_PAGE`].
    pub limit: u32,
}

impl MessageFilter {
    /// The longest page.
    pub const MAX_PAGE: u32 = 500;
}

/// One page of messages.
///
/// ```
/// use onceward_core::message::MessagePage;
///
/// fn is_last(page: &MessagePage) -> bool {
///     page.next.is_none()
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages, each as one sink has it.
    pub messages: Vec<ShownMessage>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<String>,
}

/// A message as one sink has it.
///
/// ```
/// use onceward_core::message::ShownMessage;
///
/// fn line(shown: &ShownMessage) -> String {
///     format!("{} {} {}", shown.message.id, shown.state.as_str(), shown.why)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownMessage {
    /// The message.
    pub message: Message,
    /// At which sink.
    pub sink: SinkName,
    /// What became of it there.
    pub state: MessageState,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When it is tried next, if it waits.
    pub due: Option<Timestamp>,
    /// What the last attempt said; empty: none did.
    pub why: String,
}

/// What an operator changes.
///
/// ```
/// use onceward_core::message::{MessageId, RepairKind, RepairMessage, SinkName};
///
/// let repair = RepairMessage {
///     id: MessageId::from_bytes([7; 16]),
///     sink: SinkName::new("billing")?,
///     kind: RepairKind::Redrive,
///     actor: Some("ada".into()),
///     reason: "the address is right now".into(),
/// };
/// # let _ = repair;
/// # Ok::<(), onceward_core::message::MessageError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairMessage {
    /// Which message.
    pub id: MessageId,
    /// At which sink.
    pub sink: SinkName,
    /// What to do.
    pub kind: RepairKind,
    /// The operator, if known.
    pub actor: Option<String>,
    /// Why, in a person's words.
    pub reason: String,
}

/// What to do with a message that is stuck.
///
/// ```
/// use onceward_core::message::RepairKind;
///
/// assert_eq!(RepairKind::Redrive.as_str(), "redrive");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepairKind {
    /// Try it again at once, from its first attempt: for dead, held and waiting ones.
    Redrive,
    /// Never send it: for dead, held, waiting and scheduled ones.
    Discard,
}

/// What an operator changed of a message, and why.
///
/// ```
/// use onceward_core::message::MessageNote;
///
/// fn line(note: &MessageNote) -> String {
///     format!("{} at {}: {}", note.kind.as_str(), note.sink, note.reason)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageNote {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// At which sink.
    pub sink: SinkName,
    /// What was done.
    pub kind: RepairKind,
    /// The operator, if known.
    pub actor: Option<String>,
    /// Why, in a person's words.
    pub reason: String,
}

impl RepairKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Redrive, Self::Discard];

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// One word for it, as in the trail and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Discard => "discard",
        }
    }
}

/// What became of a repair.
///
/// ```
/// use onceward_core::message::{Changed, MessageState};
///
/// assert_ne!(Changed::Done, Changed::Refused(MessageState::Delivered));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was made.
    Done,
    /// That cannot be done with what the message is at this sink.
    Refused(MessageState),
    /// There is no such message, or no such sink.
    Absent,
    /// Other steps came in between again and again; nothing was changed.
    Busy,
}

/// How the outbox is.
///
/// ```
/// use onceward_core::message::QueueCondition;
///
/// fn is_well(condition: &QueueCondition) -> bool {
///     condition.alarm.is_none()
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCondition {
    /// How many messages are stored, about.
    pub messages: u64,
    /// The age of the oldest that is stored.
    pub oldest: Option<Duration>,
    /// Each sink.
    pub sinks: Vec<SinkCondition>,
    /// Why relays must not go on: the database is a restored copy, say.
    pub alarm: Option<String>,
}

/// How one sink is.
///
/// ```
/// use onceward_core::message::SinkCondition;
///
/// fn needs_an_operator(sink: &SinkCondition) -> bool {
///     sink.dead + sink.held > 0
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkCondition {
    /// Its name.
    pub name: SinkName,
    /// Its number.
    pub id: SinkId,
    /// How many messages it has not got yet, those that are parked included; counted up to a bound.
    pub lag: u64,
    /// The age of the oldest of them.
    pub oldest_waiting: Option<Duration>,
    /// How many of them failed before, or wait behind such a one.
    pub waiting: u64,
    /// How many have their time to come.
    pub scheduled: u64,
    /// How many are held.
    pub held: u64,
    /// How many are dead.
    pub dead: u64,
    /// Lanes that a relay holds.
    pub lanes: Vec<LaneCondition>,
}

/// Who holds a lane.
///
/// ```
/// use onceward_core::message::LaneCondition;
///
/// fn is_free(lane: &LaneCondition) -> bool {
///     lane.relay.is_none()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCondition {
    /// Which lane.
    pub lane: Lane,
    /// The relay whose lease has not ended.
    pub relay: Option<RelayId>,
}
