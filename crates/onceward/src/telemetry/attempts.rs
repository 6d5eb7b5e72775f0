//! What is counted of requests that may be sent again: by the retrying client, and by the gateway.

#[cfg(feature = "client")]
use onceward_core::retry::StopReason;

use super::metric::{Counter, Family, Labels, Metric, labels};

labels! {
    /// Which request of a call it is.
    SentAs is "kind" {
        /// The first one.
        First = "first",
        /// One after a wait.
        Retry = "retry",
        /// One beside another that is late.
        Hedge = "hedge",
    }

    /// How a call ended.
    CallEnd is "result" {
        /// With an answer that is none of the following.
        Succeeded = "succeeded",
        /// It did not happen, as far as is known.
        Failed = "failed",
        /// It may have happened.
        Unknown = "unknown",
    }

    /// Why a call made no further attempt.
    StopLabel is "reason" {
        /// The answer is final.
        Answered = "answered",
        /// The state at the server is another one.
        Conflict = "conflict",
        /// The credentials were refused.
        Unauthorised = "unauthorised",
        /// A repeat could do harm.
        Unsafe = "unsafe",
        /// The body was not kept.
        BodyGone = "body_gone",
        /// An outer layer retries already.
        Nested = "nested",
        /// All attempts are used up.
        Attempts = "attempts",
        /// The time is over.
        Deadline = "deadline",
        /// The retry budget is spent.
        Budget = "budget",
        /// Retries are as large a share as they may be.
        Share = "share",
        /// The target is left alone.
        Breaker = "breaker",
        /// The target refuses most calls.
        Throttle = "throttle",
        /// Others are more important.
        Shed = "shed",
        /// As many are in flight as may be.
        Limit = "limit",
        /// Anything else.
        Other = "other",
    }
}

metrics! { pub(super) CLIENT:
    /// Requests that the retrying client sent.
    CLIENT_ATTEMPTS = "onceward_client_attempts_total", Counter, SentAs;
    /// Calls of the retrying client by how they ended.
    CLIENT_CALLS = "onceward_client_calls_total", Counter, CallEnd;
    /// Calls of the retrying client that did not succeed, by why they stopped.
    CLIENT_STOPS = "onceward_client_stops_total", Counter, StopLabel;
    /// Requests of the retrying client that were given up because their time was over.
    CLIENT_LATE = "onceward_client_late_total", Counter, ();
}

impl StopLabel {
    /// The label for a reason of the core.
    #[cfg(feature = "client")]
    #[must_use]
    pub fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::Answered => Self::Answered,
            StopReason::Conflict => Self::Conflict,
            StopReason::Unauthorised => Self::Unauthorised,
            StopReason::Unsafe => Self::Unsafe,
            StopReason::BodyGone => Self::BodyGone,
            StopReason::Nested => Self::Nested,
            StopReason::Attempts => Self::Attempts,
            StopReason::Deadline => Self::Deadline,
            StopReason::Budget => Self::Budget,
            StopReason::Share => Self::Share,
            StopReason::Breaker => Self::Breaker,
            StopReason::Throttle => Self::Throttle,
            StopReason::Shed => Self::Shed,
            StopReason::Limit => Self::Limit,
            _ => Self::Other,
        }
    }
}
