//! Until when an execution may send something that cannot be taken back.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The moment after which nothing of an execution may be sent.
///
/// The layer makes it once, before it asks the store for the claim. The store counts from a later moment,
/// so that an operator or a resolver who frees the key by the store's clock comes after it. Two clocks
/// count, and the one that is further on decides. The monotonic one cannot be set, but stands still while the machine
/// sleeps. The wall clock goes on then, and it is what an embedded store goes by.
///
/// ```
/// use std::time::Duration;
/// use onceward::server::Deadline;
///
/// let deadline = Deadline::within(Duration::from_secs(60));
/// assert!(!deadline.is_over() && deadline.left() <= Duration::from_secs(60));
/// assert!(Deadline::within(Duration::ZERO).is_over());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    monotonic: Instant,
    wall: SystemTime,
}

impl Deadline {
    /// So long from now on.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self { monotonic: Instant::now() + time, wall: SystemTime::now() + time }
    }

    /// How long it still is; zero when it is over.
    #[must_use]
    pub fn left(&self) -> Duration {
        let monotonic = self.monotonic.saturating_duration_since(Instant::now());
        let wall = self.wall.duration_since(SystemTime::now()).unwrap_or_default();
        monotonic.min(wall)
    }

    /// Whether nothing may be sent any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// The deadline that is over when either of the two is.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        Self { monotonic: self.monotonic.min(other.monotonic), wall: self.wall.min(other.wall) }
    }

    /// When a timer that waits for it should fire. Ask [`is_over`](Self::is_over) too: timers do not
    /// count the sleep of the machine.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_either_clock_says_so() {
        let deadline = Deadline::within(MINUTE);
        assert!(!deadline.is_over());
        let asleep = Deadline { wall: deadline.wall - MINUTE, ..deadline };
        assert!(asleep.is_over(), "the machine slept, and its monotonic clock with it");
        tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
        assert!(!deadline.is_over());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(deadline.is_over() && deadline.left().is_zero());
        let set_back = Deadline { wall: deadline.wall + MINUTE * 60, ..deadline };
        assert!(set_back.is_over(), "an operator set the wall clock back");
    }

    #[test]
    fn the_sooner_one_is_over_with_either() {
        let (long, over) = (Deadline::within(MINUTE), Deadline::within(Duration::ZERO));
        assert!(long.sooner(over).is_over() && over.sooner(long).is_over());
        assert!(!long.sooner(long).is_over());
        let asleep = Deadline { wall: SystemTime::now(), ..long };
        assert!(long.sooner(asleep).is_over());
    }
}
