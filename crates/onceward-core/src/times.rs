//! Times and lengths of time as the store counts them.

use core::time::Duration;

/// A time of the store's clock, in microseconds since 1970.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::Timestamp;
///
/// let start = Timestamp::from_unix_micros(1_000_000);
/// assert_eq!(start.plus(Duration::from_secs(2)).since(start), Duration::from_secs(2));
/// assert_eq!(start.since(start.plus(Duration::from_secs(2))), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A time by its distance from 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The distance from 1970-01-01T00:00:00Z in microseconds.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// This time plus a duration, at most the last time there is.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This time minus a duration, at least the first time there is.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time passed since an earlier one; zero if the clock went backwards.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// When the first claim of an operation was made.
///
/// ```
/// use onceward_core::{Started, Timestamp};
///
/// // Said by a first claim; a take-over carries the time that it read.
/// assert_ne!(Started::Now, Started::At(Timestamp::from_unix_micros(0)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Started {
    /// With this very change: the store stamps its own time. Never read back.
    Now,
    /// At this time of the store's clock.
    At(Timestamp),
}

/// A length of time that the store counts from the moment of writing.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::Ttl;
///
/// assert!(Ttl::For(Duration::ZERO).is_over());
/// assert!(!Ttl::Never.is_over());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// So long; read back as what is left, zero when it is over.
    For(Duration),
    /// Does not end by itself.
    Never,
}

impl Ttl {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_over(self) -> bool {
        self == Self::For(Duration::ZERO)
    }

    /// When it ends if it starts at this time: what a store writes.
    #[must_use]
    pub fn ends_at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::For(duration) => Some(now.plus(duration)),
            Self::Never => None,
        }
    }

    /// What is left of it at this time: what a store reads back.
    #[must_use]
    pub fn left(ends_at: Option<Timestamp>, now: Timestamp) -> Self {
        ends_at.map_or(Self::Never, |end| Self::For(end.since(now)))
    }
}
