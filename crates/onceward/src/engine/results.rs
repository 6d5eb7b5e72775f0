//! What the engine gives back when it is not a verdict.

use std::fmt;

use onceward_core::{Found, StoreError, Timestamp};

/// The result of a renewal.
///
/// ```
/// use onceward::{Engine, StoreError, engine::Renewal, protocol::Claim};
///
/// async fn may_go_on(engine: &Engine, claim: &Claim) -> Result<bool, StoreError> {
///     Ok(!matches!(engine.renew(claim).await?, Renewal::Lost(_)))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs anew.
    Renewed {
        /// The store's time of it.
        at: Timestamp,
    },
    /// A transaction that is still open holds the record, most often the one that ends this claim. As
    /// good as renewed: whatever becomes of the lease, only one of them commits.
    Held,
    /// The claim is over: another execution may be running. Stop, and send no answer.
    Lost(Found),
}

/// Why a request got no verdict. Nothing was run.
///
/// ```
/// use onceward::{AdmitError, Engine, Request, Verdict};
///
/// async fn admit(engine: &Engine, request: Request) -> Result<Verdict, u16> {
///     engine.admit(request).await.map_err(|error| match error {
///         AdmitError::Overloaded | AdmitError::Draining => 503, // this process is busy or ending
///         _ => 500,
///     })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmitError {
    /// The store does not answer as it should.
    Store(StoreError),
    /// [`Engine::MAX_UNSETTLED`](super::Engine::MAX_UNSETTLED) executions are running or settling.
    Overloaded,
    /// This process is shutting down.
    Draining,
}

impl fmt::Display for AdmitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(formatter, "nothing was run: {error}"),
            Self::Overloaded => formatter.write_str(
                "nothing was run: too many operations are unsettled here; try again with the same key",
            ),
            Self::Draining => formatter.write_str(
                "nothing was run: this process is shutting down; try again with the same key",
            ),
        }
    }
}

impl std::error::Error for AdmitError {}

/// A settlement is not durable yet; it is tried again in the background.
///
/// ```
/// use onceward::{Ending, Engine, Outcome, engine::Unsettled, protocol::{Claim, Settled}};
///
/// async fn status(engine: &Engine, claim: Claim) -> u16 {
///     match engine.settle(claim, Ending::Succeeded(Outcome::inline(201, Vec::new()))).await {
///         Ok(Settled::Stored { .. }) => 201,
///         Ok(Settled::FencedOff(_)) => 409,
///         Err(Unsettled) => 503, // the client asks again with its key
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled;

impl fmt::Display for Unsettled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "the operation has run but its end is not durable yet; ask again with the same key",
        )
    }
}

impl std::error::Error for Unsettled {}

/// What [`Engine::drain`](super::Engine::drain) left behind.
///
/// ```
/// use onceward::{Engine, engine::Drained};
///
/// async fn shut_down(engine: &Engine) {
///     let Drained { abandoned } = engine.drain(std::time::Duration::from_secs(30)).await;
///     println!("{abandoned} operations end with their leases");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many executions were not settled in time.
    pub abandoned: usize,
}
