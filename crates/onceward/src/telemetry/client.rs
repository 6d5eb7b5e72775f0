//! What the retrying client counts, and the words of the core that are labels.

use onceward_core::retry::{Circuit, StopReason};

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

/// Reasons that newer software may have are `other`.
impl Labels for StopReason {
    const COUNT: usize = Self::ALL.len() + 1;

    fn series() -> Vec<Vec<(&'static str, &'static str)>> {
        let words = Self::ALL.map(Self::as_str).into_iter();
        words.chain(["other"]).map(|word| vec![("reason", word)]).collect()
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl Labels for Circuit {
    const COUNT: usize = Self::ALL.len();

    fn series() -> Vec<Vec<(&'static str, &'static str)>> {
        Self::ALL.map(|circuit| vec![("state", circuit.as_str())]).into()
    }

    fn index(self) -> usize {
        self as usize
    }
}
