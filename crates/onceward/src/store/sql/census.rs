//! What metrics and a doctor ask every store for: how much is open, how old, how large it is.

use std::time::Duration;

use onceward_core::{Found, Status, Timestamp};

/// The state of a store at one moment, cheap enough to be asked for every few seconds.
///
/// Stores that can tell have a method `census`.
///
/// ```
/// use onceward::store::Census;
///
/// fn is_worth_a_look(census: &Census) -> bool {
///     census.unknown > 0 || !census.is_complete
/// }
/// assert!(is_worth_a_look(&Census { unknown: 1, is_complete: true, ..Census::default() }));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many operations run.
    pub in_progress: u64,
    /// How many were interrupted and may be run again.
    pub interrupted: u64,
    /// How many failed and may be run again.
    pub failed_retryable: u64,
    /// How many have an unknown outcome, those that cannot be read among them.
    pub unknown: u64,
    /// `false`: more than [`Census::MAX_COUNTED`] records are open, so that each of the numbers above
    /// means "at least".
    pub is_complete: bool,
    /// How long ago the oldest of the counted operations that still have to end was first claimed.
    pub oldest_open: Option<Duration>,
    /// When the record that came last was last written.
    pub last_write: Option<Timestamp>,
    /// How large the file is, or the tables.
    pub file_bytes: u64,
    /// How large the write-ahead log is; 0 where it is not the store's own.
    pub log_bytes: u64,
    /// How much room the file system has left for it; `None`: this system does not tell.
    pub free_bytes: Option<u64>,
}

impl Census {
    /// How many records are counted at most: reading them takes some hundredths of a second.
    pub const MAX_COUNTED: u32 = 10_000;

    /// Counts one open record.
    ///
    /// ```
    /// use onceward::{protocol::{Fence, Found, Unreadable}, store::Census};
    ///
    /// let mut census = Census::default();
    /// let fence = Fence::from_random([1; 16]);
    /// census.count(&Found::Unreadable { fence, why: Unreadable::Damaged });
    /// assert_eq!(census.unknown, 1, "what cannot be read is not absent");
    /// ```
    pub fn count(&mut self, found: &Found) {
        let status = match found {
            Found::Record(stored) => stored.status(),
            Found::Unreadable { .. } => Status::Unknown,
            Found::Nothing => return,
        };
        match status {
            Status::InProgress => self.in_progress += 1,
            Status::Interrupted => self.interrupted += 1,
            Status::FailedRetryable => self.failed_retryable += 1,
            Status::Unknown => self.unknown += 1,
            Status::Succeeded
            | Status::FailedFinal
            | Status::Released
            | Status::Expired
            | Status::ClockSuspect => {}
        }
        if let Found::Record(stored) = found
            && status.is_open()
        {
            self.oldest_open = self.oldest_open.max(Some(stored.age()));
        }
    }
}
