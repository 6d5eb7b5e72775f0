//! A shop whose orders and messages are in one file, and a relay that the test drives by hand.

use std::{path::PathBuf, sync::Arc, time::Duration};

use onceward::{
    clock::ManualClock,
    message::{
        DeadLetters, Lane, LaneWork, LeaseRequest, MessageId, NewMessage, Next, Position,
        Queue as _, RelayId, Settled, SinkId, SinkName, StartFrom, TopicRule,
    },
    protocol::Fence,
    store::sqlite::SqliteStore,
};
use rusqlite::Connection;
use tempfile::TempDir;

pub(super) const LEASE: Duration = Duration::from_secs(10);

pub(super) struct Shop {
    pub(super) store: SqliteStore,
    pub(super) clock: Arc<ManualClock>,
    pub(super) path: PathBuf,
    _directory: TempDir,
}

impl Shop {
    pub(super) fn new() -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("shop.db");
        let clock = Arc::new(ManualClock::default());
        let store = SqliteStore::builder(&path).clock(clock.clone()).open().unwrap();
        Self { store, clock, path, _directory: directory }
    }

    pub(super) fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }

    /// Enqueues in a transaction of its own.
    pub(super) fn enqueue(&self, message: &NewMessage) -> MessageId {
        let mut connection = self.connect();
        let transaction = self.store.begin_blocking(&mut connection).unwrap();
        let id = self.store.enqueue_in_blocking(&transaction, message).unwrap();
        transaction.commit().unwrap();
        id
    }

    pub(super) async fn relay(&self, sink: &str) -> Relay {
        let name = SinkName::new(sink).unwrap();
        let sink = self.store.open_sink(&name, StartFrom::Oldest).await.unwrap();
        Relay {
            store: self.store.clone(),
            sink,
            id: RelayId::from_random(fastrand::u128(..).to_ne_bytes()),
        }
    }
}

/// A message about an order, whose body is a number.
pub(super) fn order(aggregate: &str, number: u32) -> NewMessage {
    let message = NewMessage::new("order.placed", number.to_string()).unwrap();
    message.aggregate(aggregate).unwrap()
}

pub(super) fn fence() -> Fence {
    Fence::from_random(fastrand::u128(..).to_ne_bytes())
}

/// One relay, a step at a time.
pub(super) struct Relay {
    pub(super) store: SqliteStore,
    pub(super) sink: SinkId,
    pub(super) id: RelayId,
}

impl Relay {
    pub(super) async fn lease(&self) -> Vec<Position> {
        let request = LeaseRequest { sink: self.sink, relay: self.id, lease: LEASE };
        self.store.lease(&request).await.unwrap()
    }

    pub(super) async fn position(&self, lane: Lane) -> Position {
        let positions = self.lease().await;
        positions.into_iter().find(|position| position.lane == lane).unwrap()
    }

    /// Delivers what there is now, page by page, and gives the bodies in their order.
    pub(super) async fn deliver(&self, mut sink: impl FnMut(&str) -> Next) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let positions = self.lease().await;
            let waiting = self.store.waiting(&positions).await.unwrap();
            if waiting.is_empty() {
                return bodies;
            }
            for position in positions {
                if !waiting.contains(&position.lane) {
                    continue;
                }
                let page = self.store.take(&position, 3).await.unwrap();
                let mut work =
                    LaneWork::new(position, page, DeadLetters::Block, |_| TopicRule::Send);
                while let Some(token) = work.next(Duration::ZERO) {
                    let body = String::from_utf8(work.message(token).body.clone()).unwrap();
                    let next = sink(&body);
                    if next == Next::Delivered {
                        bodies.push(body);
                    }
                    work.sent(token, next);
                }
                let Some(settlement) = work.settlement(fence()) else {
                    panic!("a lane that has something to take changes nothing");
                };
                let settled = self.store.settle(&settlement).await.unwrap();
                assert!(matches!(settled, Settled::Moved(_)), "{settled:?}");
            }
        }
    }
}
