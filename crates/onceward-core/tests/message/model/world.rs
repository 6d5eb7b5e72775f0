//! The state of the model: the database, who is where, and what happened outside.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use onceward_core::message::{
    DeadLetters, Lane, LaneWork, MessageId, Next, Page, Position, RelayId, Settlement, SinkId,
    Token, TopicRule,
};

use crate::outbox::{Outbox, Row};

pub(crate) const RELAYS: usize = 2;
/// No script has more messages.
pub(crate) const MESSAGES: usize = 4;
pub(crate) const SINK: SinkId = SinkId(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) outbox: Outbox,
    pub(crate) producers: Vec<Producer>,
    pub(crate) relays: [Relay; RELAYS],
    /// A settlement that was sent, is not answered, and may land at any later moment.
    pub(crate) in_flight: Option<Kept<Settlement>>,
    /// What the consumer's inbox remembers.
    pub(crate) inbox: Messages,
    pub(crate) applied: [u8; MESSAGES],
    /// What transactions wrote that were rolled back.
    pub(crate) aborted: Messages,
    pub(crate) discarded: Messages,
    /// Of each message those of its aggregate that were committed when it was enqueued.
    pub(crate) earlier: [Messages; MESSAGES],
    pub(crate) spent: Spent,
    pub(crate) broken: Broken,
}

/// A set of messages, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Messages(u8);

impl Messages {
    pub(crate) fn has(self, message: usize) -> bool {
        self.0 & (1 << message) != 0
    }

    pub(crate) fn add(&mut self, message: usize) {
        self.0 |= 1 << message;
    }
}

pub(crate) fn number(row: &Row) -> usize {
    numbered(row.message.id)
}

/// The messages have their numbers as ids.
pub(crate) fn numbered(id: MessageId) -> usize {
    usize::from(id.as_bytes()[0])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Producer {
    Before,
    Open {
        xid: u64,
        /// How many messages of its transaction it has written.
        written: usize,
    },
    Committed,
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relay {
    /// How often it was started: each time it has another id.
    pub(crate) start: u8,
    pub(crate) phase: Phase,
}

impl Relay {
    pub(crate) fn id(&self, number: usize) -> RelayId {
        let number = u8::try_from(number).expect("two relays");
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&[number, self.start]);
        RelayId::from_random(bytes)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// It is at a page, and has heard these answers.
    Working {
        taken: Kept<(Position, Page)>,
        heard: Vec<Heard>,
    },
    /// It proposes this step once more.
    Settling(Kept<Settlement>),
}

/// What a relay heard of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Heard {
    Accepted,
    /// It is tried at once, or in a day.
    Failed {
        at_once: bool,
    },
    Refused,
    Gone,
    SinkDown,
}

impl Heard {
    pub(crate) fn next(self) -> Next {
        let why = String::new();
        match self {
            Self::Accepted => Next::Delivered,
            Self::Failed { at_once: true } => Next::Park { wait: Duration::ZERO, why },
            Self::Failed { at_once: false } => Next::Park { wait: super::DAY, why },
            Self::Refused => Next::Die { why },
            Self::Gone => Next::Hold { why },
            Self::SinkDown => Next::Pause { wait: None },
        }
    }
}

/// The shipped [`LaneWork`] after these answers, and the message that it gives then.
pub(crate) fn work(taken: &(Position, Page), heard: &[Heard]) -> (LaneWork, Option<Token>) {
    let mut work = begin(taken);
    let mut token = work.next(Duration::ZERO);
    for heard in heard {
        work.sent(token.expect("it was sent"), heard.next());
        token = work.next(Duration::ZERO);
    }
    (work, token)
}

pub(crate) fn begin((position, page): &(Position, Page)) -> LaneWork {
    let (position, page) = (position.clone(), page.clone());
    LaneWork::new(position, page, DeadLetters::Block, |_| TopicRule::Send)
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) failures: u8,
    pub(crate) aborts: u8,
    pub(crate) lost_replies: u8,
    pub(crate) crashes: u8,
    pub(crate) leases: u8,
    pub(crate) days: u8,
    pub(crate) repairs: u8,
    pub(crate) sweeps: u8,
    pub(crate) restores: u8,
}

/// Invariants about a step and not about a state: raised when the step is made, never lowered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) order: bool,
    pub(crate) dead: bool,
    pub(crate) aborted: bool,
    pub(crate) fence: bool,
    pub(crate) early: bool,
}

/// A shared value with its hash: the checker clones and hashes every state.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T>(Arc<T>, u64);

impl<T: core::fmt::Debug> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{value:?}").hash(&mut hasher);
        Self(Arc::new(value), hasher.finish())
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1 && self.0 == other.0
    }
}

impl<T: Eq> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.1);
    }
}

/// The one lane of the model: all its aggregates share it.
pub(crate) fn lane() -> Lane {
    Lane::of(b"order-0")
}
