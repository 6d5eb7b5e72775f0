//! An outbox in memory, on tokio's clock, so that a test lets hours pass in no time.
//!
//! The suite of `onceward-core` that every outbox runs is run on it, too: see `conformance.rs`.

mod conformance;
mod inspect;
mod lanes;
mod parking;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use onceward::{
    Digest, StoreError, Timestamp,
    message::{
        Aggregate, Cursor, Lane, LeaseRequest, Message, MessageId, MessageState, NewMessage, Page,
        Position, Queue, RelayId, Settled, Settlement, SinkId, SinkName, StartFrom, Sweep,
    },
    protocol::Fence,
    store::StoreFuture,
};
use tokio::time::Instant;

use lanes::LaneState;
use parking::Entry;

#[derive(Clone)]
pub struct MemoryQueue {
    tables: Arc<Mutex<Tables>>,
    started: Instant,
}

#[derive(Default)]
struct Tables {
    /// How much older everything was made than it is.
    aged: Duration,
    next: i64,
    messages: BTreeMap<i64, Message>,
    /// Lane and number of each: hours of polling look at nothing else.
    index: BTreeSet<(u8, i64)>,
    sinks: Vec<SinkState>,
    sinks_made: i16,
    alarm: Option<String>,
}

struct Messages<'a> {
    all: &'a BTreeMap<i64, Message>,
    index: &'a BTreeSet<(u8, i64)>,
}

struct SinkState {
    id: SinkId,
    name: SinkName,
    lanes: Vec<LaneState>,
    /// Those that live: until when.
    relays: BTreeMap<RelayId, Timestamp>,
    parked: BTreeMap<i64, Entry>,
    /// What became of those that are not parked any more, if they were not simply delivered.
    ended: BTreeMap<i64, MessageState>,
}

/// A producer's transaction: messages get their numbers at the commit.
pub struct Transaction {
    queue: MemoryQueue,
    messages: Vec<Message>,
}

impl MemoryQueue {
    pub fn new() -> Self {
        let tables = Tables { next: 1, ..Tables::default() };
        Self { tables: Arc::new(Mutex::new(tables)), started: Instant::now() }
    }

    /// Commits one message.
    #[expect(clippy::needless_pass_by_value, reason = "tests read better so")]
    pub fn put(&self, message: NewMessage) -> MessageId {
        let mut transaction = self.begin();
        let id = transaction.enqueue(&message).unwrap();
        transaction.commit();
        id
    }

    pub fn begin(&self) -> Transaction {
        Transaction { queue: self.clone(), messages: Vec::new() }
    }

    /// Says, or says no longer, that relays must not go on.
    pub fn set_alarm(&self, alarm: Option<&str>) {
        self.tables().alarm = alarm.map(str::to_owned);
    }

    fn age(&self, by: Duration) {
        self.tables().aged += by;
    }

    /// Its clock. Making everything older is letting the clock go on.
    fn now(&self, tables: &Tables) -> Timestamp {
        let start = Timestamp::from_unix_micros(1_700_000_000_000_000);
        start.plus(self.started.elapsed()).plus(tables.aged)
    }

    pub fn time(&self) -> Timestamp {
        self.now(&self.tables())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    fn with_sink<T>(
        &self,
        sink: SinkId,
        ask: impl FnOnce(&mut SinkState, &Messages<'_>, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let mut tables = self.tables();
        let now = self.now(&tables);
        let Tables { sinks, messages, index, .. } = &mut *tables;
        let sink = sinks.iter_mut().find(|state| state.id == sink);
        let sink = sink.ok_or_else(|| StoreError::Refused("there is no such sink".into()))?;
        Ok(ask(sink, &Messages { all: messages, index }, now))
    }
}

impl Transaction {
    pub fn enqueue(&mut self, message: &NewMessage) -> Result<MessageId, StoreError> {
        message.check().map_err(|error| StoreError::Refused(error.to_string()))?;
        let tables = self.queue.tables();
        let id = message.id.unwrap_or_else(|| MessageId::from_bytes(rand_bytes()));
        if tables.messages.values().chain(&self.messages).any(|known| known.id == id) {
            return Err(StoreError::Repeated(format!("{id} is there already")));
        }
        let NewMessage { topic, aggregate, body, headers, not_before, expires_at, .. } =
            message.clone();
        let aggregate = aggregate.unwrap_or_else(|| Aggregate::new(&id.to_string()).unwrap());
        let operation: Option<Digest> = message.operation;
        let (at, trace) = (self.queue.now(&tables), message.trace.clone());
        drop(tables);
        self.messages.push(Message {
            id,
            topic,
            aggregate,
            body,
            headers,
            at,
            not_before,
            expires_at,
            operation,
            trace,
        });
        Ok(id)
    }

    pub fn commit(mut self) {
        let mut tables = self.queue.tables();
        for message in std::mem::take(&mut self.messages) {
            let number = tables.next;
            tables.next += 1;
            tables.index.insert((message.lane().number(), number));
            tables.messages.insert(number, message);
        }
    }
}

fn rand_bytes() -> [u8; 16] {
    fastrand::u128(..).to_be_bytes()
}

fn fresh_fence() -> Fence {
    Fence::from_random(rand_bytes())
}

fn cursor(number: i64) -> Cursor {
    Cursor::new(&number.to_string())
}

fn number(cursor: &Cursor) -> i64 {
    cursor.as_str().parse().unwrap()
}

impl Queue for MemoryQueue {
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId> {
        Box::pin(async move {
            let mut tables = self.tables();
            if let Some(known) = tables.sinks.iter().find(|sink| sink.name == *name) {
                return Ok(known.id);
            }
            tables.sinks_made += 1;
            let id = SinkId(tables.sinks_made);
            let start = if from == StartFrom::Oldest { 0 } else { tables.next - 1 };
            let lanes = Lane::all().map(|lane| LaneState::new(lane, start)).collect();
            let (relays, parked, ended) = Default::default();
            tables.sinks.push(SinkState { id, name: name.clone(), lanes, relays, parked, ended });
            Ok(id)
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>> {
        Box::pin(
            async move { self.with_sink(request.sink, |sink, _, now| sink.lease(request, now)) },
        )
    }

    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.with_sink(sink, |sink, _, now| sink.give_back(relay, now)) })
    }

    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>> {
        Box::pin(async move {
            let Some(first) = positions.first() else { return Ok(Vec::new()) };
            self.with_sink(first.sink, |sink, messages, now| {
                let has_some = |position: &&Position| sink.has_some(messages, position, now);
                positions.iter().filter(has_some).map(|position| position.lane).collect()
            })
        })
    }

    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            self.with_sink(position.sink, |sink, messages, now| {
                sink.take(messages, position, limit, now)
            })
        })
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled> {
        Box::pin(async move {
            let sink = settlement.from.sink;
            let settled = self.with_sink(sink, |sink, _, now| sink.settle(settlement, now));
            // A sink that was removed has no lanes any more.
            Ok(settled.unwrap_or(Settled::Fenced(None)))
        })
    }

    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep> {
        Box::pin(async move {
            let mut tables = self.tables();
            let now = self.now(&tables);
            let Tables { messages, index, sinks, .. } = &mut *tables;
            let is_over = |(number, message): &(&i64, &Message)| {
                let is_passed = |sink: &SinkState| {
                    sink.lanes[usize::from(message.lane().number())].cursor >= **number
                        && !sink.parked.contains_key(number)
                };
                message.at.plus(retain) <= now && sinks.iter().all(is_passed)
            };
            let over: Vec<i64> =
                messages.iter().filter(is_over).map(|(number, _)| *number).collect();
            let over = over.into_iter().take(limit as usize);
            let mut remove = |number: &i64| {
                let message = messages.remove(number).unwrap();
                index.remove(&(message.lane().number(), *number));
            };
            let swept = over.inspect(|number| remove(number)).count();
            let hour = Duration::from_secs(3_600);
            let steps = sinks.iter_mut().flat_map(|sink| &mut sink.lanes);
            let steps: usize = steps.map(|lane| lane.sweep(now.minus(hour))).sum();
            Ok(Sweep { messages: swept as u32, steps: steps as u32 })
        })
    }
}
