//! A swap inside a transaction of the user's own means exactly what the store's own swap means.
//!
//! The whole suite runs on stores whose every change is made on a connection of the user's own, with
//! rusqlite and with sqlx: committed if it was stored, rolled back if not. The faults that drivers
//! survive are injected above the store, so `conformance` has them for all.

use std::{
    future::Future,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    BoxFuture, Change, Digest, Fence, Filter, Found, Inspect, Note, Page, Purge, Spool, SpoolId,
    Store, StoreError, Swap, Trail, TrailEntry, Transactional,
    conformance::{block_on, spawn},
    core::conformance::Bench,
    stores::sqlite::SqliteStore,
};
use rusqlite::{Connection, TransactionBehavior};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

/// Makes changes on connections of the user's own.
trait Driver: Clone + Send + Sync + 'static {
    fn connect(path: &Path) -> Self;

    fn swap<'a>(
        &'a self,
        store: &'a SqliteStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;

    fn put<'a>(
        &'a self,
        store: &'a SqliteStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

#[derive(Clone)]
struct WithRusqlite {
    connection: Arc<Mutex<Connection>>,
}

impl WithRusqlite {
    /// Runs one transaction where blocking is allowed; it is committed if that is worth it.
    async fn run<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        is_worth_it: impl FnOnce(&T) -> bool + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = self.connection.clone();
        let transaction = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap();
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let done = body(&transaction)?;
            match is_worth_it(&done) {
                true => transaction.commit().unwrap(),
                false => transaction.rollback().unwrap(),
            }
            Ok(done)
        });
        transaction.await.unwrap()
    }
}

impl Driver for WithRusqlite {
    fn connect(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        Self { connection: Arc::new(Mutex::new(connection)) }
    }

    fn swap<'a>(
        &'a self,
        store: &'a SqliteStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        let (store, change) = (store.clone(), change.clone());
        Box::pin(self.run(
            move |transaction| store.swap_in_blocking(transaction, &change),
            |swap| matches!(swap, Swap::Stored { .. }),
        ))
    }

    fn put<'a>(
        &'a self,
        store: &'a SqliteStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (store, id, chunk) = (store.clone(), *id, chunk.to_vec());
        Box::pin(self.run(
            move |transaction| store.put_in_blocking(transaction, &id, index, &chunk),
            |()| true,
        ))
    }
}

#[derive(Clone)]
struct WithSqlx {
    pool: SqlitePool,
}

impl WithSqlx {
    async fn begin(&self) -> sqlx::Transaction<'static, sqlx::Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }
}

impl Driver for WithSqlx {
    fn connect(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path);
        let options = options.busy_timeout(Duration::from_secs(30));
        Self { pool: SqlitePool::connect_lazy_with(options) }
    }

    fn swap<'a>(
        &'a self,
        store: &'a SqliteStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let mut transaction = self.begin().await;
            let swap = store.swap_in(&mut *transaction, change).await?;
            match swap {
                Swap::Stored { .. } => transaction.commit().await.unwrap(),
                Swap::Conflict(_) | Swap::Held => transaction.rollback().await.unwrap(),
            }
            Ok(swap)
        })
    }

    fn put<'a>(
        &'a self,
        store: &'a SqliteStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await;
            store.put_in(&mut *transaction, id, index, chunk).await?;
            transaction.commit().await.unwrap();
            Ok(())
        })
    }
}

/// Reads as the store itself, and writes by the user's transactions.
#[derive(Clone)]
struct Inside<D> {
    store: SqliteStore,
    driver: D,
}

impl<D: Driver> Inside<D> {
    fn open(path: &Path) -> Self {
        Self { store: SqliteStore::open(path).unwrap(), driver: D::connect(path) }
    }
}

impl<D: Driver> Store for Inside<D> {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        self.driver.swap(&self.store, change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.store.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.store.sweep(limit)
    }
}

impl<D: Driver> Inspect for Inside<D> {
    fn list<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.list(filter)
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Purge, StoreError>> {
        self.store.purge(id, expected, note)
    }
}

impl<D: Driver> Trail for Inside<D> {
    fn trail<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Vec<TrailEntry>, StoreError>> {
        self.store.trail(id)
    }
}

impl<D: Driver> Spool for Inside<D> {
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.driver.put(&self.store, id, index, chunk)
    }

    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        self.store.chunk(id, index)
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.discard(id)
    }
}

/// Each store has its own file; all of them go with the bench.
struct Files<D> {
    directory: Arc<TempDir>,
    driver: std::marker::PhantomData<fn() -> D>,
}

impl<D> Files<D> {
    fn new() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self { directory, driver: std::marker::PhantomData }
    }
}

impl<D> Clone for Files<D> {
    fn clone(&self) -> Self {
        Self { directory: self.directory.clone(), ..*self }
    }
}

impl<D: Driver> Bench for Files<D> {
    type Store = Inside<D>;

    async fn open(&self) -> Inside<D> {
        let name = format!("{}.db", fastrand::u64(..));
        Inside::open(&self.directory.path().join(name))
    }

    async fn reopen(&self, store: Inside<D>) -> Option<Inside<D>> {
        let path = store.store.path().to_owned();
        drop(store);
        Some(Inside::open(&path))
    }

    async fn age(&self, store: &Inside<D>, id: &Digest, by: Duration) {
        let connection = Connection::open(store.store.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        let micros = i64::try_from(by.as_micros()).unwrap();
        connection
            .execute(
                "UPDATE onceward_record SET started_at = started_at - ?2,
                     updated_at = updated_at - ?2, expires_at = expires_at - ?2
                 WHERE digest = ?1",
                (id.0, micros),
            )
            .unwrap();
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

mod with_rusqlite {
    use super::*;

    onceward::core::store_conformance!(Files::<WithRusqlite>::new(), block_on);
    onceward::core::inspect_conformance!(Files::<WithRusqlite>::new(), block_on);
    onceward::core::spool_conformance!(Files::<WithRusqlite>::new(), block_on);

    mod driven {
        use super::*;

        onceward::core::store_conformance!(
            onceward::conformance::Driven::over(Files::<WithRusqlite>::new(), None),
            block_on
        );
    }
}

mod with_sqlx {
    use super::*;

    onceward::core::store_conformance!(Files::<WithSqlx>::new(), block_on);
    onceward::core::inspect_conformance!(Files::<WithSqlx>::new(), block_on);
    onceward::core::spool_conformance!(Files::<WithSqlx>::new(), block_on);

    mod driven {
        use super::*;

        onceward::core::store_conformance!(
            onceward::conformance::Driven::over(Files::<WithSqlx>::new(), None),
            block_on
        );
    }
}
