//! The memory store means what every store means.

use std::{future::Future, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::{Driven, block_on, spawn},
    protocol::conformance::Bench,
    store::memory::MemoryStore,
};

use crate::server_support;

/// Makes its stores so.
#[derive(Clone)]
struct Memory(fn() -> Arc<MemoryStore>);

impl Memory {
    fn on_the_clock_of_the_host() -> Self {
        Self(|| Arc::new(MemoryStore::not_durable()))
    }

    fn on_the_clock_of_tokio() -> Self {
        Self(server_support::memory)
    }
}

impl Bench for Memory {
    type Store = Arc<MemoryStore>;

    async fn open(&self) -> Self::Store {
        (self.0)()
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

onceward::protocol::store_conformance!(Memory::on_the_clock_of_the_host(), block_on);
onceward::protocol::inspect_conformance!(Memory::on_the_clock_of_the_host(), block_on);
onceward::protocol::spool_conformance!(Memory::on_the_clock_of_the_host(), block_on);
// The pauses after faults take no time, because the clock of tokio goes on by itself when everybody waits.
onceward::driver_conformance!(Memory::on_the_clock_of_tokio(), in_virtual_time);

/// Virtual time has one thread only, so the drivers race on several threads here.
mod driven_by_threads {
    use super::*;

    onceward::protocol::store_conformance!(
        Driven::over(Memory::on_the_clock_of_the_host(), None),
        block_on
    );
}

fn in_virtual_time<F: Future>(case: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(case)
}
