//! What a jump of the store's clock may explain.

use core::{ops::RangeInclusive, time::Duration};

use crate::{State, Stored, Timestamp, Ttl};

impl Stored {
    /// What a store reports as [`suspect`](Self::suspect) while its clock may be `ahead` of real time.
    ///
    /// For an ended record whose time is over: whether only the jump makes it so, see [`Ttl::is_suspect`]. For
    /// any other: whether the clock has jumped since the store wrote the record, so that the store cannot tell how
    /// long ago that was.
    ///
    /// ```
    /// use core::time::Duration;
    /// use onceward_core::{State, Stored, Timestamp};
    ///
    /// let (written, hour) = (Timestamp::from_unix_micros(0), Duration::from_secs(3600));
    /// let is_suspect = |ahead| {
    ///     Stored::is_suspect(&State::Unknown, None, written, written.plus(hour), &ahead)
    /// };
    /// assert!(is_suspect(hour..=hour) && !is_suspect(Duration::ZERO..=Duration::ZERO));
    /// ```
    #[must_use]
    pub fn is_suspect(
        state: &State,
        ends_at: Option<Timestamp>,
        written_at: Timestamp,
        now: Timestamp,
        ahead: &RangeInclusive<Duration>,
    ) -> bool {
        let is_over = ends_at.is_some_and(|end| end <= now);
        match state {
            State::InProgress => is_older_than_the_jump(written_at, now, ahead),
            _ if is_over => Ttl::is_suspect(ends_at, written_at, now, ahead),
            _ => is_older_than_the_jump(written_at, now, ahead),
        }
    }
}

impl Ttl {
    /// Whether a time is over only because the store's clock jumped: without the jump it would still run.
    ///
    /// `ahead` is how far the clock may be ahead of real time: by its last jump alone, and by all its jumps
    /// together. What the store wrote after the jump it counts by the jumped clock alone, and that is right.
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

/// What the store wrote less than the length of the last jump ago, it wrote after that jump. A store that does not
/// know exactly how far its clock jumped believes the shorter distance.
fn is_older_than_the_jump(
    written_at: Timestamp,
    now: Timestamp,
    ahead: &RangeInclusive<Duration>,
) -> bool {
    !ahead.end().is_zero() && written_at <= now.minus(*ahead.start())
}
