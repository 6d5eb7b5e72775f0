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
pub(super) mod repair;
mod results;
pub(super) mod sweeper;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use onceward_core::{
    Admission, Change, Claim, Ending, Execution, Fence, Found, Request, Settled, Settlement,
    SettlementStep, Step, Store, StoreError, Swap, Ttl, Verdict,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, timeout},
};

use crate::{
    crashpoint,
    telemetry::{self, Call, StoreAnswer, event},
};
pub use commit::{CommitError, CommitOutcome, Transaction};
pub use repair::{ReleaseFailure, ReleaseRequest, ResolveFailure, ResolveRequest};
pub use results::{AdmitError, Drained, Renewal, Unsettled};
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
    shared: Arc<EngineState>,
    call_timeout: Duration,
    settle_patience: Duration,
}

struct EngineState {
    store: Arc<dyn Store>,
    /// Executions that run or settle: their number has a limit.
    executions: AtomicUsize,
    /// What else a drain waits for: admissions under way, and claims that are given back.
    others: AtomicUsize,
    settled: Notify,
    /// Which of them belong to whom.
    #[cfg(feature = "tower")]
    open: Arc<open::Open>,
    #[cfg(feature = "tower")]
    common: std::sync::OnceLock<crate::server::Common>,
    draining: AtomicBool,
    #[cfg(feature = "tower")]
    drain_begins: Notify,
    stopped: AtomicBool,
}

impl EngineState {
    fn count(&self, kind: telemetry::Unsettled) -> &AtomicUsize {
        match kind {
            telemetry::Unsettled::Execution => &self.executions,
            telemetry::Unsettled::Other => &self.others,
        }
    }
}

/// An engine for a store that nobody else drives: [`Engine::new`].
impl<S: Store> From<S> for Engine {
    fn from(store: S) -> Self {
        Self::new(store)
    }
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
            shared: Arc::new(EngineState {
                store: Arc::new(store),
                executions: AtomicUsize::new(0),
                others: AtomicUsize::new(0),
                settled: Notify::new(),
                #[cfg(feature = "tower")]
                open: Arc::default(),
                #[cfg(feature = "tower")]
                common: std::sync::OnceLock::new(),
                #[cfg(feature = "tower")]
                drain_begins: Notify::new(),
                draining: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
            }),
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

    /// Another time than [`SETTLE_PATIENCE`](Self::SETTLE_PATIENCE), for a suite on a machine of any speed.
    #[cfg(feature = "conformance")]
    pub(crate) fn settle_patience(mut self, settle_patience: Duration) -> Self {
        self.settle_patience = settle_patience;
        self
    }

    /// The store that this engine drives.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Asks whether a request may run. Dropping the future never leaves a claim that nobody runs.
    pub async fn admit(&self, request: Request) -> Result<Verdict, AdmitError> {
        // Counted before it is asked for, so that a drain cannot overlook this admission.
        let _counted = self.track_other();
        self.is_open()?;
        let admission = Admission::new(request, fresh_fence(), fresh_execution());
        let mut doubt = Doubt { engine: self, admission: Some(admission) };
        loop {
            let change = doubt.admission().change();
            let swap = match self.propose(change).await {
                // Its own claim, found late, which somebody takes over right now.
                Ok(Swap::Held) if !change.is_claim() => return Err(doubt.after(held())),
                Ok(swap) => swap,
                Err(error) => return Err(doubt.after(error)),
            };
            match doubt.dispel().next(swap) {
                Step::Swap(next) => doubt.admission = Some(next),
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

    /// Whether there is room for one more execution.
    fn is_open(&self) -> Result<(), AdmitError> {
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
    /// `Err` after a second without success: whoever asked must be told that the outcome is not
    /// known yet. An answer may be sent only after `Settled::Stored`.
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

    /// Settles in a task that nobody drops, with a fence under which an answer may be spooled; if it
    /// takes long, `late` is told. `None`: given up, because the engine was stopped.
    #[cfg(feature = "tower")]
    pub(crate) async fn settle_here(
        &self,
        settlement: Settlement,
        late: impl FnOnce(),
    ) -> Option<Settled> {
        let mut settling = std::pin::pin!(self.settle_until_done(settlement));
        match timeout(self.settle_patience, settling.as_mut()).await {
            Ok(settled) => settled,
            Err(_) => {
                telemetry::SETTLEMENTS_TROUBLED.add(telemetry::Troubled::Late);
                late();
                settling.await
            }
        }
    }

    /// Reads one record, within the time that one call to the store may take.
    #[cfg(feature = "tower")]
    pub(crate) async fn read(&self, id: &onceward_core::Digest) -> Result<Found, StoreError> {
        let get = self.bounded(Call::Get, self.shared.store.get(id));
        crashpoint!("store.get", get.await, injected())
    }

    /// A store that hangs counts as failing.
    #[cfg(feature = "tower")]
    pub(crate) async fn bounded<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.timed(call, answer, |_| StoreAnswer::Ok).await
    }

    async fn timed<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, StoreError>>,
        said: impl FnOnce(&T) -> StoreAnswer,
    ) -> Result<T, StoreError> {
        let begun = telemetry::Begun::now();
        let answer = timeout(self.call_timeout, answer).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no answer within {:?}", self.call_timeout)))
        });
        telemetry::count_call(call, begun, &answer, said);
        answer
    }

    /// Counts as unsettled until dropped: for an execution that runs detached from its caller.
    #[must_use]
    pub fn track(&self) -> Tracked {
        Tracked::new(&self.shared, telemetry::Unsettled::Execution)
    }

    /// How many executions each scope has here.
    #[cfg(feature = "tower")]
    pub(crate) fn open(&self) -> &Arc<open::Open> {
        &self.shared.open
    }

    /// What its layers have in common.
    #[cfg(feature = "tower")]
    pub(crate) fn common(&self) -> &crate::server::Common {
        self.shared.common.get_or_init(|| crate::server::Common::new(&*self.shared.store))
    }

    /// Is waited for by a drain, but does not count as an execution.
    pub(crate) fn track_other(&self) -> Tracked {
        Tracked::new(&self.shared, telemetry::Unsettled::Other)
    }

    /// How many executions are being admitted, running detached, settling or being given back.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let EngineState { executions, others, .. } = &*self.shared;
        executions.load(Ordering::SeqCst) + others.load(Ordering::SeqCst)
    }

    /// Ends when this process is ending.
    #[cfg(feature = "tower")]
    pub(crate) async fn drain_begins(&self) {
        let begins = self.shared.drain_begins.notified();
        if !self.shared.draining.load(Ordering::SeqCst) {
            begins.await;
        }
    }

    /// Admits nothing more and waits until everything is settled, or for so long.
    ///
    /// What is not settled by then is given up: its claim ends with its lease, by its effect.
    pub async fn drain(&self, patience: Duration) -> Drained {
        self.shared.draining.store(true, Ordering::SeqCst);
        #[cfg(feature = "tower")]
        self.shared.drain_begins.notify_waiters();
        let all_settled = async {
            loop {
                let settled = self.shared.settled.notified();
                if self.unsettled() == 0 {
                    return;
                }
                settled.await;
            }
        };
        let in_time = timeout(patience, all_settled).await.is_ok();
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

    /// `None`: given up, because the engine was stopped and the store still fails.
    async fn settle_until_done(&self, mut settlement: Settlement) -> Option<Settled> {
        let mut pause = Pause::default();
        loop {
            let ended = telemetry::Ended::by(settlement.change());
            match self.call(settlement.change()).await {
                Ok(Swap::Held) if self.shared.stopped.load(Ordering::SeqCst) => return None,
                Ok(Swap::Held) => pause.wait().await,
                Ok(swap) => match settlement.next(swap) {
                    SettlementStep::Swap(next) => settlement = next,
                    SettlementStep::Done(settled) => {
                        telemetry::count_settled(ended, &settled);
                        return Some(settled);
                    }
                },
                Err(_) if self.shared.stopped.load(Ordering::SeqCst) => return None,
                Err(error) => {
                    telemetry::SETTLEMENTS_TROUBLED.add(telemetry::Troubled::Retried);
                    tracing::warn!(event = event::SETTLEMENT_RETRIED, %error, "a settlement is tried again");
                    pause.wait().await;
                }
            }
        }
    }

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

    /// A definite error means that no try has left anything behind. After one that may have, a record
    /// that is held may be held by that very try.
    pub(crate) async fn propose(&self, change: &Change) -> Result<Swap, StoreError> {
        let mut pause = Pause::default();
        let mut doubtful = None;
        for tries in 1.. {
            match (self.call(change).await, doubtful.take()) {
                (Ok(Swap::Held), Some(error)) => doubtful = Some(error),
                (Ok(swap), _) => return Ok(swap),
                (Err(error), before) if error.is_definite() => return Err(before.unwrap_or(error)),
                (Err(error), _) => doubtful = Some(error),
            }
            if tries >= Self::MAX_TRIES {
                break;
            }
            pause.wait().await;
        }
        Err(doubtful.expect("only doubt leads to another try"))
    }

    async fn call(&self, change: &Change) -> Result<Swap, StoreError> {
        let swap = self.timed(Call::Swap, self.shared.store.swap(change), |swap| match swap {
            Swap::Stored { .. } => StoreAnswer::Ok,
            Swap::Conflict(_) | Swap::Held => StoreAnswer::Conflict,
        });
        crashpoint!("store.swap", swap.await, injected())
    }
}

/// While an admission is under way it is not known whether its claim was made. Whoever leaves it
/// then, by an error or because its future was dropped, leaves somebody behind to give it back.
struct Doubt<'a> {
    engine: &'a Engine,
    admission: Option<Admission>,
}

impl Doubt<'_> {
    fn admission(&self) -> &Admission {
        self.admission.as_ref().expect("there is one until the store answers")
    }

    /// The store answered: it is known what became of the proposal.
    fn dispel(&mut self) -> Admission {
        self.admission.take().expect("there is one until the store answers")
    }

    /// The store failed; the doubt stays, unless it is certain that nothing was written.
    fn after(&mut self, error: StoreError) -> AdmitError {
        if error.is_definite() {
            self.admission = None;
        }
        AdmitError::Store(error)
    }
}

impl Drop for Doubt<'_> {
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

/// An execution that [`Engine::drain`] waits for; it ends when this is dropped.
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

pub(crate) fn held() -> StoreError {
    StoreError::Unavailable("another transaction that is still open holds the record".to_owned())
}

/// The pauses between tries: doubling from 4 ms to 1 s, jittered so that callers do not march.
#[derive(Default)]
pub(crate) struct Pause {
    tries: u32,
}

impl Pause {
    pub(crate) async fn wait(&mut self) {
        let ceiling_ms = (4 << self.tries.min(8)).min(1000);
        self.tries += 1;
        sleep(Duration::from_millis(fastrand::u64(ceiling_ms / 2..=ceiling_ms))).await;
    }
}

pub(crate) fn newer_fingerprint(version: u8) -> StoreError {
    StoreError::Newer(format!("a record has fingerprint version {version}; finish the upgrade"))
}

/// What a crash test makes of a step.
pub(crate) fn injected() -> StoreError {
    StoreError::Unavailable("a crash test injected this error".to_owned())
}

pub(crate) fn fresh_fence() -> Fence {
    Fence::from_random(uuid::Uuid::new_v4().into_bytes())
}

pub(crate) fn fresh_execution() -> Execution {
    Execution::from_bytes(uuid::Uuid::now_v7().into_bytes())
}
