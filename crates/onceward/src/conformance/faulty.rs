//! A store between a driver and a real one, with faults that a network or a disk really has.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use onceward_core::{Change, Digest, Fence, Found, Store, StoreError, StoreFuture, Swap, Wake};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulty {
    /// The first two tries of every change fail and do nothing.
    FailsCalls,
    /// The first two tries of every change are made, and then reported as timed out.
    LosesReplies,
    /// The first two tries of every renewal and every ending meet an open transaction of another connection.
    HoldsRecords,
}

/// Passes calls on to another store, with faults.
///
/// ```
/// use onceward::{conformance::{Faulty, FaultyStore}, *, store::memory::MemoryStore, protocol::*};
///
/// let store = FaultyStore::new(MemoryStore::not_durable(), Some(Faulty::LosesReplies));
/// let engine = Engine::new(store);
/// # let _ = engine;
/// ```
#[derive(Clone)]
pub struct FaultyStore<S> {
    inner: S,
    faulty: Option<Faulty>,
    switches: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    down: AtomicBool,
    mute: AtomicBool,
    swaps: AtomicU32,
    tried: Mutex<HashSet<(Option<Fence>, Fence, u8)>>,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store; `None`: nothing goes wrong until a switch is thrown.
    pub fn new(inner: S, faulty: Option<Faulty>) -> Self {
        Self { inner, faulty, switches: Arc::default() }
    }

    /// While it is down every call fails and does nothing.
    pub fn set_down(&self, down: bool) {
        self.switches.down.store(down, Ordering::SeqCst);
    }

    /// While it is mute every call is made and never answered.
    pub fn set_mute(&self, mute: bool) {
        self.switches.mute.store(mute, Ordering::SeqCst);
    }

    /// How many swaps were asked for.
    #[must_use]
    pub fn swaps(&self) -> u32 {
        self.switches.swaps.load(Ordering::SeqCst)
    }

    fn next_fault(&self, change: &Change) -> Option<Faulty> {
        if self.switches.down.load(Ordering::SeqCst) {
            return Some(Faulty::FailsCalls);
        }
        let mut tried = self.switches.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let first_two =
            (1..=2).any(|count| tried.insert((change.expected, change.next.fence, count)));
        self.faulty.filter(|_| first_two)
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(async move {
            self.switches.swaps.fetch_add(1, Ordering::SeqCst);
            let swap = match self.next_fault(change) {
                Some(Faulty::FailsCalls) => {
                    Err(StoreError::Unavailable("connection refused (injected)".into()))
                }
                Some(Faulty::LosesReplies) => {
                    self.inner.swap(change).await?;
                    Err(StoreError::Unavailable("timed out after the work (injected)".into()))
                }
                Some(Faulty::HoldsRecords) if !change.is_claim() => Ok(Swap::Held),
                Some(Faulty::HoldsRecords) | None => self.inner.swap(change).await,
            };
            if self.switches.mute.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            swap
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        self.inner.get(id)
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
        self.inner.sweep(limit)
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        self.inner.as_any()
    }

    fn wake(&self) -> Option<&dyn Wake> {
        self.inner.wake()
    }
}
