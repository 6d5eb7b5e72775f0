//! Adaptive throttling: a client that is mostly refused stops asking, by chance and by degrees.
//!
//! After the Site Reliability Engineering book, chapter 21. Unlike a breaker it never stops
//! everything, so it needs no probes, and it reacts to a server that sheds part of its load. It
//! refuses first tries too, which is why it is a choice.

use core::time::Duration;

use super::{Moment, window::Window};

/// The numbers of a throttle.
///
/// ```
/// use onceward_core::retry::Throttle;
///
/// assert_eq!(Throttle::standard().most, 0.8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// How many requests are sent for each one that is accepted; the K of the book.
    pub ratio: f64,
    /// The window over which both are counted.
    pub window: Duration,
    /// The highest chance of being refused here: some must get through to see a recovery.
    pub most: f64,
}

impl Throttle {
    /// K = 2 over 30 s, refusing at most 80 %.
    #[must_use]
    pub fn standard() -> Self {
        Self { ratio: 2.0, window: Duration::from_secs(30), most: 0.8 }
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if !(self.ratio >= 1.0 && self.ratio.is_finite()) {
            Some("the ratio of a throttle must be at least 1")
        } else if !(0.0..1.0).contains(&self.most) {
            Some("a throttle must let some requests through: its most lies in 0 .. 1")
        } else if self.window.is_zero() {
            Some("the window of a throttle must be longer than nothing")
        } else {
            None
        }
    }
}

/// How many requests were accepted of late.
#[derive(Clone, Debug)]
pub(super) struct ThrottleHistory {
    rules: Throttle,
    window: Window,
}

impl ThrottleHistory {
    pub(super) fn new(rules: Throttle) -> Self {
        Self { rules, window: Window::new(rules.window) }
    }

    /// Counts a request: also those that are refused here, or the chance would never fall.
    pub(super) fn asked(&mut self, now: Moment) {
        self.window.add(1, 0, now);
    }

    pub(super) fn accepted(&mut self, now: Moment) {
        self.window.add(0, 1, now);
    }

    /// The chance with which a request should be refused now, as if its call had not failed so often.
    pub(super) fn chance_without(&mut self, failures: u32, now: Moment) -> f64 {
        let (asked, accepted) = self.window.sums(now);
        let asked = asked.saturating_sub(failures);
        let over = f64::from(asked) - self.rules.ratio * f64::from(accepted);
        (over / (f64::from(asked) + 1.0)).clamp(0.0, self.rules.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_follows_the_formula_and_ends_at_the_most() {
        let now = Duration::from_secs(100);
        let mut throttle = ThrottleHistory::new(Throttle::standard());
        assert_eq!(throttle.chance_without(0, now), 0.0);
        for _ in 0..100 {
            throttle.asked(now);
        }
        assert_eq!(throttle.chance_without(0, now), 0.8);
        for _ in 0..25 {
            throttle.accepted(now);
        }
        assert_eq!(throttle.chance_without(0, now), 50.0 / 101.0);
        for _ in 0..25 {
            throttle.accepted(now);
        }
        assert_eq!(throttle.chance_without(0, now), 0.0);
        assert_eq!(throttle.chance_without(0, now + Duration::from_secs(31)), 0.0);
    }
}
