//! What a request gets.

use alloc::boxed::Box;
use core::time::Duration;

use crate::{Claim, Fence, Outcome, State, Stored, Timestamp};

/// What a request gets.
#[expect(clippy::large_enum_variant, reason = "moved once, and most requests run")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This execution, and no other, runs the operation.
    Run(Claim),
    /// The operation has ended; this is its answer.
    Replay(Replay),
    /// Another execution is running it.
    Busy {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The key was used for a request that means something else. Nothing of it is disclosed.
    Mismatch,
    /// It cannot be proven whether the effect happened; `None`: the record cannot be read.
    Unknown(Option<Box<Stored>>),
    /// The operation has ended, and only a jump of the store's clock says that it may be forgotten.
    ClockSuspect,
}

/// The stored answer to a duplicate.
///
/// ```
/// use onceward_core::{Replay, Stored};
///
/// fn status(stored: Stored) -> Option<u16> {
///     Some(Replay::of(stored)?.outcome.status)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The answer.
    pub outcome: Outcome,
    /// The fence of the ended record, under which spooled bodies are kept.
    pub fence: Fence,
    /// When the operation ended.
    pub completed_at: Timestamp,
    /// Until when the answer is kept.
    pub expires_at: Option<Timestamp>,
}

impl Replay {
    /// The answer of a record that has one.
    #[must_use]
    pub fn of(stored: Stored) -> Option<Self> {
        let (State::Succeeded(outcome) | State::FailedFinal(outcome)) = stored.record.state else {
            return None;
        };
        let (fence, completed_at) = (stored.record.fence, stored.updated_at);
        let expires_at = stored.record.ttl.ends_at(stored.read_at);
        Some(Self { outcome, fence, completed_at, expires_at })
    }
}
