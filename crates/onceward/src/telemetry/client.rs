//! What the retrying client counts, and the reasons for which it and the gateway stop.

use onceward_core::retry::StopReason;

use super::{Counters, Labels, SentAs, labels, metrics};

labels! {
    pub(crate) enum CallEnd: "result" {
        Succeeded = "succeeded", Failed = "failed", Unknown = "unknown",
    }
}

metrics! { show_client:
    /// Requests that the retrying client sent.
    CLIENT_ATTEMPTS: Counters<SentAs> = "onceward_client_attempts_total";
    /// Calls of the retrying client by how they ended.
    CLIENT_CALLS: Counters<CallEnd> = "onceward_client_calls_total";
    /// Calls of the retrying client that did not succeed, by why they stopped.
    CLIENT_STOPS: Counters<StopReason> = "onceward_client_stops_total";
    /// Requests of the retrying client that were given up because their time was over.
    CLIENT_LATE: Counters = "onceward_client_late_total";
}

/// The reasons of the core, each of which is a value of the label; further ones are `other`.
const STOP_REASONS: [StopReason; 14] = [
    StopReason::Answered,
    StopReason::Conflict,
    StopReason::Unauthorised,
    StopReason::Unsafe,
    StopReason::BodyGone,
    StopReason::Nested,
    StopReason::Attempts,
    StopReason::Deadline,
    StopReason::Budget,
    StopReason::Share,
    StopReason::Breaker,
    StopReason::Throttle,
    StopReason::Shed,
    StopReason::Limit,
];

impl Labels for StopReason {
    const COUNT: usize = STOP_REASONS.len() + 1;

    fn series() -> Vec<Vec<(&'static str, &'static str)>> {
        let words = STOP_REASONS.iter().map(|reason| reason.word());
        words.chain(["other"]).map(|word| vec![("reason", word)]).collect()
    }

    fn index(self) -> usize {
        let known = STOP_REASONS.iter().position(|reason| *reason == self);
        known.unwrap_or(STOP_REASONS.len())
    }
}
