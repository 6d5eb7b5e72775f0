//! Claims that the store may have made without an answer, and their release.

use std::sync::atomic::Ordering;

use onceward_core::{Admission, Found, StoreError, Swap, Ttl};
use tokio::time::Instant;

use super::{AdmitError, Engine, Pause, fresh_fence};

/// An admission under way does not know whether the store has made its claim. One that ends then, by an
/// error or because its future was dropped, leaves a task that gives the claim back.
pub(super) struct PendingAdmission<'a> {
    pub(super) engine: &'a Engine,
    pub(super) admission: Option<Admission>,
}

impl PendingAdmission<'_> {
    pub(super) fn admission(&self) -> &Admission {
        self.admission.as_ref().expect("there is one until the store answers")
    }

    /// The store answered, and says what became of the proposal.
    pub(super) fn answered(&mut self) -> Admission {
        self.admission.take().expect("there is one until the store answers")
    }

    /// The store failed; the doubt stays, unless it is certain that nothing was written.
    pub(super) fn after(&mut self, error: StoreError) -> AdmitError {
        if error.is_definite() {
            self.admission = None;
        }
        AdmitError::Store(error)
    }
}

impl Drop for PendingAdmission<'_> {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && self.engine.shared.others.load(Ordering::SeqCst) < Engine::MAX_GIVEN_BACK
        {
            let (engine, tracked) = (self.engine.clone(), self.engine.track_other());
            runtime.spawn(async move {
                engine.give_back(admission).await;
                drop(tracked);
            });
        }
    }
}

impl Engine {
    /// Gives back a claim that may or may not be there, until it is certain or its lease is over.
    async fn give_back(&self, admission: Admission) {
        let change = admission.change();
        let release = admission.give_up(fresh_fence());
        let lease_over = match change.next.ttl {
            Ttl::For(lease) => Instant::now() + lease,
            Ttl::Never => Instant::now(),
        };
        let mut pause = Pause::default();
        while !self.shared.stopped.load(Ordering::SeqCst) && Instant::now() < lease_over {
            match self.call(release.change()).await {
                Ok(Swap::Stored { .. }) => return,
                // Some other version is there: the claim was not made and cannot be any more.
                Ok(Swap::Conflict(Found::Record(stored)))
                    if Some(stored.record.fence) != change.expected =>
                {
                    return;
                }
                Ok(Swap::Conflict(_) | Swap::Held) | Err(_) => pause.wait().await,
            }
        }
    }
}
