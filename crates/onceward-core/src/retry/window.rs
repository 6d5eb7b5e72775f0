//! Two counts over the last ten parts of a window of time.
//!
//! Shares are asked for on every call, so the sums are kept and not added up: a part that has become
//! old is taken out by the next look. Time that jumps back (it should not: the clock is monotonic)
//! counts into the newest part.

use core::time::Duration;

use super::Moment;

const PARTS: u64 = 10;

/// How many happened, and how many of them were marked, within a window that ends now.
#[derive(Clone, Debug)]
pub(super) struct Window {
    part_nanos: u64,
    newest: u64,
    parts: [(u32, u32); PARTS as usize],
    sums: (u32, u32),
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        let part_nanos = (nanos(length) / PARTS).max(1);
        Self { part_nanos, newest: 0, parts: [(0, 0); PARTS as usize], sums: (0, 0) }
    }

    pub(super) fn add(&mut self, all: u32, marked: u32, now: Moment) {
        self.forget_the_old(now);
        let part = &mut self.parts[(self.newest % PARTS) as usize];
        for (count, more) in [
            (&mut part.0, all),
            (&mut part.1, marked),
            (&mut self.sums.0, all),
            (&mut self.sums.1, marked),
        ] {
            *count = count.saturating_add(more);
        }
    }

    /// How many, and how many of them marked.
    pub(super) fn sums(&mut self, now: Moment) -> (u32, u32) {
        self.forget_the_old(now);
        self.sums
    }

    pub(super) fn clear(&mut self) {
        self.parts = [(0, 0); PARTS as usize];
        self.sums = (0, 0);
    }

    fn forget_the_old(&mut self, now: Moment) {
        let current = nanos(now) / self.part_nanos;
        if current <= self.newest {
            return;
        }
        if current - self.newest >= PARTS {
            self.clear();
        } else {
            for old in self.newest + 1..=current {
                let part = core::mem::take(&mut self.parts[(old % PARTS) as usize]);
                self.sums.0 = self.sums.0.saturating_sub(part.0);
                self.sums.1 = self.sums.1.saturating_sub(part.1);
            }
        }
        self.newest = current;
    }
}

/// Enough for five hundred years, and much faster to divide than 128 bits.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64) -> Moment {
        Duration::from_secs(second)
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(second(10));
        window.add(5, 2, second(100));
        window.add(1, 1, second(105));
        assert_eq!(window.sums(second(109)), (6, 3));
        assert_eq!(window.sums(second(110)), (1, 1));
        assert_eq!(window.sums(second(115)), (0, 0));
        assert_eq!(window.sums(second(1_000_000)), (0, 0));
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing() {
        let mut window = Window::new(second(10));
        window.add(1, 0, second(50));
        window.add(1, 1, second(20));
        assert_eq!(window.sums(second(51)), (2, 1));
    }
}
