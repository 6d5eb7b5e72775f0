//! What all layers on one engine have in common, also those of a reloaded configuration: bounds that start
//! anew with each layer would bound nothing.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use onceward_core::{Digest, OnEnded, Store};
use tokio::sync::Semaphore;

use super::{
    Idempotency,
    memory::Memory,
    steps::{unknown::LastAsked, wait::Waiters},
};

/// How many answers that find no room in memory may be read at a time nevertheless, so that they are kept.
const SPARE: usize = 4;

pub(crate) struct Common {
    pub(super) waiters: Arc<Waiters>,
    /// Wakes waiters here when an operation ends in another process, as long as this is kept.
    _heard: Arc<OnEnded>,
    /// What requests and answers may hold.
    pub(super) memory: Memory,
    /// Places for answers beyond that.
    pub(super) spare: Arc<Semaphore>,
    pub(super) asked: LastAsked,
    /// How many executions listen for a late answer.
    listening: Arc<AtomicUsize>,
}

impl Common {
    pub(crate) fn new(store: &dyn Store) -> Self {
        let waiters: Arc<Waiters> = Arc::default();
        let heard: Arc<OnEnded> = {
            let waiters = waiters.clone();
            Arc::new(move |id: &Digest| waiters.wake(id))
        };
        if let Some(wake) = store.wake() {
            wake.listen(&heard);
        }
        Self {
            waiters,
            _heard: heard,
            memory: Memory::new(Idempotency::MAX_BUFFERED),
            spare: Arc::new(Semaphore::new(SPARE)),
            asked: LastAsked::default(),
            listening: Arc::default(),
        }
    }

    /// A place for one more execution that listens; `None`: so many do already.
    pub(super) fn listen(&self, most: usize) -> Option<ListeningPlace> {
        let more = |listening| (listening < most).then_some(listening + 1);
        let taken = self.listening.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.ok().map(|_| ListeningPlace(self.listening.clone()))
    }
}

/// Counts an execution that listens until this is dropped.
pub(super) struct ListeningPlace(Arc<AtomicUsize>);

impl Drop for ListeningPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
