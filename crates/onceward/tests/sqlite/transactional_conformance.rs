//! A swap inside a transaction of the user's own means exactly what the store's own swap means.
//!
//! The whole suite runs on stores whose every change is made on a connection of the user's own, with
//! rusqlite and with sqlx: committed if it was stored, rolled back if not. The faults that drivers
//! survive are injected above the store, so `conformance` has them for all.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    StoreError,
    conformance::block_on,
    store::{BoxFuture, Change, SpoolId, Swap, Transactional, sqlite::SqliteStore},
};
use rusqlite::{Connection, TransactionBehavior};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

use crate::{
    sqlite_files::Files,
    transactional_support::{Driver, InTransactions, put_inside, swap_inside},
};

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

impl Driver<Files> for WithRusqlite {
    fn connect(_: &Files, store: &SqliteStore) -> Self {
        let connection = Connection::open(store.path()).unwrap();
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

impl Driver<Files> for WithSqlx {
    fn connect(_: &Files, store: &SqliteStore) -> Self {
        let options = SqliteConnectOptions::new().filename(store.path());
        let options = options.busy_timeout(Duration::from_secs(30));
        Self { pool: SqlitePool::connect_lazy_with(options) }
    }

    fn swap<'a>(
        &'a self,
        store: &'a SqliteStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            swap_inside!(store, transaction, change)
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
            let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            put_inside!(store, transaction, id, index, chunk)
        })
    }
}

fn bench<D: Driver<Files>>() -> InTransactions<Files, D> {
    InTransactions::over(Files::with(|builder| builder))
}

mod with_rusqlite {
    use super::*;

    onceward::protocol::store_conformance!(bench::<WithRusqlite>(), block_on);
    onceward::protocol::inspect_conformance!(bench::<WithRusqlite>(), block_on);
    onceward::protocol::spool_conformance!(bench::<WithRusqlite>(), block_on);

    mod driven {
        use super::*;

        onceward::protocol::store_conformance!(
            onceward::conformance::Driven::over(bench::<WithRusqlite>(), None),
            block_on
        );
    }
}

mod with_sqlx {
    use super::*;

    onceward::protocol::store_conformance!(bench::<WithSqlx>(), block_on);
    onceward::protocol::inspect_conformance!(bench::<WithSqlx>(), block_on);
    onceward::protocol::spool_conformance!(bench::<WithSqlx>(), block_on);

    mod driven {
        use super::*;

        onceward::protocol::store_conformance!(
            onceward::conformance::Driven::over(bench::<WithSqlx>(), None),
            block_on
        );
    }
}
