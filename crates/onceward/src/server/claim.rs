//! The claim as a handler sees it.

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onceward_core::{Digest, Replay};
use tokio::time::Instant;

use super::{Deadline, Idempotency, PeerMemory};
use crate::Engine;

/// The claim under which a handler runs, in the request's extensions and as an axum extractor.
///
/// `Option<Claim>` is for routes where the key is optional. It derefs to the protocol's
/// [`Claim`](onceward_core::Claim), so that `claim.key_for("stripe.charge")` is the key for a
/// provider: stable over attempts.
///
/// ```
/// use onceward::server::Claim;
///
/// async fn charge(claim: Claim) -> String {
///     format!("charged under {}", claim.key_for("stripe.charge").as_str())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Claim {
    owned: Arc<Owned>,
}

#[derive(Debug)]
struct Owned {
    idempotency: Idempotency,
    claim: onceward_core::Claim,
    /// The memory for its answer.
    memory: PeerMemory,
    deadline: Deadline,
    lost: AtomicBool,
    /// What the handler's own commit has stored, if it is known for certain.
    end: Mutex<Option<Replay>>,
    /// Whether a commit was sent and its outcome is not known yet.
    is_sent: AtomicBool,
}

/// In the extensions of a request that runs without a claim, so that an extractor can tell why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// It is not covered: it has no key, or its method changes nothing.
    Uncovered,
    /// The store is down, and its route runs without it.
    StoreDown(Digest),
}

impl Claim {
    /// The layer makes the deadline before it asks for the claim, so that it comes before the moment from
    /// which the store lets an operator or a resolver free the key.
    pub(super) fn new(
        idempotency: Idempotency,
        claim: onceward_core::Claim,
        (deadline, memory): (Deadline, PeerMemory),
    ) -> Self {
        let (lost, is_sent) = (AtomicBool::new(false), AtomicBool::new(false));
        let end = Mutex::default();
        Self { owned: Arc::new(Owned { idempotency, claim, memory, deadline, lost, end, is_sent }) }
    }

    pub(super) fn idempotency(&self) -> &Idempotency {
        &self.owned.idempotency
    }

    pub(super) fn memory(&self) -> &PeerMemory {
        &self.owned.memory
    }

    pub(super) fn engine(&self) -> &Engine {
        self.idempotency().engine()
    }

    /// How long this execution may still start an effect; zero when it must not any more.
    ///
    /// Check it just before an effect that cannot be taken back: after that time a resolver may
    /// have found that nothing happened, and another execution may be running. A request to another
    /// service waits for a connection first, so that a check before it is too early: give the request
    /// this time as its own time-out, for connecting and sending alike.
    ///
    /// ```
    /// use onceward::server::Claim;
    ///
    /// async fn charge(claim: &Claim, provider: &reqwest::Client) -> Result<u16, reqwest::Error> {
    ///     let request = provider.post("https://provider.example/charges");
    ///     let request = request.header("Idempotency-Key", claim.key_for("charge").as_str());
    ///     Ok(request.timeout(claim.time_left()).send().await?.status().as_u16())
    /// }
    /// ```
    #[must_use]
    pub fn time_left(&self) -> Duration {
        match self.is_lost() {
            true => Duration::ZERO,
            false => self.owned.deadline.left(),
        }
    }

    /// Until when this execution may send something that cannot be taken back: pass it on to the code that
    /// sends, and ask there.
    ///
    /// ```
    /// use onceward::server::{Claim, Deadline};
    ///
    /// fn write(deadline: Deadline, line: &mut Vec<u8>, order: &[u8]) -> Result<(), &'static str> {
    ///     if deadline.is_over() {
    ///         return Err("another execution may be running: nothing was sent");
    ///     }
    ///     line.extend_from_slice(order);
    ///     Ok(())
    /// }
    ///
    /// fn send(claim: &Claim, line: &mut Vec<u8>) -> Result<(), &'static str> {
    ///     write(claim.deadline(), line, b"charge 5")
    /// }
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.owned.deadline
    }

    /// Whether a renewal found that another execution took over. Stop: the answer will not be sent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.owned.lost.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.owned.lost.store(true, Ordering::Relaxed);
    }

    /// Remembers what was committed, so that it need not be read.
    pub(super) fn keep_end(&self, end: Option<Replay>) {
        *self.owned.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    pub(super) fn take_end(&self) -> Option<Replay> {
        self.owned.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that a commit is about to be sent, or that its outcome is definite.
    pub(super) fn sent(&self, is_sent: bool) {
        self.owned.is_sent.store(is_sent, Ordering::Release);
    }

    /// Whether a commit may still be under way.
    pub(super) fn is_sent(&self) -> bool {
        self.owned.is_sent.load(Ordering::Acquire)
    }

    pub(super) fn until(&self) -> Instant {
        self.owned.deadline.instant()
    }
}

impl Deref for Claim {
    type Target = onceward_core::Claim;

    fn deref(&self) -> &onceward_core::Claim {
        &self.owned.claim
    }
}
