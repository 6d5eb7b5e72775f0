//! What a call does next, as the decision says.

use core::time::Duration;

use super::Stop;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give the answer to the caller.
    Succeed,
    /// Give up, with the answer if there was one.
    Stop(Stop),
    /// Wait so long, then [`begin`](super::Context::begin) another attempt.
    Attempt {
        /// How long to wait first.
        wait: Duration,
    },
    /// Wait so long, then ask the status URL; what it says is the next thing that the caller tells [`decide`](super::decide).
    Poll {
        /// How long to wait first.
        wait: Duration,
    },
    /// Get new credentials, then [`begin`](super::Context::begin) another attempt.
    Refresh,
}

/// An attempt may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// It ends after this time at the latest; the caller tells the target this as its deadline.
    pub timeout: Duration,
    /// After this time without an answer, [`hedge`](super::Context::hedge) may be asked.
    pub hedge_after: Option<Duration>,
}
