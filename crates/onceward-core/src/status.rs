//! The words for what a record means now.

use core::fmt;

use crate::words::words;

words! {
    /// What a [`Stored`](crate::Stored) record means at the time it was read.
    ///
    /// ```
    /// use onceward_core::Status;
    ///
    /// assert!(Status::Unknown.is_open(), "an operator must look at it");
    /// assert_eq!(Status::Interrupted.to_string(), "interrupted");
    /// ```
    pub enum Status {
        /// An execution holds the claim and its lease.
        InProgress = "in_progress",
        /// Ended well; its outcome is replayed.
        Succeeded = "succeeded",
        /// Ended badly for good; its outcome is replayed.
        FailedFinal = "failed_final",
        /// Ended without effect; the next request runs it again.
        FailedRetryable = "failed_retryable",
        /// It cannot be proven whether the effect happened.
        Unknown = "unknown",
        /// The owner vanished and another run is safe; the next request takes over.
        Interrupted = "interrupted",
        /// Given back without effect; binds nothing.
        Released = "released",
        /// Remembered longer than promised; binds nothing.
        Expired = "expired",
        /// Remembered longer than promised only if a clock is right that jumped; nothing is run.
        ClockSuspect = "clock_suspect",
    }
}

impl Status {
    /// Whether the operation still has to end: an operator may not delete it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::InProgress | Self::Interrupted | Self::Unknown)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
