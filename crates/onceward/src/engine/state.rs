//! What runs or settles in this process, and whether it is ending.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use onceward_core::Store;
use tokio::sync::Notify;

#[cfg(feature = "tower")]
use super::open;
use super::{AdmitError, Engine};
use crate::telemetry;

/// What all clones of an engine count.
#[derive(Default)]
pub(super) struct EngineState {
    /// Executions that run or settle: their number has a limit.
    executions: AtomicUsize,
    /// What else a drain waits for: admissions under way, and claims that are given back.
    pub(super) others: AtomicUsize,
    settled: Notify,
    /// Which executions belong to which scope.
    #[cfg(feature = "tower")]
    open: Arc<open::OpenExecutions>,
    #[cfg(feature = "tower")]
    common: std::sync::OnceLock<crate::server::Common>,
    draining: AtomicBool,
    #[cfg(feature = "tower")]
    drain_begins: Notify,
    pub(super) stopped: AtomicBool,
}

impl EngineState {
    /// Lets nothing more in, and returns when nothing is left.
    pub(super) async fn all_settled(&self) {
        self.draining.store(true, Ordering::SeqCst);
        #[cfg(feature = "tower")]
        self.drain_begins.notify_waiters();
        loop {
            let settled = self.settled.notified();
            if self.unsettled() == 0 {
                return;
            }
            settled.await;
        }
    }

    fn unsettled(&self) -> usize {
        self.executions.load(Ordering::SeqCst) + self.others.load(Ordering::SeqCst)
    }

    fn count(&self, kind: telemetry::Unsettled) -> &AtomicUsize {
        match kind {
            telemetry::Unsettled::Execution => &self.executions,
            telemetry::Unsettled::Other => &self.others,
        }
    }
}

impl Engine {
    /// Whether there is room for one more execution.
    pub(super) fn is_open(&self) -> Result<(), AdmitError> {
        if self.shared.draining.load(Ordering::SeqCst) {
            return Err(AdmitError::Draining);
        }
        if self.shared.executions.load(Ordering::SeqCst) >= Self::MAX_UNSETTLED {
            return Err(AdmitError::Overloaded);
        }
        Ok(())
    }

    /// Counts an execution that is admitted later, in its own transaction.
    #[cfg(feature = "tower")]
    pub(crate) fn enter(&self) -> Result<Tracked, AdmitError> {
        let tracked = self.track();
        self.is_open().map(|()| tracked)
    }

    /// Counts as unsettled until dropped: for an execution that runs detached from its caller.
    #[must_use]
    pub fn track(&self) -> Tracked {
        Tracked::new(&self.shared, telemetry::Unsettled::Execution)
    }

    /// How many executions each scope has here.
    #[cfg(feature = "tower")]
    pub(crate) fn open(&self) -> &Arc<open::OpenExecutions> {
        &self.shared.open
    }

    /// What its layers have in common.
    #[cfg(feature = "tower")]
    pub(crate) fn common(&self) -> &crate::server::Common {
        self.shared.common.get_or_init(|| crate::server::Common::new(&*self.store))
    }

    /// Is waited for by a drain, but does not count as an execution.
    pub(crate) fn track_other(&self) -> Tracked {
        Tracked::new(&self.shared, telemetry::Unsettled::Other)
    }

    /// How many executions are being admitted, running detached, settling or being given back.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.shared.unsettled()
    }

    /// Ends when this process is ending.
    #[cfg(feature = "tower")]
    pub(crate) async fn drain_begins(&self) {
        let begins = self.shared.drain_begins.notified();
        if !self.shared.draining.load(Ordering::SeqCst) {
            begins.await;
        }
    }
}

/// An engine for a store that has no other: [`Engine::new`].
impl<S: Store> From<S> for Engine {
    fn from(store: S) -> Self {
        Self::new(store)
    }
}

/// An execution that [`Engine::drain`] waits for; it ends when this is dropped.
///
/// ```
/// use onceward::{Engine, engine::Tracked, store::memory::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let engine = Engine::new(MemoryStore::not_durable());
/// let running: Tracked = engine.track();
/// assert_eq!(engine.unsettled(), 1);
/// drop(running);
/// assert_eq!(engine.drain(std::time::Duration::from_secs(1)).await.abandoned, 0);
/// # }
/// ```
pub struct Tracked {
    shared: Arc<EngineState>,
    kind: telemetry::Unsettled,
}

impl Tracked {
    fn new(shared: &Arc<EngineState>, kind: telemetry::Unsettled) -> Self {
        shared.count(kind).fetch_add(1, Ordering::SeqCst);
        telemetry::UNSETTLED.raise_of(kind, 1);
        Self { shared: shared.clone(), kind }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.shared.count(self.kind).fetch_sub(1, Ordering::SeqCst);
        telemetry::UNSETTLED.lower_of(self.kind, 1);
        self.shared.settled.notify_waiters();
    }
}
