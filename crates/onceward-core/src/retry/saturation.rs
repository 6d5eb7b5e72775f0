//! How overloaded a target is, and what the client gives up first.
//!
//! One number between 0 and 1, the worst of three signs: the chance with which a throttle refuses,
//! the calls in flight against their limit, the emptiness of the retry budget. As it rises, hedges go
//! first, then retries of the lowest class, then those of all but the highest, then first tries of
//! the lowest class; and the calls that still wait, wait longer.
//!
//! First tries do not look at the budget: it is filled by their successes alone, and a class that may
//! not even try when it is empty would never be let in again.

use core::time::Duration;

use super::priority::{Priority, Rank};

/// Above this no hedges.
const HEDGES: f64 = 0.3;
/// Above this no retries of the lowest class.
const LOWEST_RETRIES: f64 = 0.5;
/// Above this retries of the highest class only.
const RETRIES: f64 = 0.7;
/// Above this no first tries of the lowest class.
const LOWEST_FIRST_TRIES: f64 = 0.9;
/// The part below a bound over which a client gives a class up by degrees.
const DEGREES: f64 = 0.2;

pub(super) fn allows_hedge(saturation: f64) -> bool {
    saturation <= HEDGES
}

pub(super) fn allows_retry(saturation: f64, rank: Rank) -> bool {
    match rank.priority {
        Priority::LOWEST => below(saturation, LOWEST_RETRIES, rank),
        Priority::HIGHEST => true,
        _ => below(saturation, RETRIES, rank),
    }
}

pub(super) fn allows_first_try(saturation: f64, rank: Rank) -> bool {
    rank.priority != Priority::LOWEST || below(saturation, LOWEST_FIRST_TRIES, rank)
}

fn below(saturation: f64, bound: f64, rank: Rank) -> bool {
    saturation <= bound - DEGREES * (1.0 - rank.level)
}

/// The wait, up to five times as long.
pub(super) fn widened(wait: Duration, saturation: f64) -> Duration {
    if saturation == 0.0 { wait } else { times(wait, 1.0 + 4.0 * saturation) }
}

/// A product that ends at the longest duration there is.
pub(super) fn times(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}
