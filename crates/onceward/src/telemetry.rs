//! The names of everything that is logged or counted. Keys appear as digests only.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Something that a person must look at: an error event with a name, and a count since start.
///
/// ```
/// assert_eq!(onceward::telemetry::RECORD_UNREADABLE.event(), "record_unreadable");
/// ```
#[derive(Debug)]
pub struct Alarm {
    event: &'static str,
    count: AtomicU64,
}

impl Alarm {
    const fn new(event: &'static str) -> Self {
        Self { event, count: AtomicU64::new(0) }
    }

    /// The name of the event in logs.
    #[must_use]
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// How often it was raised since the process started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self, detail: impl fmt::Display) {
        self.count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(event = self.event, "{detail}");
    }
}

/// A record does not match its checksum, or cannot be opened: its outcome counts as unknown.
pub static RECORD_UNREADABLE: Alarm = Alarm::new("record_unreadable");
/// The store itself is damaged.
pub static STORE_CORRUPT: Alarm = Alarm::new("store_corrupt");
/// New claims are refused because space runs out.
pub static STORE_FULL: Alarm = Alarm::new("store_full");
/// Wall and monotonic time disagree: nothing is swept.
pub static CLOCK_JUMPED: Alarm = Alarm::new("clock_jumped");
/// A settlement was given up at shutdown: its operation is in progress until its lease is over.
pub static SETTLEMENT_ABANDONED: Alarm = Alarm::new("settlement_abandoned");
/// A request ran without a record, because the store was down and its route allows that.
pub static UNPROTECTED: Alarm = Alarm::new("unprotected");
