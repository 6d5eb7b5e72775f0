//! The bulkhead: how many calls one target may have in flight.
//!
//! A target that answers slowly must not take all connections, threads and memory of its caller. The
//! limit is fixed by default. By choice it adapts: it grows by one for a full round of successes and
//! shrinks by a tenth when answers are lost or their 90th percentile doubles. It does not grow while
//! it is not half used, or a quiet night would raise it without end.

use core::time::Duration;

use super::{Class, Moment, latency::Latency};

/// How many calls may be in flight.
///
/// ```
/// use onceward_core::retry::Limit;
///
/// assert_eq!(Limit::standard(), Limit::Fixed(1024));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// So many.
    Fixed(u32),
    /// What the calls show that the target can do, between these bounds.
    Adaptive {
        /// Never fewer.
        least: u32,
        /// Never more; also where it starts from, halved.
        most: u32,
    },
}

impl Limit {
    /// 1,024.
    #[must_use]
    pub fn standard() -> Self {
        Self::Fixed(1_024)
    }

    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            Self::Fixed(0) | Self::Adaptive { least: 0, .. } => {
                Some("at least one call must be allowed in flight")
            }
            Self::Adaptive { least, most } if least > most => {
                Some("the least of a limit must not exceed its most")
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) in_flight: u32,
    limit: f64,
    adaptive: Option<Adaptive>,
}

#[derive(Clone, Debug)]
struct Adaptive {
    least: f64,
    most: f64,
    latency: Latency,
    /// The lowest 90th percentile of the last answers: what the target can do.
    best: Option<Duration>,
    shrunk: Moment,
}

/// The limit shrinks at most once in this time: losses that come together have one cause.
const SHRINK_PAUSE: Duration = Duration::from_secs(1);

impl InFlight {
    pub(super) fn new(limit: Limit) -> Self {
        let (limit, adaptive) = match limit {
            Limit::Fixed(limit) => (f64::from(limit), None),
            Limit::Adaptive { least, most } => {
                let (least, most) = (f64::from(least), f64::from(most));
                let latency = Latency::new(0.9);
                let adaptive = Adaptive { least, most, latency, best: None, shrunk: Moment::ZERO };
                ((most / 2.0).max(least), Some(adaptive))
            }
        };
        Self { in_flight: 0, limit, adaptive }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit as u32
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.limit()
    }

    pub(super) fn use_of(&self) -> f64 {
        (f64::from(self.in_flight) / self.limit).min(1.0)
    }

    /// An attempt ended; a time-out and a refusal for overload are losses.
    pub(super) fn ended(&mut self, took: Duration, class: Class, now: Moment) {
        let busy = f64::from(self.in_flight) > self.limit / 2.0;
        let Some(adaptive) = &mut self.adaptive else { return };
        let lost = matches!(class, Class::Ambiguous | Class::Overload);
        if class.is_settled() {
            // A refusal is quick and says nothing of how quick an answer can be.
            adaptive.latency.add(took);
        }
        let late = adaptive.is_late();
        if lost || late {
            if now.saturating_sub(adaptive.shrunk) >= SHRINK_PAUSE {
                adaptive.shrunk = now;
                self.limit = (self.limit * 0.9).max(adaptive.least);
            }
        } else if busy {
            self.limit = (self.limit + 1.0 / self.limit).min(adaptive.most);
        }
    }
}

impl Adaptive {
    fn is_late(&mut self) -> bool {
        let Some(now) = self.latency.quantile(100) else { return false };
        // It is forgotten slowly, or one quick night would hold against every day.
        let best = self.best.map_or(now, |best| now.min(best + best / 1_000));
        self.best = Some(best);
        now > best.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(5);

    fn second(second: u64) -> Moment {
        Duration::from_secs(second)
    }

    #[test]
    fn it_shrinks_on_losses_grows_when_used_and_keeps_to_its_bounds() {
        let mut flights = InFlight::new(Limit::Adaptive { least: 10, most: 100 });
        assert_eq!(flights.limit(), 50);
        for _ in 0..10_000 {
            flights.ended(FAST, Class::Success, second(1));
        }
        assert_eq!(flights.limit(), 50, "nothing is in flight: no growth");
        flights.in_flight = 40;
        for _ in 0..10_000 {
            flights.ended(FAST, Class::Success, second(1));
        }
        assert!(flights.limit() > 50 && flights.limit() <= 100, "{}", flights.limit());
        let before = flights.limit();
        for _ in 0..100 {
            flights.ended(FAST, Class::Overload, second(10));
        }
        assert_eq!(flights.limit(), (f64::from(before) * 0.9) as u32, "once a second");
        for at in 11..100 {
            flights.ended(FAST, Class::Overload, second(at));
        }
        assert_eq!(flights.limit(), 10);
    }

    #[test]
    fn answers_that_take_twice_as_long_shrink_it() {
        let mut flights = InFlight::new(Limit::Adaptive { least: 10, most: 100 });
        flights.in_flight = 40;
        for _ in 0..1_000 {
            flights.ended(FAST, Class::Success, second(1));
        }
        let before = flights.limit();
        for at in 0..1_100 {
            flights.ended(FAST * 4, Class::Success, second(2) + Duration::from_millis(at));
        }
        assert!(flights.limit() < before);
    }
}
