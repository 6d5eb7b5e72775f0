//! A bench whose admissions and settlements go through the drivers.

use std::{future::Future, time::Duration};

use onceward_core::{Claim, Digest, Ending, Request, Settled, Verdict, conformance::Bench};

use super::{Faulty, FaultyStore};
use crate::Engine;

/// More than any settlement takes, also on a busy machine.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bench of a store, driven by the [`Engine`] over a store with faults.
///
/// What the suite looks at itself, it reads from the real store.
#[derive(Clone)]
pub struct Driven<B> {
    bench: B,
    faulty: Option<Faulty>,
}

impl<B: Bench> Driven<B> {
    /// Drives the stores of this bench; `None`: without faults.
    pub fn over(bench: B, faulty: Option<Faulty>) -> Self {
        Self { bench, faulty }
    }

    fn engine(&self, store: &B::Store) -> Engine {
        Engine::new(FaultyStore::new(store.clone(), self.faulty)).settle_patience(SETTLE_TIMEOUT)
    }
}

impl<B: Bench> Bench for Driven<B> {
    type Store = B::Store;

    fn open(&self) -> impl Future<Output = B::Store> + Send {
        self.bench.open()
    }

    fn reopen(&self, store: B::Store) -> impl Future<Output = Option<B::Store>> + Send {
        self.bench.reopen(store)
    }

    fn age(&self, store: &B::Store, id: &Digest, by: Duration) -> impl Future<Output = ()> + Send {
        self.bench.age(store, id, by)
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        self.bench.spawn(task)
    }

    async fn admit(&self, store: &B::Store, request: Request) -> Verdict {
        self.engine(store).admit(request).await.expect("three tries are enough")
    }

    async fn settle(&self, store: &B::Store, claim: &Claim, ending: Ending) -> Settled {
        let settled = self.engine(store).settle(claim.clone(), ending).await;
        settled.expect("the store answers in time")
    }
}
