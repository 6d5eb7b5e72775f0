//! The store's clock: virtual time, plus whatever somebody set it by.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use onceward::{Timestamp, clock::Clock};
use tokio::time::Instant;

const START_MICROS: i64 = 1_700_000_000_000_000;

/// Moves with the virtual time of the runtime in which it was made.
pub(crate) struct SimClock {
    start: Instant,
    jumped_micros: AtomicI64,
    reads: AtomicI64,
}

impl SimClock {
    pub(crate) fn start() -> Self {
        let (jumped_micros, reads) = (AtomicI64::new(0), AtomicI64::new(0));
        Self { start: Instant::now(), jumped_micros, reads }
    }

    /// Sets the clock forwards or backwards without time passing.
    pub(crate) fn jump_millis(&self, millis: i64) {
        self.jumped_micros.fetch_add(millis * 1000, Ordering::Relaxed);
    }

    /// How far it was set forwards (or backwards) in total.
    pub(crate) fn jumped_millis(&self) -> i64 {
        self.jumped_micros.load(Ordering::Relaxed) / 1000
    }

    /// Virtual time since the history began, whatever the clock was set to.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Clock for SimClock {
    /// Virtual time stands still while tasks run; a microsecond for each reading tells times apart.
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).expect("a short history");
        let jumped = self.jumped_micros.load(Ordering::Relaxed);
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        Timestamp::from_unix_micros(START_MICROS + elapsed + jumped + reads)
    }

    fn steady(&self) -> Duration {
        self.elapsed()
    }
}
