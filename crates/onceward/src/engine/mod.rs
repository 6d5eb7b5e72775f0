//! The drivers: thin loops that carry the decisions of the core to a store and back.
//!
//! All the rules about answers that get lost are here and nowhere else:
//!
//! - After a store error the same change is proposed again; whether the first one was made shows by
//!   its fence.
//! - An admission that gets no answer at all, or whose caller goes away, gives its claim back in the
//!   background for as long as one lease lasts. What lands later counts by its effect.
//! - A settlement outlives its caller and is repeated until it is stored, fenced off, or
//!   [`Engine::drain`] ends.

pub(super) mod commit;
#[cfg(feature = "tower")]
pub(super) mod open;
mod pending;
mod propose;
pub(super) mod repair;
mod results;
mod settlement;
mod state;
pub(super) mod sweeper;

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use onceward_core::{
    Admission, Claim, Ending, Request, Settled, Step, Store, StoreError, Swap, Verdict,
};
use tokio::{sync::oneshot, time::timeout};

use crate::telemetry;
pub use commit::{CommitError, CommitOutcome, Transaction};
use pending::PendingAdmission;
pub(crate) use propose::{Pause, fresh_execution, fresh_fence, held, injected, newer_fingerprint};
pub use repair::{RepairFailure, RepairRequest};
pub use results::{AdmitError, Drained, Renewal, Unsettled};
use state::EngineState;
pub use state::Tracked;
pub use sweeper::Sweeper;

/// Admits requests to operations and settles them, on one store.
///
/// Cheap to clone; clones are the same engine. Its methods must be called inside a tokio runtime.
///
/// ```
/// use onceward::{*, store::memory::MemoryStore, protocol::*};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::not_durable());
/// let request = || {
///     let scope = Scope::of("tenant", "acme")?;
///     let operation = OperationId::new(scope, OperationName::new("pay")?, Key::new("8e03978e")?);
///     let fingerprints = Fingerprint::v1(&RequestHead::new("POST", "/pay"), b"{\"cents\":5}").into();
///     let terms = Terms::of(Effect::External).build()?;
///     Ok::<_, Box<dyn std::error::Error>>(Request { operation, fingerprints, terms })
/// };
///
/// let Verdict::Run(claim) = engine.admit(request()?).await? else { unreachable!() };
/// // … charge the card, with `claim.key_for("card.charge")` as the provider's key …
/// engine.settle(claim, Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))).await?;
///
/// let Verdict::Replay(replay) = engine.admit(request()?).await? else { unreachable!() };
/// assert_eq!(replay.outcome, Outcome::inline(201, b"paid".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    store: Arc<dyn Store>,
    shared: Arc<EngineState>,
    call_timeout: Duration,
    settle_patience: Duration,
}

impl Engine {
    /// How many executions may be running or settling at once: each holds its answer in memory.
    pub const MAX_UNSETTLED: usize = 10_000;
    /// How many claims are given back at once; the lease of any more simply runs out.
    pub const MAX_GIVEN_BACK: usize = 10_000;
    /// How often a change is proposed to a store that fails before an admission gives up.
    pub const MAX_TRIES: u32 = 3;
    /// How long a caller waits for a settlement; it goes on in the background after that.
    pub const SETTLE_PATIENCE: Duration = Duration::from_secs(1);

    /// Drives operations on this store.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            shared: Arc::default(),
            call_timeout: Duration::from_secs(10),
            settle_patience: Self::SETTLE_PATIENCE,
        }
    }

    /// How long one call to the store may take, 10 s if not said; a store that hangs counts as
    /// failing.
    #[must_use]
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    /// The store that this engine drives.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Asks whether a request may run. Dropping the future never leaves a claim without an execution.
    pub async fn admit(&self, request: Request) -> Result<Verdict, AdmitError> {
        // Counted before it is asked for, so that a drain cannot overlook this admission.
        let _counted = self.track_other();
        self.is_open()?;
        let admission = Admission::new(request, fresh_fence(), fresh_execution());
        let mut pending = PendingAdmission { engine: self, admission: Some(admission) };
        loop {
            let change = pending.admission().change();
            let swap = match self.propose(change).await {
                // Its own claim, found late, which another request takes over right now.
                Ok(Swap::Held) if !change.is_claim() => return Err(pending.after(held())),
                Ok(swap) => swap,
                Err(error) => return Err(pending.after(error)),
            };
            match pending.answered().next(swap) {
                Step::Swap(next) => pending.admission = Some(next),
                Step::Done(verdict) => {
                    if let Verdict::Run(claim) = &verdict {
                        telemetry::CLAIMS.add(telemetry::Claimed::of(claim));
                    }
                    return Ok(verdict);
                }
                Step::Newer { version } => {
                    return Err(AdmitError::Store(newer_fingerprint(version)));
                }
            }
        }
    }

    /// Starts the lease of a claim anew.
    pub async fn renew(&self, claim: &Claim) -> Result<Renewal, StoreError> {
        Ok(match self.propose(&claim.renew()).await? {
            Swap::Stored { at } => Renewal::Renewed { at },
            Swap::Held => Renewal::Held,
            Swap::Conflict(found) => Renewal::Lost(found),
        })
    }

    /// Ends a claim. The settlement runs on by itself, whether or not the future is awaited.
    ///
    /// `Err` after a second without success: tell the client that the outcome is not known yet. An
    /// answer may be sent only after `Settled::Stored`.
    #[expect(clippy::needless_pass_by_value, reason = "settling uses the claim up")]
    pub fn settle(
        &self,
        claim: Claim,
        ending: Ending,
    ) -> impl Future<Output = Result<Settled, Unsettled>> + Send + use<> {
        let settlement = claim.settle(ending, fresh_fence());
        let (sender, receiver) = oneshot::channel();
        let (engine, tracked) = (self.clone(), self.track());
        let patience = self.settle_patience;
        tokio::spawn(async move {
            let settled = engine.settle_until_done(settlement).await;
            drop(tracked);
            // The caller may be gone; the settlement is what counts.
            let _ = sender.send(settled);
        });
        async move {
            match timeout(patience, receiver).await {
                Ok(Ok(Some(settled))) => Ok(settled),
                _ => {
                    telemetry::SETTLEMENTS_TROUBLED.add(telemetry::Troubled::Late);
                    Err(Unsettled)
                }
            }
        }
    }

    /// Admits nothing more and waits until everything is settled, or for so long.
    ///
    /// What is not settled by then is given up: its claim ends with its lease, by its effect.
    pub async fn drain(&self, patience: Duration) -> Drained {
        let in_time = timeout(patience, self.shared.all_settled()).await.is_ok();
        self.shared.stopped.store(true, Ordering::SeqCst);
        let abandoned = if in_time { 0 } else { self.unsettled() };
        if abandoned > 0 {
            let number = abandoned as u64;
            telemetry::SETTLEMENTS_TROUBLED.add_many(telemetry::Troubled::Abandoned, number);
            telemetry::SETTLEMENT_ABANDONED
                .raise(format_args!("{abandoned} operations were not settled within {patience:?}"));
        }
        Drained { abandoned }
    }
}
