//! Until when this process may send what is in a lane.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use onceward_core::retry::Moment;

/// The lease of one lane, from its take-over to its loss.
pub(super) struct LaneLease {
    until_micros: AtomicU64,
}

impl LaneLease {
    pub(super) fn until(until: Moment) -> Self {
        Self { until_micros: AtomicU64::new(micros(until)) }
    }

    /// Extends it, unless it is over already: another relay may have held the lane meanwhile.
    pub(super) fn extend(&self, until: Moment, now: Moment) -> bool {
        let is_valid = self.is_valid(now);
        if is_valid {
            self.until_micros.fetch_max(micros(until), Ordering::Relaxed);
        }
        is_valid
    }

    /// The lane is not ours any more.
    pub(super) fn lose(&self) {
        self.until_micros.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_valid(&self, now: Moment) -> bool {
        micros(now) < self.until_micros.load(Ordering::Relaxed)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
