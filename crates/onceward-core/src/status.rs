//! The words for what a record means now.

use core::fmt;

/// What a [`Stored`](crate::Stored) record means at the time it was read.
///
/// ```
/// use onceward_core::Status;
///
/// assert!(Status::Unknown.is_open(), "an operator must look at it");
/// assert_eq!(Status::Interrupted.to_string(), "interrupted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// An execution holds the claim and its lease.
    InProgress,
    /// Ended well; its outcome is replayed.
    Succeeded,
    /// Ended badly for good; its outcome is replayed.
    FailedFinal,
    /// Ended without effect; the next request runs it again.
    FailedRetryable,
    /// It cannot be proven whether the effect happened.
    Unknown,
    /// The owner vanished and another run is safe; the next request takes over.
    Interrupted,
    /// Given back without effect; binds nothing.
    Released,
    /// Remembered longer than promised; binds nothing.
    Expired,
    /// Remembered longer than promised only if a clock is right that jumped; nothing is run.
    ClockSuspect,
}

impl Status {
    /// All of them, in the order of this enumeration.
    pub const ALL: [Self; 9] = [
        Self::InProgress,
        Self::Succeeded,
        Self::FailedFinal,
        Self::FailedRetryable,
        Self::Unknown,
        Self::Interrupted,
        Self::Released,
        Self::Expired,
        Self::ClockSuspect,
    ];

    /// Whether the operation still has to end: an operator may not delete it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::InProgress | Self::Interrupted | Self::Unknown)
    }

    /// The word for it in status documents, lists and metrics.
    ///
    /// ```
    /// # use onceward_core::Status;
    /// assert_eq!(Status::FailedFinal.as_str(), "failed_final");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Succeeded => "succeeded",
            Self::FailedFinal => "failed_final",
            Self::FailedRetryable => "failed_retryable",
            Self::Unknown => "unknown",
            Self::Interrupted => "interrupted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::ClockSuspect => "clock_suspect",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
