//! The memory store means what every store means.

use std::{future::Future, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::{block_on, spawn},
    core::conformance::Bench,
    stores::memory::MemoryStore,
};

#[derive(Clone)]
struct Memory;

impl Bench for Memory {
    type Store = Arc<MemoryStore>;

    async fn open(&self) -> Self::Store {
        Arc::new(MemoryStore::not_durable())
    }

    async fn reopen(&self, _: Self::Store) -> Option<Self::Store> {
        None
    }

    async fn age(&self, store: &Self::Store, id: &Digest, by: Duration) {
        store.age(id, by);
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

onceward::core::store_conformance!(Memory, block_on);
onceward::core::inspect_conformance!(Memory, block_on);
onceward::core::spool_conformance!(Memory, block_on);
onceward::driver_conformance!(Memory, block_on);
