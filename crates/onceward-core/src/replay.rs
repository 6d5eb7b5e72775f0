//! What a duplicate is answered with.

use crate::{Fence, Outcome, State, Stored, Timestamp};

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
