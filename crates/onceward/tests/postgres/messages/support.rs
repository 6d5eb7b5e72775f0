//! A shop whose orders and messages are in one database, and a relay that the test drives by hand.

use std::{collections::BTreeMap, time::Duration};

use onceward::{
    StoreError,
    message::{
        DeadLetters, Enqueue as _, InspectQueue, Lane, LaneWork, LeaseRequest, Message,
        MessageFilter, MessageId, MessageState, NewMessage, Next, Position, Queue as _,
        QueueCondition, RelayId, Settled, ShownMessage, SinkId, SinkName, StartFrom, TopicRule,
    },
    protocol::Fence,
    store::postgres::PostgresStore,
};
use testbed::Database;

use crate::support::connect;

pub(crate) struct Shop {
    pub(crate) database: Database,
    pub(crate) store: PostgresStore,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::on(testbed::postgres().database()).await
    }

    pub(crate) async fn on(database: Database) -> Self {
        let store = PostgresStore::connect(database.url()).await.unwrap();
        Self { database, store }
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        connect(self.database.url()).await
    }

    /// Enqueues in transactions of their own.
    pub(crate) async fn enqueue(&self, messages: &[NewMessage]) -> Vec<MessageId> {
        let mut client = self.client().await;
        let mut ids = Vec::new();
        for message in messages {
            ids.push(self.store.enqueue_in(&mut client, message).await.unwrap());
        }
        ids
    }
}

#[expect(clippy::needless_pass_by_value, reason = "bodies are numbers and texts")]
pub(crate) fn order(aggregate: &str, body: impl ToString) -> NewMessage {
    let message = NewMessage::new("order.placed", body.to_string()).unwrap();
    message.aggregate(aggregate).unwrap()
}

pub(crate) fn fence() -> Fence {
    Fence::from_random(fastrand::u128(..).to_ne_bytes())
}

pub(crate) fn sink_name(name: &str) -> SinkName {
    SinkName::new(name).unwrap()
}

/// What a sink got, in its order.
pub(crate) type Got = Vec<(String, String)>;

/// One relay, a page at a time.
pub(crate) struct Relay {
    pub(crate) store: PostgresStore,
    pub(crate) sink: SinkId,
    pub(crate) id: RelayId,
    pub(crate) held: BTreeMap<Lane, Position>,
}

impl Relay {
    pub(crate) async fn open(store: &PostgresStore, sink: &str) -> Self {
        let sink = store.open_sink(&sink_name(sink), StartFrom::Oldest).await.unwrap();
        let id = RelayId::from_random(fastrand::u128(..).to_ne_bytes());
        let mut relay = Self { store: store.clone(), sink, id, held: BTreeMap::new() };
        relay.lease().await.unwrap();
        relay
    }

    pub(crate) async fn lease(&mut self) -> Result<(), StoreError> {
        let lease = Duration::from_secs(60);
        let request = LeaseRequest { sink: self.sink, relay: self.id, lease };
        let held = self.store.lease(&request).await?;
        self.held = held.into_iter().map(|position| (position.lane, position)).collect();
        Ok(())
    }

    /// Delivers a page of each lane that has something.
    pub(crate) async fn round(
        &mut self,
        limit: u32,
        mut answer: impl FnMut(&Message) -> Next,
    ) -> Got {
        let positions: Vec<_> = self.held.values().cloned().collect();
        let mut got = Got::new();
        for lane in self.store.waiting(&positions).await.unwrap() {
            let position = self.held[&lane].clone();
            let page = self.store.take(&position, limit).await.unwrap();
            let mut work = LaneWork::new(position, page, DeadLetters::Block, |_| TopicRule::Send);
            while let Some(token) = work.next(Duration::ZERO) {
                let message = work.message(token);
                let next = answer(message);
                if next == Next::Delivered {
                    let body = String::from_utf8(message.body.clone()).unwrap();
                    got.push((message.aggregate.to_string(), body));
                }
                work.sent(token, next);
            }
            let settlement = work.settlement(fence()).expect("it has something to take");
            match self.store.settle(&settlement).await.unwrap() {
                Settled::Moved(position) => self.held.insert(lane, position),
                Settled::Fenced(_) => panic!("the only owner of lane {lane:?} settles"),
            };
        }
        got
    }

    /// Delivers everything that there is.
    pub(crate) async fn drain(&mut self) -> Got {
        let mut all = Got::new();
        loop {
            let got = self.round(100, |_| Next::Delivered).await;
            if got.is_empty() {
                return all;
            }
            all.extend(got);
        }
    }
}

/// The bodies that were delivered, in the order of each aggregate.
pub(crate) fn by_aggregate(got: &Got) -> BTreeMap<&str, Vec<&str>> {
    let mut by_aggregate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (aggregate, body) in got {
        by_aggregate.entry(aggregate).or_default().push(body);
    }
    by_aggregate
}

pub(crate) fn bodies(got: &Got) -> Vec<&str> {
    got.iter().map(|(_, body)| body.as_str()).collect()
}

impl Shop {
    pub(crate) async fn condition(&self) -> QueueCondition {
        InspectQueue::condition(&self.store).await.unwrap()
    }

    pub(crate) async fn dead_letters(&self) -> Vec<ShownMessage> {
        let state = Some(MessageState::Dead);
        let dead = MessageFilter { state, ..MessageFilter::default() };
        InspectQueue::list(&self.store, &dead).await.unwrap().messages
    }
}
