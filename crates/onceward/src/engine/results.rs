//! What the engine gives back when it is not a verdict.

use std::fmt;

use onceward_core::{Found, StoreError, Timestamp};

/// The result of a renewal.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many executions were not settled in time.
    pub abandoned: usize,
}
