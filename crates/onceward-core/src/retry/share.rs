//! The share of retries in all traffic over a rolling window.
//!
//! A second, plain bound beside the budget, and the one that a server can keep for all its clients
//! together: of what arrives, at most so many may be second tries. Below a little traffic nothing is
//! refused, because of five requests one is already twenty per cent.

use core::time::Duration;

use super::{Moment, window::Window};

/// At most this share of retries.
///
/// ```
/// use onceward_core::retry::Share;
///
/// assert_eq!(Share::of(0.2).least, 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Retries ÷ requests, between 0 and 1.
    pub share: f64,
    /// The window over which both are counted.
    pub window: Duration,
    /// With fewer requests than this in the window nothing is refused.
    pub least: u32,
}

impl Share {
    /// This share over 10 s, once there are 50 requests in them.
    #[must_use]
    pub fn of(share: f64) -> Self {
        Self { share, window: Duration::from_secs(10), least: 50 }
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if !(0.0..=1.0).contains(&self.share) {
            Some("a share of retries lies between 0 and 1")
        } else if self.window.is_zero() {
            Some("the window of a share must be longer than nothing")
        } else {
            None
        }
    }
}

/// How many of the last requests were retries.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Share, ShareCounter};
///
/// let mut traffic = ShareCounter::new(Share::of(0.2));
/// for _ in 0..100 {
///     traffic.first_try(Duration::ZERO);
/// }
/// let admitted = (0..100).filter(|_| traffic.admits_retry(Duration::ZERO)).count();
/// assert_eq!(admitted, 25, "25 of 125 are a fifth");
/// ```
#[derive(Clone, Debug)]
pub struct ShareCounter {
    rules: Share,
    window: Window,
}

impl ShareCounter {
    /// Nothing has been counted yet.
    #[must_use]
    pub fn new(rules: Share) -> Self {
        Self { rules, window: Window::new(rules.window) }
    }

    /// Counts a request that is no retry.
    pub fn first_try(&mut self, now: Moment) {
        self.window.add(1, 0, now);
    }

    /// Counts a retry if there is room for it; a refused one is not counted.
    pub fn admits_retry(&mut self, now: Moment) -> bool {
        let room = self.has_room(now);
        if room {
            self.retry(now);
        }
        room
    }

    /// The share of retries now.
    #[must_use]
    pub fn share(&mut self, now: Moment) -> f64 {
        let (all, retries) = self.window.sums(now);
        if all == 0 { 0.0 } else { f64::from(retries) / f64::from(all) }
    }

    pub(super) fn retry(&mut self, now: Moment) {
        self.window.add(1, 1, now);
    }

    pub(super) fn has_room(&mut self, now: Moment) -> bool {
        let (all, retries) = self.window.sums(now);
        all < self.rules.least || f64::from(retries + 1) <= self.rules.share * f64::from(all + 1)
    }
}
