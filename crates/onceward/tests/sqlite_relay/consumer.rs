//! The loop of a consumer: once, in a transaction of its own, and acknowledged after the commit.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use onceward::{
    StoreError,
    inbox::{Applied, ConsumeError, Consumer, Delivery, Inbox, Incoming, Outage, Poison, Source},
    retry::Backoff,
    store::sqlite::SqliteStore,
};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::file::PATIENCE;

/// A broker that delivers again what was not acknowledged, and now and then what was.
#[derive(Clone, Default)]
struct Broker(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    queue: VecDeque<String>,
    acknowledged: Vec<String>,
    loses_acknowledgements: bool,
    misses: u32,
}

impl Broker {
    fn of(ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let queue = ids.into_iter().map(Into::into).collect();
        Self(Arc::new(Mutex::new(State { queue, ..State::default() })))
    }

    fn acknowledged(&self) -> Vec<String> {
        self.0.lock().unwrap().acknowledged.clone()
    }
}

impl Source for Broker {
    type Message = String;

    /// Gives the first message, which stays until it is acknowledged.
    async fn next(&mut self) -> Result<Option<Delivery<String>>, ConsumeError> {
        let mut state = self.0.lock().unwrap();
        if state.misses > 0 {
            state.misses -= 1;
            return Err("the broker is away".into());
        }
        let Some(id) = state.queue.front().cloned() else { return Ok(None) };
        drop(state);
        let (broker, name) = (self.clone(), id.clone());
        let acknowledge = async move || {
            let mut state = broker.0.lock().unwrap();
            if std::mem::take(&mut state.loses_acknowledgements) {
                return Err("the connection broke".into());
            }
            state.queue.retain(|waiting| *waiting != name);
            state.acknowledged.push(name);
            Ok(())
        };
        Ok(Some(Delivery::new(id.clone(), format!("message {id}"), acknowledge)))
    }
}

/// Invoices and the inbox in one file.
struct Shop {
    pool: SqlitePool,
    store: SqliteStore,
    _directory: TempDir,
}

impl Shop {
    async fn new() -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("billing.db");
        let store = SqliteStore::builder(&path).busy_timeout(PATIENCE).open().unwrap();
        let options = SqliteConnectOptions::new().filename(&path).busy_timeout(PATIENCE);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::query("CREATE TABLE invoice (event TEXT)").execute(&pool).await.unwrap();
        Self { pool, store, _directory: directory }
    }

    fn consumer(&self) -> Consumer<SqliteStore> {
        let quick = Backoff::Fixed(Duration::from_millis(1));
        Consumer::new(Inbox::new(self.store.clone()), "billing").backoff(quick)
    }

    async fn apply(
        &self,
        mut incoming: Incoming<String, SqliteStore>,
    ) -> Result<Applied, ConsumeError> {
        let mut transaction = self.store.begin(&self.pool).await?;
        if incoming.first_time(&mut transaction).await? {
            let insert = sqlx::query("INSERT INTO invoice (event) VALUES (?1)");
            insert.bind(incoming.id()).execute(&mut *transaction).await?;
        }
        incoming.commit(transaction).await
    }

    async fn invoices(&self) -> Vec<String> {
        let query = sqlx::query_scalar("SELECT event FROM invoice ORDER BY rowid");
        query.fetch_all(&self.pool).await.unwrap()
    }
}

async fn never(poison: Poison<String>) -> Result<(), ConsumeError> {
    panic!("{poison:?}")
}

#[tokio::test]
async fn deliveries_are_applied_once_and_acknowledged_after_their_commit() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a", "b", "c"]));
    let consumer = shop.consumer();
    let apply = async |incoming: Incoming<String, SqliteStore>| {
        assert_eq!(incoming.message(), &format!("message {}", incoming.id()));
        assert!(!broker.acknowledged().contains(&incoming.id().to_owned()), "not before");
        let id = incoming.id().to_owned();
        let applied = shop.apply(incoming).await?;
        assert!(shop.invoices().await.contains(&id), "it is committed");
        Ok(applied)
    };
    consumer.run(broker.clone(), apply, never).await;
    assert_eq!(broker.acknowledged(), ["a", "b", "c"]);
    assert_eq!(shop.invoices().await, ["a", "b", "c"]);

    // Delivered again, also to a process that knows nothing of the first one.
    let again = Broker::of(["c", "a", "d", "b"]);
    let apply = async |incoming: Incoming<String, SqliteStore>| shop.apply(incoming).await;
    shop.consumer().run(again.clone(), apply, never).await;
    assert_eq!(again.acknowledged(), ["c", "a", "d", "b"]);
    assert_eq!(shop.invoices().await, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_lost_acknowledgement_and_a_lost_commit_repeat_nothing() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a", "b"]));
    broker.0.lock().unwrap().loses_acknowledgements = true;
    let attempts = Mutex::new(Vec::new());
    let apply = async |incoming: Incoming<String, SqliteStore>| {
        attempts.lock().unwrap().push((incoming.id().to_owned(), incoming.attempt()));
        let applied = shop.apply(incoming).await?;
        if attempts.lock().unwrap().len() == 1 {
            return Err(StoreError::Unavailable("the answer of the commit is lost".into()).into());
        }
        Ok(applied)
    };
    shop.consumer().run(broker.clone(), apply, never).await;
    assert_eq!(broker.acknowledged(), ["a", "b"]);
    assert_eq!(shop.invoices().await, ["a", "b"]);
    let of = |id: &str, attempt| (id.to_owned(), attempt);
    // Once for the commit, whose loss is an outage, and once for the acknowledgement.
    assert_eq!(*attempts.lock().unwrap(), [of("a", 1), of("a", 1), of("a", 1), of("b", 1)]);
}

#[tokio::test]
async fn a_poison_message_goes_to_the_dead_letters_and_the_next_one_on() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a", "poison", "b"]));
    let attempts: Mutex<BTreeMap<String, u32>> = Mutex::default();
    let apply = async |mut incoming: Incoming<String, SqliteStore>| {
        *attempts.lock().unwrap().entry(incoming.id().to_owned()).or_default() += 1;
        if incoming.id() == "poison" {
            // What it did before it failed is rolled back, the mark in the inbox included.
            let mut transaction = shop.store.begin(&shop.pool).await?;
            assert!(incoming.first_time(&mut transaction).await?);
            let insert = sqlx::query("INSERT INTO invoice (event) VALUES ('half done')");
            insert.execute(&mut *transaction).await?;
            return Err("it has no customer".into());
        }
        shop.apply(incoming).await
    };
    let (letters, misses) = (Mutex::new(Vec::new()), AtomicU32::new(0));
    let dead = async |poison: Poison<String>| {
        if misses.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err("the table of dead letters is locked".into());
        }
        assert!(!broker.acknowledged().contains(&"poison".to_owned()), "not before it is kept");
        let letter = format!("{} {} {}", poison.message, poison.attempts, poison.why);
        letters.lock().unwrap().push(letter);
        Ok(())
    };
    shop.consumer().attempts(4).run(broker.clone(), apply, dead).await;
    assert_eq!(attempts.lock().unwrap()["poison"], 4);
    assert_eq!(*letters.lock().unwrap(), ["message poison 4 it has no customer"]);
    assert_eq!(broker.acknowledged(), ["a", "poison", "b"]);
    assert_eq!(shop.invoices().await, ["a", "b"]);

    // It was never applied: when it is delivered again, it is new.
    let again = Broker::of(["poison"]);
    let apply = async |incoming: Incoming<String, SqliteStore>| shop.apply(incoming).await;
    shop.consumer().run(again.clone(), apply, never).await;
    assert_eq!(shop.invoices().await, ["a", "b", "poison"]);
}

#[tokio::test]
async fn an_outage_costs_no_delivery_its_attempts() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a", "b"]));
    let calls = AtomicU32::new(0);
    let apply = async |incoming: Incoming<String, SqliteStore>| {
        assert_eq!(incoming.attempt(), 1);
        match calls.fetch_add(1, Ordering::SeqCst) {
            0..20 => Err(Outage::new("the service for exchange rates is away").into()),
            20..30 => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
            30..40 => Err(sqlx::Error::PoolTimedOut.into()),
            _ => shop.apply(incoming).await,
        }
    };
    broker.0.lock().unwrap().misses = 5;
    shop.consumer().attempts(1).run(broker.clone(), apply, never).await;
    assert_eq!((broker.acknowledged().len(), calls.into_inner()), (2, 42));
}

#[tokio::test]
async fn what_was_not_asked_or_not_committed_is_not_acknowledged() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a"]));
    let apply = async |incoming: Incoming<String, SqliteStore>| {
        let mut transaction = shop.store.begin(&shop.pool).await?;
        let insert = sqlx::query("INSERT INTO invoice (event) VALUES ('unasked')");
        insert.execute(&mut *transaction).await?;
        incoming.commit(transaction).await
    };
    let errors = Mutex::new(Vec::new());
    let dead = async |poison: Poison<String>| {
        errors.lock().unwrap().push(poison.why);
        Ok(())
    };
    shop.consumer().attempts(1).run(broker.clone(), apply, dead).await;
    assert!(errors.lock().unwrap()[0].contains("ask `first_time`"), "{errors:?}");

    let broker = Broker::of(["b"]);
    let apply = async |mut incoming: Incoming<String, SqliteStore>| {
        let mut outer = shop.pool.begin().await?;
        let mut savepoint = sqlx::Connection::begin(&mut *outer).await?;
        incoming.first_time(&mut savepoint).await?;
        incoming.commit(savepoint).await
    };
    shop.consumer().attempts(1).run(broker.clone(), apply, dead).await;
    assert!(errors.lock().unwrap()[1].contains("savepoint"), "{errors:?}");
    assert!(shop.invoices().await.is_empty());
}

#[tokio::test]
async fn a_delivery_that_failed_elsewhere_has_fewer_attempts_left() {
    let shop = Shop::new().await;
    let (send, deliveries) = tokio::sync::mpsc::channel(1);
    send.send(Delivery::new("a", String::new(), async || Ok(())).failed(3)).await.unwrap();
    drop(send);
    let attempts = Mutex::new(Vec::new());
    let apply = async |incoming: Incoming<String, SqliteStore>| {
        attempts.lock().unwrap().push(incoming.attempt());
        Err("no".into())
    };
    let dead = async |_: Poison<String>| Ok(());
    shop.consumer().attempts(5).run(deliveries, apply, dead).await;
    assert_eq!(*attempts.lock().unwrap(), [4, 5]);
}

#[tokio::test]
async fn a_consumer_may_use_rusqlite() {
    let (shop, broker) = (Shop::new().await, Broker::of(["a", "b"]));
    broker.0.lock().unwrap().loses_acknowledgements = true;
    let path = shop.store.path().to_owned();
    let apply = async |mut incoming: Incoming<String, SqliteStore>| {
        let mut connection = rusqlite::Connection::open(&path)?;
        let transaction = shop.store.begin_blocking(&mut connection)?;
        if incoming.first_time_blocking(&transaction)? {
            transaction.execute("INSERT INTO invoice (event) VALUES (?1)", [incoming.id()])?;
        }
        incoming.commit_blocking(transaction)
    };
    shop.consumer().run(broker.clone(), apply, never).await;
    assert_eq!(shop.invoices().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_is_a_task_of_its_own_and_two_of_them_apply_once() {
    let shop = Arc::new(Shop::new().await);
    let ids: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let brokers = [Broker::of(ids.clone()), Broker::of(ids.clone())];
    let mut tasks = Vec::new();
    for broker in brokers.clone() {
        let shop = shop.clone();
        tasks.push(tokio::spawn(async move {
            let consumer = shop.consumer();
            let apply = move |incoming| {
                let shop = shop.clone();
                async move { shop.apply(incoming).await }
            };
            consumer.run(broker, apply, never).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(brokers.iter().all(|broker| broker.acknowledged() == ids), "both acknowledge all");
    let mut invoices = shop.invoices().await;
    invoices.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(invoices, ids, "and each was applied once");
}
