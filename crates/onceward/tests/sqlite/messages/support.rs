//! A shop whose orders and messages are in one file, and a relay that a test drives by hand.

use std::{path::PathBuf, sync::Arc, time::Duration};

use onceward::{
    clock::ManualClock,
    message::{
        DeadLetters, LaneWork, LeaseRequest, Message, NewMessage, Next, Queue as _, RelayId,
        Settled, SinkId, SinkName, StartFrom, TopicRule,
    },
    outbox::Outbox,
    protocol::Fence,
    store::sqlite::{SqliteStore, SqliteStoreBuilder},
};
use rusqlite::Connection;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// One file, by a clock that the test moves.
pub(super) struct Shop {
    pub(super) store: SqliteStore,
    pub(super) outbox: Outbox<SqliteStore>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) path: PathBuf,
    _directory: TempDir,
}

impl Shop {
    pub(super) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(super) fn with(choose: impl FnOnce(SqliteStoreBuilder) -> SqliteStoreBuilder) -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("shop.db");
        let clock = Arc::new(ManualClock::default());
        let builder = choose(SqliteStore::builder(&path)).clock(clock.clone());
        let store = builder.open().unwrap();
        connect(&path).execute_batch("CREATE TABLE orders (number INTEGER NOT NULL)").unwrap();
        Self { outbox: Outbox::new(store.clone()), store, clock, path, _directory: directory }
    }

    pub(super) fn connect(&self) -> Connection {
        connect(&self.path)
    }

    pub(super) fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(&self.path).busy_timeout(PATIENCE);
        SqlitePool::connect_lazy_with(options)
    }

    /// Takes an order, and says so in the same commit.
    pub(super) fn order(&self, message: NewMessage) {
        let mut connection = self.connect();
        let transaction = self.store.begin_blocking(&mut connection).unwrap();
        transaction.execute("INSERT INTO orders VALUES (1)", []).unwrap();
        self.outbox.enqueue_blocking(&transaction, message).unwrap();
        transaction.commit().unwrap();
    }

    pub(super) fn orders(&self) -> u32 {
        let count = "SELECT count(*) FROM orders";
        self.connect().query_row(count, [], |row| row.get(0)).unwrap()
    }

    /// Delivers what there is, and gives the bodies in their order.
    pub(super) async fn delivered(&self) -> Vec<String> {
        let relay = Relay::new(&self.store, PATIENCE).await;
        let mut bodies = Vec::new();
        relay.run(|message| bodies.push(body(message))).await;
        relay.end().await;
        bodies
    }
}

pub(super) fn connect(path: &std::path::Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

/// A message about an order, with its number as the body.
pub(super) fn placed(aggregate: &str, number: u32) -> NewMessage {
    let message = NewMessage::new("order.placed", number.to_string()).unwrap();
    message.aggregate(aggregate).unwrap()
}

pub(super) fn body(message: &Message) -> String {
    String::from_utf8(message.body.clone()).unwrap()
}

pub(super) fn random() -> [u8; 16] {
    fastrand::u128(..).to_ne_bytes()
}

/// The one relay of the sink `billing`, which gets everything from the oldest message on.
pub(super) struct Relay {
    store: SqliteStore,
    sink: SinkId,
    id: RelayId,
    lease: Duration,
}

impl Relay {
    pub(super) async fn new(store: &SqliteStore, lease: Duration) -> Self {
        let name = SinkName::new("billing").unwrap();
        let sink = store.open_sink(&name, StartFrom::Oldest).await.unwrap();
        Self { store: store.clone(), sink, id: RelayId::from_random(random()), lease }
    }

    pub(super) fn request(&self) -> LeaseRequest {
        LeaseRequest { sink: self.sink, relay: self.id, lease: self.lease }
    }

    /// Delivers what there is now in all lanes that it gets.
    pub(super) async fn run(&self, mut sink: impl FnMut(&Message)) {
        loop {
            let positions = self.store.lease(&self.request()).await.unwrap();
            let waiting = self.store.waiting(&positions).await.unwrap();
            if waiting.is_empty() {
                return;
            }
            for position in positions {
                if !waiting.contains(&position.lane) {
                    continue;
                }
                let page = self.store.take(&position, 50).await.unwrap();
                let send = |_: &_| TopicRule::Send;
                let mut work = LaneWork::new(position, page, DeadLetters::Block, send);
                while let Some(token) = work.next(Duration::ZERO) {
                    sink(work.message(token));
                    work.sent(token, Next::Delivered);
                }
                // Another relay may have taken the lane over: then that one has delivered it, or will.
                if let Some(settlement) = work.settlement(Fence::from_random(random()))
                    && let Settled::Fenced(_) = self.store.settle(&settlement).await.unwrap()
                {
                    break;
                }
            }
        }
    }

    pub(super) async fn end(self) {
        self.store.give_back(self.sink, self.id).await.unwrap();
    }
}
