//! An outbox in memory, of the design that is used on PostgreSQL: an append-only log, numbers of transactions and
//! of messages that are given before the commit, snapshots as cursors, and steps of lanes.
//!
//! It is one value without interior mutability, so that the model checker can walk over its states; `memory` puts it
//! behind a lock and runs the conformance suite over it.

mod lanes;
mod mark;
mod mistake;
mod operators;
mod sinks;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use onceward_core::{
    Fence, StoreError, Timestamp,
    message::{Aggregate, Lane, Message, MessageId, MessageState, NewMessage, RelayId, SinkName},
};

pub(crate) use mark::{Mark, Snapshot};
pub(crate) use mistake::Mistake;

/// The database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    pub(crate) now: Timestamp,
    /// The number of the next transaction that writes.
    pub(crate) next_xid: u64,
    next_seq: i64,
    /// Transactions that are open, and what each has written. After a restore an old message may have the number of
    /// a new transaction.
    pub(crate) open: BTreeMap<u64, Vec<i64>>,
    /// Messages by their number, those of open transactions too.
    pub(crate) rows: BTreeMap<i64, Row>,
    pub(crate) sinks: BTreeMap<i16, Sink>,
    next_sink: i16,
    /// In which cluster the database is, and in which it was set up.
    cluster: u8,
    home: u8,
    mistake: Option<Mistake>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) xid: u64,
    pub(crate) lane: Lane,
    pub(crate) message: Stored,
}

/// A stored message. It never changes, so its id and its time stand for it.
#[derive(Clone, Debug)]
pub(crate) struct Stored(Arc<Message>);

impl Deref for Stored {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.at) == (other.id, other.at)
    }
}

impl Eq for Stored {}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.id, self.at).hash(hasher);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sink {
    pub(crate) name: SinkName,
    pub(crate) lanes: BTreeMap<Lane, LaneState>,
    /// Relays, and until when each counts as alive.
    relays: BTreeMap<RelayId, Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaneState {
    pub(crate) owner: Option<RelayId>,
    pub(crate) until: Timestamp,
    /// The newest one says where the lane is.
    pub(crate) steps: BTreeMap<u64, Step>,
    pub(crate) parked: BTreeMap<i64, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) fence: Fence,
    pub(crate) mark: Mark,
    at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) state: MessageState,
    pub(crate) attempts: u32,
    pub(crate) due: Timestamp,
    why: String,
    is_skipped: bool,
}

impl Entry {
    /// It may still be sent.
    pub(crate) fn is_open(&self) -> bool {
        use MessageState::{Dead, Held, Scheduled, Waiting};
        matches!(self.state, Waiting | Scheduled | Held | Dead)
    }

    fn blocks(&self) -> bool {
        match self.state {
            MessageState::Waiting | MessageState::Held => true,
            MessageState::Dead => !self.is_skipped,
            _ => false,
        }
    }
}

impl Outbox {
    pub(crate) fn new(mistake: Option<Mistake>) -> Self {
        Self {
            now: Timestamp::from_unix_micros(1_000_000_000_000_000),
            next_xid: 1,
            next_seq: 1,
            open: BTreeMap::new(),
            rows: BTreeMap::new(),
            sinks: BTreeMap::new(),
            next_sink: 1,
            cluster: 0,
            home: 0,
            mistake,
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Gives a transaction its number: when it first writes.
    pub(crate) fn begin(&mut self) -> u64 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.open.insert(xid, Vec::new());
        xid
    }

    /// Writes a message of an open transaction, which takes its number here and becomes visible by the commit.
    pub(crate) fn enqueue(
        &mut self,
        xid: u64,
        new: &NewMessage,
        made: MessageId,
    ) -> Result<MessageId, StoreError> {
        if let Err(error) = new.check()
            && !self.makes(Mistake::NoLimits)
        {
            return Err(StoreError::Refused(error.to_string()));
        }
        let id = new.id.unwrap_or(made);
        if self.row(id).is_some() {
            if self.makes(Mistake::RepeatedIdIgnored) {
                return Ok(id);
            }
            return Err(StoreError::Repeated("a message of this id is there".into()));
        }
        let own = || Aggregate::new(&id.to_string()).expect("an id is a valid aggregate");
        let message = Message {
            id,
            topic: new.topic.clone(),
            aggregate: new.aggregate.clone().unwrap_or_else(own),
            body: new.body.clone(),
            headers: match self.makes(Mistake::HeadersSorted) {
                false => new.headers.clone(),
                true => {
                    new.headers.iter().cloned().collect::<BTreeMap<_, _>>().into_iter().collect()
                }
            },
            at: self.now,
            not_before: new.not_before,
            expires_at: new.expires_at,
            operation: new.operation,
            trace: new.trace.clone(),
        };
        let seq = self.next_seq;
        self.next_seq += 1;
        let row = Row { seq, xid, lane: message.lane(), message: Stored(Arc::new(message)) };
        self.rows.insert(seq, row);
        self.open.entry(xid).or_default().push(seq);
        Ok(id)
    }

    pub(crate) fn commit(&mut self, xid: u64) {
        self.open.remove(&xid);
    }

    pub(crate) fn roll_back(&mut self, xid: u64) {
        for seq in self.open.remove(&xid).unwrap_or_default() {
            self.rows.remove(&seq);
        }
    }

    /// Whether the transaction that wrote it is open.
    pub(crate) fn is_open(&self, row: &Row) -> bool {
        self.open.get(&row.xid).is_some_and(|written| written.contains(&row.seq))
    }

    /// What is committed now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (next, mut open) = (self.next_xid, self.open.keys().copied());
        let (xmax, open) = match self.mistake {
            Some(Mistake::DirtyRead) => (next, BTreeSet::new()),
            Some(Mistake::WaitsForOpenTransactions) => {
                (open.next().unwrap_or(next), BTreeSet::new())
            }
            _ => (next, open.collect()),
        };
        Snapshot { xmax, open, floor: self.next_seq - 1 }
    }

    fn row(&self, id: MessageId) -> Option<&Row> {
        self.rows.values().find(|row| row.message.id == id)
    }
}
