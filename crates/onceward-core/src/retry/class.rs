//! What an answer, or the lack of one, says about trying again.
//!
//! Most retry libraries ask "is this error transient?". That is the wrong question for a write: what
//! matters is whether the request can have been carried out, and whether the server asks for less
//! load. So it divides failures without an answer by whether bytes can have arrived, and answers
//! by what they say about this operation and about the server.

/// What one attempt has shown.
///
/// ```
/// use onceward_core::retry::{Answer, Class};
///
/// let busy = Answer { code: Some("in-progress"), ..Answer::of(409) };
/// assert_eq!(busy.class(), Class::InProgress);
/// assert_eq!(Answer::of(409).class(), Class::Conflict);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is done.
    Success,
    /// Nothing can have arrived: connect, DNS, TLS, a stream that the server refused.
    NeverSent {
        /// The connection had been used before: the server may only have closed it while it was idle.
        reused: bool,
    },
    /// It may have been carried out: a time-out, a reset, a reply that was cut short.
    Ambiguous,
    /// The server asks for less: 429 and 503.
    Overload,
    /// The server failed: 500, 502, 504, 408, 425; 423 and any other 5xx with a `Retry-After`.
    ServerFault,
    /// Another attempt with the same key runs right now.
    InProgress,
    /// The server does not know whether it happened, and says so. Trying again cannot help.
    Unknown,
    /// The state at the server is another one: the caller refreshes what it knows first.
    Conflict,
    /// The credentials were refused; new ones may help, once.
    Unauthorised,
    /// Our 202: it is being carried out, and a status URL says how it ends.
    Accepted,
    /// That status URL says: not ended yet.
    Pending,
    /// That status URL says: send it again with the same key, for the answer or for another run.
    Ended,
    /// The answer is stored under the key: it is what every attempt gets, and it ends all doubt.
    Bound,
    /// Another answer that a further attempt would not change. Of earlier attempts it says nothing.
    Final,
}

impl Class {
    /// Whether it is a sign that the target is in trouble.
    ///
    /// Refusals that concern one request alone (4xx, a key that is busy) say nothing of its health.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::NeverSent { .. } | Self::Ambiguous | Self::Overload | Self::ServerFault
        )
    }

    /// One word for it, as in metrics, logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::NeverSent { .. } => "never_sent",
            Self::Ambiguous => "ambiguous",
            Self::Overload => "overload",
            Self::ServerFault => "server_fault",
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Conflict => "conflict",
            Self::Unauthorised => "unauthorised",
            Self::Accepted => "accepted",
            Self::Pending => "pending",
            Self::Ended => "ended",
            Self::Bound => "bound",
            Self::Final => "final",
        }
    }

    /// Whether it is the kind of answer after which no client sends the request again.
    #[must_use]
    pub fn is_settled(self) -> bool {
        !self.is_failure() && self != Self::InProgress
    }
}

/// What of an answer counts.
///
/// ```
/// use onceward_core::retry::{Answer, Class};
///
/// // A 500 that is stored under the key is what every further attempt would get.
/// assert_eq!(Answer::of(500).class(), Class::ServerFault);
/// assert_eq!(Answer { bound: true, ..Answer::of(500) }.class(), Class::Bound);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its HTTP status.
    pub status: u16,
    /// The `code` of its problem document, if it has one.
    pub code: Option<&'a str>,
    /// It has a `Retry-After` that could be read.
    pub hinted: bool,
    /// It is stored under the key: it has `Idempotent-Replayed` or `Idempotency-Expires`.
    pub bound: bool,
    /// It names an operation and a status URL of ours: `Onceward-Operation` and `Location`.
    pub ours: bool,
    /// What a problem document of ours says about sending it again. It can forbid a repeat and never
    /// allow one.
    pub retryable: Option<bool>,
    /// The server does not keep the key: `Onceward-Unprotected`, or it is a gateway of ours that has no
    /// answer and names no operation.
    pub unprotected: bool,
    /// The server says that it does not know whether it happened: `Onceward-Outcome: unknown`.
    pub unknown: bool,
}

impl<'a> Answer<'a> {
    /// An answer of which only the status is known.
    #[must_use]
    pub fn of(status: u16) -> Answer<'a> {
        Answer {
            status,
            code: None,
            hinted: false,
            bound: false,
            ours: false,
            retryable: None,
            unprotected: false,
            unknown: false,
        }
    }

    /// What it says about trying again.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.status {
            202 if self.ours => Class::Accepted,
            ..=399 => Class::Success,
            _ if self.bound => Class::Bound,
            401 => Class::Unauthorised,
            409 => self.class_of_409(),
            504 if self.code == Some("outcome-unknown") => Class::Unknown,
            429 | 503 => Class::Overload,
            408 | 425 | 500 | 502 | 504 => Class::ServerFault,
            // It is busy with something, and says for how long.
            423 | 500..=599 if self.hinted => Class::ServerFault,
            _ => Class::Final,
        }
    }

    /// Whether it leaves open if the request was carried out: the server says so, or it is a gateway
    /// that had no answer itself.
    #[must_use]
    pub fn leaves_doubt(&self) -> bool {
        // A key that a clock may have forgotten has run before.
        let said =
            matches!(self.code, Some("outcome-unknown" | "upstream-failed" | "clock-suspect"));
        // Codes of ours that say that nothing was run; those of others say nothing about that.
        let denied = matches!(self.code, Some("upstream-unreachable" | "deadline-exceeded"));
        let is_gateway = matches!(self.status, 502 | 504);
        !self.bound && (said || self.unknown || (is_gateway && !denied))
    }

    fn class_of_409(&self) -> Class {
        match self.code {
            Some("in-progress" | "lease-lost") => Class::InProgress,
            Some("outcome-unknown") => Class::Unknown,
            Some("result-unavailable") => Class::Final,
            // A server does not ask for a later try where the conflict stays.
            None if self.hinted => Class::InProgress,
            _ => Class::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_the_class_of_the_table() {
        for (status, class) in [
            (200, Class::Success),
            (202, Class::Success),
            (304, Class::Success),
            (400, Class::Final),
            (401, Class::Unauthorised),
            (403, Class::Final),
            (404, Class::Final),
            (408, Class::ServerFault),
            (409, Class::Conflict),
            (412, Class::Final),
            (422, Class::Final),
            (423, Class::Final),
            (425, Class::ServerFault),
            (429, Class::Overload),
            (500, Class::ServerFault),
            (501, Class::Final),
            (502, Class::ServerFault),
            (503, Class::Overload),
            (504, Class::ServerFault),
            (505, Class::Final),
        ] {
            assert_eq!(Answer::of(status).class(), class, "{status}");
        }
    }

    #[test]
    fn a_server_that_says_when_to_come_back_is_asked_again() {
        let hinted = |status| Answer { hinted: true, ..Answer::of(status) };
        for status in [423, 500, 501, 502, 504, 505, 507, 520, 599] {
            assert_eq!(hinted(status).class(), Class::ServerFault, "{status}");
            let bound = Answer { bound: true, ..hinted(status) };
            assert_eq!(bound.class(), Class::Bound, "{status}");
        }
        assert_eq!(hinted(503).class(), Class::Overload);
        for status in [400, 403, 404, 412, 422] {
            assert_eq!(hinted(status).class(), Class::Final, "{status}");
        }
    }

    #[test]
    fn doubt_is_left_where_nobody_knows_whether_it_was_carried_out() {
        for (status, code, doubt) in [
            (500, None, false),
            (503, None, false),
            (502, None, true),
            (504, None, true),
            (503, Some("outcome-unknown"), true),
            (503, Some("clock-suspect"), true),
            (503, Some("store-unavailable"), false),
            (502, Some("upstream-failed"), true),
            (502, Some("upstream-unreachable"), false),
            (504, Some("deadline-exceeded"), false),
            (502, Some("BAD_GATEWAY"), true),
        ] {
            let answer = Answer { code, ..Answer::of(status) };
            assert_eq!(answer.leaves_doubt(), doubt, "{status} {code:?}");
            assert!(!Answer { bound: true, ..answer }.leaves_doubt());
        }
    }

    #[test]
    fn our_own_codes_are_understood() {
        for (status, code, class) in [
            (409, "in-progress", Class::InProgress),
            (409, "lease-lost", Class::InProgress),
            (409, "outcome-unknown", Class::Unknown),
            (504, "outcome-unknown", Class::Unknown),
            (503, "outcome-unknown", Class::Overload),
            (503, "clock-suspect", Class::Overload),
            (409, "result-unavailable", Class::Final),
            (409, "sold-out", Class::Conflict),
            (422, "key-reused", Class::Final),
            (429, "retry-budget-exhausted", Class::Overload),
        ] {
            let answer = Answer { code: Some(code), ..Answer::of(status) };
            assert_eq!(answer.class(), class, "{status} {code}");
        }
        assert_eq!(Answer { hinted: true, ..Answer::of(409) }.class(), Class::InProgress);
        assert_eq!(Answer { ours: true, ..Answer::of(202) }.class(), Class::Accepted);
    }

    #[test]
    fn what_is_stored_under_the_key_is_known_whatever_its_status() {
        for status in 400..600 {
            let answer = Answer { bound: true, ..Answer::of(status) };
            assert_eq!(answer.class(), Class::Bound, "{status}");
        }
        assert_eq!(Answer { bound: true, ..Answer::of(201) }.class(), Class::Success);
    }
}
