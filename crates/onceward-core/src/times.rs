//! Times and lengths of time as the store counts them.

use core::{ops::RangeInclusive, time::Duration};

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

    /// Whether a time that was written then and ends then is over by a clock that is so far `ahead`, with
    /// its last jump alone and with all of them, and would not be over if that were taken off: a store
    /// says so as [`Stored::suspect`](crate::Stored::suspect).
    ///
    /// What was written since the jump is counted by the jumped clock alone, and right.
    ///
    /// ```
    /// use core::time::Duration;
    /// use onceward_core::{Timestamp, Ttl};
    ///
    /// let (end, hour) = (Timestamp::from_unix_micros(0), Duration::from_secs(3600));
    /// let is_suspect = |written, now| Ttl::is_suspect(Some(end), written, now, &(hour..=hour));
    /// let before = end.minus(hour);
    /// assert!(is_suspect(before, end.plus(hour / 2)), "the jump explains it");
    /// assert!(!is_suspect(before, end.plus(hour)), "it is over whatever the clock did");
    /// assert!(!is_suspect(end.minus(hour / 4), end), "it was written after the jump");
    /// ```
    #[must_use]
    pub fn is_suspect(
        ends_at: Option<Timestamp>,
        written_at: Timestamp,
        now: Timestamp,
        ahead: &RangeInclusive<Duration>,
    ) -> bool {
        ends_at.is_some_and(|end| end <= now && end > now.minus(*ahead.end()))
            && is_older_than_the_jump(written_at, now, ahead)
    }
}

/// What was written less than the last jump ago was written behind it. A store that does not know exactly how
/// far its clock jumped believes the shorter distance.
pub(crate) fn is_older_than_the_jump(
    written_at: Timestamp,
    now: Timestamp,
    ahead: &RangeInclusive<Duration>,
) -> bool {
    !ahead.end().is_zero() && written_at <= now.minus(*ahead.start())
}
