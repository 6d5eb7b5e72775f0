//! Why a request is not sent to the upstream, in words for its client.

use std::time::Duration;

use onceward::{
    server::{Code, Problem},
    telemetry::RejectReason,
};

const RETRY_AFTER_SPREAD: Duration = Duration::from_secs(2);

/// When clients shall come back, and over which time they are spread.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a request is not sent on, and when to come back: not all at the same moment.
pub(crate) fn refusal(reason: RejectReason, hint: Option<Duration>) -> Problem {
    let (code, text) = match reason {
        RejectReason::Deadline => {
            let text =
                "the time that you gave was over before anything was run; try again with more";
            return Problem::new(Code::DeadlineExceeded, text).rejected(reason);
        }
        RejectReason::RetryShare => (
            Code::RetryBudgetExhausted,
            "too many of the requests here are retries, and this one was not run; try again later",
        ),
        RejectReason::Breaker => (
            Code::Overloaded,
            "the service behind this gateway keeps failing and is left alone for a while; nothing was \
             run, try again later",
        ),
        RejectReason::Share => (
            Code::Overloaded,
            "too many requests of this kind or from your address are here, and this was not run; try \
             again later",
        ),
        RejectReason::Limit | RejectReason::Shed | RejectReason::Other => (
            Code::Overloaded,
            "this gateway has too much to do, and this was not run; try again later",
        ),
    };
    let pause =
        hint.unwrap_or_default().max(RETRY_AFTER) + RETRY_AFTER_SPREAD.mul_f64(fastrand::f64());
    Problem::new(code, text).retry_after(pause).rejected(reason)
}
