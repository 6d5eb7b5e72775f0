//! What duplicates of a running operation get.

use std::time::Duration;

/// What a duplicate gets while its operation is running: [`InFlight::Wait`] for 5 s if not said.
///
/// A request may ask for another with `Prefer: wait=5` or `Prefer: respond-async`.
///
/// ```
/// use std::time::Duration;
/// use onceward::server::InFlight;
///
/// // A double-tap gets the answer of the first tap, if it comes within two seconds.
/// let in_flight = InFlight::Wait(Duration::from_secs(2));
/// # let _ = in_flight;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// 409 `in-progress` at once.
    Conflict,
    /// The answer as soon as there is one, or 409 after so long: 30 s at most.
    Wait(Duration),
    /// 202 with the status URL; the first request gets its answer.
    Accepted,
    /// 202 with the status URL, also for the first request, which then runs by itself.
    Async,
}
