//! What is not worth running: rules 27 and 28 of the contract.
//!
//! Work whose client has gone keeps others waiting, and keeps an overload alive. Of all requests that would
//! run, only so many may be retries. Replays, waits and first attempts are never shed.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::request::Parts;
use onceward_core::retry::{Share, ShareCounter};
use tokio::time::Instant;

use crate::{
    http::{AttemptHeaders, Incoming},
    server::{Code, Problem},
    telemetry::RejectReason,
};

/// When clients shall come back, and over which time they are spread.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_SPREAD: Duration = Duration::from_secs(2);

pub(crate) struct Traffic {
    since: Instant,
    counted: Mutex<ShareCounter>,
}

impl Traffic {
    pub(crate) fn new(share: f64) -> Self {
        Self { since: Instant::now(), counted: Mutex::new(ShareCounter::new(Share::of(share))) }
    }

    /// Counts a request that would run.
    ///
    /// # Errors
    ///
    /// Its client does not wait for it any more, or it is a retry too many.
    pub(crate) fn admit(&self, incoming: Option<Incoming>, is_repeat: bool) -> Result<(), Problem> {
        refuse_expired(incoming)?;
        let is_retry = is_repeat || incoming.is_some_and(|incoming| incoming.attempt > 1);
        let now = self.since.elapsed();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_retry {
            counted.first_try(now);
            return Ok(());
        }
        match counted.admits_retry(now) {
            true => Ok(()),
            false => Err(too_many_retries()),
        }
    }
}

/// Remembers what a client says about its attempt: its time counts from now. A layer outside of this one
/// may have done so already.
pub(crate) fn note(parts: &mut Parts) {
    let headers = [AttemptHeaders::DEADLINE, AttemptHeaders::ATTEMPT, AttemptHeaders::PRIORITY];
    let says_it = headers.iter().any(|name| parts.headers.contains_key(name));
    if says_it && incoming(parts).is_none() {
        let incoming = Incoming::from(&parts.headers);
        parts.extensions.insert(incoming);
    }
}

/// Refuses a request whose client does not wait for it any more.
pub(crate) fn refuse_expired(incoming: Option<Incoming>) -> Result<(), Problem> {
    match incoming.is_some_and(|incoming| incoming.is_over()) {
        false => Ok(()),
        true => {
            let text =
                "`Onceward-Deadline` was over before anything was run; try again with more time";
            Err(Problem::new(Code::DeadlineExceeded, text).rejected(RejectReason::Deadline))
        }
    }
}

/// What its client said.
pub(crate) fn incoming(parts: &Parts) -> Option<Incoming> {
    parts.extensions.get().copied()
}

fn too_many_retries() -> Problem {
    let text = "too many of the requests here are retries, and this one was not run; wait for \
                `Retry-After`, then send it again";
    let pause = RETRY_AFTER + RETRY_AFTER_SPREAD.mul_f64(fastrand::f64());
    Problem::new(Code::RetryBudgetExhausted, text).retry_after(pause)
}
