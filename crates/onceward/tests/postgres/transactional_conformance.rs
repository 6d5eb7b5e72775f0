//! A swap inside a transaction of the user's own means exactly what the store's own swap means.
//!
//! The suite runs on stores whose every change is made on a connection of the user's own, with each
//! driver: committed if it was stored, rolled back if not.

use std::{future::Future, marker::PhantomData, time::Duration};

use onceward::{
    BoxFuture, Change, Digest, Fence, Filter, Found, Inspect, Note, Page, Purge, Spool, SpoolId,
    Store, StoreError, Swap, Trail, TrailEntry, Transactional,
    conformance::{block_on, spawn},
    core::conformance::Bench,
    stores::postgres::{Dialect, PostgresStore},
};

use crate::support::Postgres;

/// Makes changes on connections of the user's own.
trait Driver: Clone + Send + Sync + 'static {
    /// How the store speaks.
    const DIALECT: Dialect = Dialect::Postgres;

    fn connect(url: &str) -> Self;

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;

    fn put<'a>(
        &'a self,
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// The transactions of tokio-postgres, also those that deadpool wraps.
#[derive(Clone)]
struct WithTokio {
    pool: deadpool_postgres::Pool,
}

impl Driver for WithTokio {
    fn connect(url: &str) -> Self {
        Self { pool: crate::support::pool(url) }
    }

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let mut client = self.pool.get().await.unwrap();
            let mut transaction = client.transaction().await.unwrap();
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
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut client = self.pool.get().await.unwrap();
            let mut transaction = client.transaction().await.unwrap();
            store.put_in(&mut *transaction, id, index, chunk).await?;
            transaction.commit().await.unwrap();
            Ok(())
        })
    }
}

/// The same with the statements for engines that only speak PostgreSQL's wire protocol.
#[derive(Clone)]
struct OverTheWire(WithTokio);

impl Driver for OverTheWire {
    const DIALECT: Dialect = Dialect::Wire;

    fn connect(url: &str) -> Self {
        Self(WithTokio::connect(url))
    }

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        self.0.swap(store, change)
    }

    fn put<'a>(
        &'a self,
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.put(store, id, index, chunk)
    }
}

#[derive(Clone)]
struct WithSqlx {
    pool: sqlx::PgPool,
}

impl Driver for WithSqlx {
    fn connect(url: &str) -> Self {
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(8);
        Self { pool: options.connect_lazy(url).unwrap() }
    }

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let mut transaction = self.pool.begin().await.unwrap();
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
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.pool.begin().await.unwrap();
            store.put_in(&mut *transaction, id, index, chunk).await?;
            transaction.commit().await.unwrap();
            Ok(())
        })
    }
}

/// Reads as the store itself, and writes by the user's transactions.
#[derive(Clone)]
struct Inside<D> {
    store: PostgresStore,
    driver: D,
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

/// Each store has its own database; all of them go with the bench.
struct Databases<D> {
    postgres: Postgres,
    driver: PhantomData<fn() -> D>,
}

impl<D: Driver> Databases<D> {
    fn new() -> Self {
        let postgres = match D::DIALECT {
            Dialect::Postgres => Postgres::new(),
            Dialect::Wire => Postgres::with(|builder| builder.dialect(Dialect::Wire)),
        };
        Self { postgres, driver: PhantomData }
    }

    fn inside(&self, store: PostgresStore) -> Inside<D> {
        let driver = D::connect(self.postgres.database(&store).url());
        Inside { store, driver }
    }
}

impl<D> Clone for Databases<D> {
    fn clone(&self) -> Self {
        Self { postgres: self.postgres.clone(), ..*self }
    }
}

impl<D: Driver> Bench for Databases<D> {
    type Store = Inside<D>;

    async fn open(&self) -> Inside<D> {
        self.inside(self.postgres.open().await)
    }

    async fn reopen(&self, store: Inside<D>) -> Option<Inside<D>> {
        Some(self.inside(self.postgres.reopen(store.store).await?))
    }

    async fn age(&self, store: &Inside<D>, id: &Digest, by: Duration) {
        self.postgres.age(&store.store, id, by).await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

mod with_tokio_postgres {
    use super::*;

    onceward::core::store_conformance!(Databases::<WithTokio>::new(), block_on);
    onceward::core::inspect_conformance!(Databases::<WithTokio>::new(), block_on);
    onceward::core::spool_conformance!(Databases::<WithTokio>::new(), block_on);
}

mod with_sqlx {
    use super::*;

    onceward::core::store_conformance!(Databases::<WithSqlx>::new(), block_on);
    onceward::core::spool_conformance!(Databases::<WithSqlx>::new(), block_on);
}

mod over_the_wire {
    use super::*;

    onceward::core::store_conformance!(Databases::<OverTheWire>::new(), block_on);
}
