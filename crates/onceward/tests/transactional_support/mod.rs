//! Stores whose every change is made in a transaction of the user's own, for the suite of all stores.

use std::{future::Future, marker::PhantomData, time::Duration};

use onceward::{
    Digest, Store, StoreError,
    protocol::{Fence, Found, conformance::Bench},
    store::{
        BoxFuture, Change, Filter, Inspect, Note, Page, Purge, Spool, SpoolId, Swap, Trail,
        TrailEntry,
    },
};

/// Makes changes on connections of the user's own.
pub(crate) trait Driver<B: Bench>: Clone + Send + Sync + 'static {
    /// Connects to the database of a store.
    fn connect(bench: &B, store: &B::Store) -> Self;

    /// A change in a transaction that is committed if it was stored, and rolled back if not.
    fn swap<'a>(
        &'a self,
        store: &'a B::Store,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;

    /// A chunk in a transaction that is committed.
    fn put<'a>(
        &'a self,
        store: &'a B::Store,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// What [`Driver::swap`] does with a transaction that has begun, of whichever driver.
macro_rules! swap_inside {
    ($store:expr, $transaction:expr, $change:expr) => {{
        let mut transaction = $transaction;
        let swap = $store.swap_in(&mut *transaction, $change).await?;
        match swap {
            Swap::Stored { .. } => transaction.commit().await.unwrap(),
            Swap::Conflict(_) | Swap::Held => transaction.rollback().await.unwrap(),
        }
        Ok(swap)
    }};
}

/// What [`Driver::put`] does with a transaction that has begun, of whichever driver.
macro_rules! put_inside {
    ($store:expr, $transaction:expr, $id:expr, $index:expr, $chunk:expr) => {{
        let mut transaction = $transaction;
        $store.put_in(&mut *transaction, $id, $index, $chunk).await?;
        transaction.commit().await.unwrap();
        Ok(())
    }};
}

pub(crate) use {put_inside, swap_inside};

/// The bench of a store, with the user's transactions.
pub(crate) struct InTransactions<B, D> {
    bench: B,
    driver: PhantomData<fn() -> D>,
}

impl<B: Bench, D: Driver<B>> InTransactions<B, D> {
    pub(crate) fn over(bench: B) -> Self {
        Self { bench, driver: PhantomData }
    }

    fn inside(&self, store: B::Store) -> Inside<B, D> {
        let driver = D::connect(&self.bench, &store);
        Inside { store, driver }
    }
}

impl<B: Bench, D> Clone for InTransactions<B, D> {
    fn clone(&self) -> Self {
        Self { bench: self.bench.clone(), driver: PhantomData }
    }
}

impl<B: Bench, D: Driver<B>> Bench for InTransactions<B, D> {
    type Store = Inside<B, D>;

    async fn open(&self) -> Inside<B, D> {
        self.inside(self.bench.open().await)
    }

    async fn reopen(&self, store: Inside<B, D>) -> Option<Inside<B, D>> {
        let Inside { store, driver } = store;
        drop(driver);
        Some(self.inside(self.bench.reopen(store).await?))
    }

    async fn age(&self, store: &Inside<B, D>, id: &Digest, by: Duration) {
        self.bench.age(&store.store, id, by).await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        self.bench.spawn(task)
    }
}

/// Reads as the store itself, and writes by the user's transactions.
pub(crate) struct Inside<B: Bench, D> {
    store: B::Store,
    driver: D,
}

impl<B: Bench, D: Clone> Clone for Inside<B, D> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), driver: self.driver.clone() }
    }
}

impl<B: Bench, D: Driver<B>> Store for Inside<B, D> {
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

impl<B: Bench<Store: Inspect>, D: Driver<B>> Inspect for Inside<B, D> {
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

impl<B: Bench<Store: Trail>, D: Driver<B>> Trail for Inside<B, D> {
    fn trail<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Vec<TrailEntry>, StoreError>> {
        self.store.trail(id)
    }
}

impl<B: Bench<Store: Spool>, D: Driver<B>> Spool for Inside<B, D> {
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
