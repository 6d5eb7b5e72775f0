//! What every outbox and every inbox must do, with producers on rusqlite and on sqlx.

use std::{future::Future, marker::PhantomData, path::Path, sync::Arc, time::Duration};

use onceward::{
    StoreError,
    conformance::{block_on, spawn},
    message::{Enqueue as _, MessageId, NewMessage, Receive as _},
    protocol::conformance::{InboxBench, QueueBench},
    store::sqlite::{OwnTransaction, SqliteStore},
};
use rusqlite::Connection;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// Each queue has its own file; all of them go with the bench.
struct Files<D> {
    directory: Arc<TempDir>,
    _driver: PhantomData<D>,
}

impl<D> Clone for Files<D> {
    fn clone(&self) -> Self {
        Self { directory: self.directory.clone(), _driver: PhantomData }
    }
}

impl<D> Files<D> {
    fn new() -> Self {
        Self { directory: Arc::new(testbed::directory()), _driver: PhantomData }
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::builder(path).busy_timeout(PATIENCE).open().unwrap()
}

/// How a producer reaches the file.
trait Driver: Send + Sync + 'static {
    type Transaction: Send;

    fn begin(store: &SqliteStore) -> impl Future<Output = Self::Transaction> + Send;
    fn enqueue(
        store: &SqliteStore,
        transaction: &mut Self::Transaction,
        message: &NewMessage,
    ) -> impl Future<Output = Result<MessageId, StoreError>> + Send;
    fn first_time(
        store: &SqliteStore,
        transaction: &mut Self::Transaction,
        receipt: (&str, &str, Duration),
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
    fn commit(transaction: Self::Transaction) -> impl Future<Output = ()> + Send;
    fn roll_back(transaction: Self::Transaction) -> impl Future<Output = ()> + Send;
}

struct WithRusqlite;

impl Driver for WithRusqlite {
    /// One of rusqlite's own could not go from thread to thread.
    type Transaction = Connection;

    async fn begin(store: &SqliteStore) -> Connection {
        let connection = Connection::open(store.path()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    async fn enqueue(
        store: &SqliteStore,
        connection: &mut Connection,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        store.enqueue_in_blocking(connection, message)
    }

    async fn first_time(
        store: &SqliteStore,
        connection: &mut Connection,
        (consumer, message, retain): (&str, &str, Duration),
    ) -> Result<bool, StoreError> {
        store.first_time_in_blocking(connection, consumer, message, retain)
    }

    async fn commit(connection: Connection) {
        connection.execute_batch("COMMIT").unwrap();
    }

    async fn roll_back(connection: Connection) {
        connection.execute_batch("ROLLBACK").unwrap();
    }
}

struct WithSqlx;

impl Driver for WithSqlx {
    type Transaction = OwnTransaction;

    async fn begin(store: &SqliteStore) -> OwnTransaction {
        let options = SqliteConnectOptions::new().filename(store.path()).busy_timeout(PATIENCE);
        let pool = SqlitePool::connect_lazy_with(options);
        store.begin(&pool).await.unwrap()
    }

    async fn enqueue(
        store: &SqliteStore,
        transaction: &mut OwnTransaction,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        store.enqueue_in(transaction, message).await
    }

    async fn first_time(
        store: &SqliteStore,
        transaction: &mut OwnTransaction,
        (consumer, message, retain): (&str, &str, Duration),
    ) -> Result<bool, StoreError> {
        store.first_time_in(transaction, consumer, message, retain).await
    }

    async fn commit(transaction: OwnTransaction) {
        transaction.commit().await.unwrap();
    }

    async fn roll_back(transaction: OwnTransaction) {
        transaction.rollback().await.unwrap();
    }
}

impl<D: Driver> QueueBench for Files<D> {
    type Queue = SqliteStore;
    type Transaction = D::Transaction;

    async fn open(&self) -> SqliteStore {
        open(&self.directory.path().join(format!("{}.db", fastrand::u64(..))))
    }

    async fn reopen(&self, queue: SqliteStore) -> Option<SqliteStore> {
        let path = queue.path().to_owned();
        drop(queue);
        Some(open(&path))
    }

    async fn another(&self, queue: &SqliteStore) -> SqliteStore {
        open(queue.path())
    }

    async fn age(&self, queue: &SqliteStore, by: Duration) {
        let connection = Connection::open(queue.path()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        let micros = i64::try_from(by.as_micros()).unwrap();
        let tables = [
            "UPDATE onceward_message SET at = at - ?1, not_before = not_before - ?1, expires_at = expires_at - ?1",
            "UPDATE onceward_parked SET at = at - ?1, due = due - ?1, try_at = try_at - ?1",
            "UPDATE onceward_relay SET until = until - ?1",
            "UPDATE onceward_inbox SET received_at = received_at - ?1, expires_at = expires_at - ?1",
        ];
        for sql in tables {
            connection.execute(sql, [micros]).unwrap();
        }
    }

    /// SQLite has one writer at a time.
    fn is_concurrent(&self) -> bool {
        false
    }

    async fn begin(&self, queue: &SqliteStore) -> D::Transaction {
        D::begin(queue).await
    }

    async fn enqueue(
        &self,
        queue: &SqliteStore,
        transaction: &mut D::Transaction,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        D::enqueue(queue, transaction, message).await
    }

    async fn commit(&self, transaction: D::Transaction) {
        D::commit(transaction).await;
    }

    async fn roll_back(&self, transaction: D::Transaction) {
        D::roll_back(transaction).await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

impl<D: Driver> InboxBench for Files<D> {
    async fn first_time(
        &self,
        queue: &SqliteStore,
        transaction: &mut D::Transaction,
        consumer: &str,
        message: &str,
        retain: Duration,
    ) -> Result<bool, StoreError> {
        D::first_time(queue, transaction, (consumer, message, retain)).await
    }
}

mod with_rusqlite {
    use super::*;

    onceward::protocol::queue_conformance!(Files::<WithRusqlite>::new(), block_on);
    onceward::protocol::inbox_conformance!(Files::<WithRusqlite>::new(), block_on);
}

mod with_sqlx {
    use super::*;

    onceward::protocol::queue_conformance!(Files::<WithSqlx>::new(), block_on);
    onceward::protocol::inbox_conformance!(Files::<WithSqlx>::new(), block_on);
}
