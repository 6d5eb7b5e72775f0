//! How long to wait before the next attempt.
//!
//! Clients that failed together come back together unless chance drives them apart, so the default
//! is *full* jitter: anything between nothing and the exponential bound. The cap is applied before
//! the jitter; applied after it, every late attempt would wait exactly the cap, and the crowd would
//! march in step again.

use alloc::sync::Arc;
use core::{ops::RangeInclusive, time::Duration};

use super::random::Random;

/// A rule for the wait before each attempt after the first.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::Backoff;
///
/// let backoff = Backoff::Full { base: Duration::from_millis(50), cap: Duration::from_secs(20) };
/// let wait = backoff.wait(3, Duration::ZERO, 0x1234_5678_9abc_def0);
/// assert!(wait <= Duration::from_millis(200), "the third wait is at most 50 ms × 2²");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// Uniform in `0 ..= min(base · 2ⁿ, cap)`. The fewest calls under contention.
    Full {
        /// The bound of the first wait.
        base: Duration,
        /// The bound that is never exceeded.
        cap: Duration,
    },
    /// Half of the bound for certain, the other half by chance.
    Equal {
        /// The bound of the first wait.
        base: Duration,
        /// The bound that is never exceeded.
        cap: Duration,
    },
    /// Uniform in `base ..= min(3 · the wait before, cap)`.
    Decorrelated {
        /// The shortest wait.
        base: Duration,
        /// The longest wait.
        cap: Duration,
    },
    /// `min(base · 2ⁿ + chance, cap)`, where chance is at most `spread`.
    Additive {
        /// The first wait.
        base: Duration,
        /// The longest wait.
        cap: Duration,
        /// What chance adds at most.
        spread: Duration,
    },
    /// The first wait from the first range, and so on; the last range repeats.
    Ranges(Arc<[RangeInclusive<Duration>]>),
    /// Always the same.
    Fixed(Duration),
    /// At once.
    None,
}

impl Backoff {
    /// The usual three ranges: 100–200, 300–600 and 700–1,400 ms.
    #[must_use]
    pub fn ranges() -> Self {
        let range = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
        Self::Ranges(Arc::from([range(100, 200), range(300, 600), range(700, 1_400)]))
    }

    /// The wait before attempt `count + 1`, when `count` attempts have failed and the last wait was `before`.
    #[must_use]
    pub fn wait(&self, count: u32, before: Duration, random: u64) -> Duration {
        let mut random = Random::new(random);
        match self {
            Self::Full { base, cap } => random.up_to(bound(*base, *cap, count)),
            Self::Equal { base, cap } => {
                let half = bound(*base, *cap, count) / 2;
                half + random.up_to(half)
            }
            Self::Decorrelated { base, cap } => {
                let most = before.max(*base).saturating_mul(3).min(*cap);
                *base + random.up_to(most.saturating_sub(*base))
            }
            Self::Additive { base, cap, spread } => {
                doubled(*base, count).saturating_add(random.up_to(*spread)).min(*cap)
            }
            Self::Ranges(ranges) => {
                let last = ranges.len().saturating_sub(1);
                let Some(range) = ranges.get(last.min(count.saturating_sub(1) as usize)) else {
                    return Duration::ZERO;
                };
                *range.start() + random.up_to(range.end().saturating_sub(*range.start()))
            }
            Self::Fixed(wait) => *wait,
            Self::None => Duration::ZERO,
        }
    }

    /// The same rule with another base, where it has one: an overloaded server gets more time.
    #[must_use]
    pub fn starting_at(&self, start: Duration) -> Self {
        let mut other = self.clone();
        if let Self::Full { base, cap }
        | Self::Equal { base, cap }
        | Self::Decorrelated { base, cap }
        | Self::Additive { base, cap, .. } = &mut other
        {
            *base = start.min(*cap).max(*base);
        }
        other
    }

    /// The shortest time that the first wait can take.
    #[must_use]
    pub(super) fn least(&self) -> Duration {
        match self {
            Self::Full { .. } | Self::None => Duration::ZERO,
            Self::Equal { base, cap } => *base.min(cap) / 2,
            Self::Decorrelated { base, .. } => *base,
            Self::Additive { base, cap, .. } => *base.min(cap),
            Self::Ranges(ranges) => ranges.first().map_or(Duration::ZERO, |range| *range.start()),
            Self::Fixed(wait) => *wait,
        }
    }

    /// What is wrong with it, if anything.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Full { base, cap }
            | Self::Equal { base, cap }
            | Self::Decorrelated { base, cap }
            | Self::Additive { base, cap, .. } => {
                if base.is_zero() {
                    return Some("the base of a backoff must be longer than nothing");
                }
                (base > cap).then_some("the base of a backoff must not exceed its cap")
            }
            Self::Ranges(ranges) if ranges.is_empty() => Some("a list of waits must not be empty"),
            Self::Ranges(ranges) => ranges
                .iter()
                .any(|range| range.start() > range.end())
                .then_some("a range of waits must not end before it starts"),
            Self::Fixed(_) | Self::None => None,
        }
    }
}

fn bound(base: Duration, cap: Duration, count: u32) -> Duration {
    doubled(base, count).min(cap)
}

/// `base · 2^(count − 1)`, without overflow.
fn doubled(base: Duration, count: u32) -> Duration {
    base.saturating_mul(1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const CAP: Duration = Duration::from_secs(20);

    #[test]
    fn no_number_of_attempts_makes_a_wait_longer_than_its_cap() {
        for backoff in [
            Backoff::Full { base: BASE, cap: CAP },
            Backoff::Equal { base: BASE, cap: CAP },
            Backoff::Decorrelated { base: BASE, cap: CAP },
            Backoff::Additive { base: BASE, cap: CAP, spread: BASE },
        ] {
            for count in [1, 2, 9, 31, 32, 33, 64, u32::MAX] {
                for random in [0, 1, u64::MAX / 2, u64::MAX] {
                    let wait = backoff.wait(count, CAP, random);
                    assert!(wait <= CAP, "{backoff:?} {count}: {wait:?}");
                }
            }
        }
    }

    #[test]
    fn each_rule_keeps_to_its_least_wait() {
        let rules = [
            Backoff::Equal { base: BASE, cap: CAP },
            Backoff::Decorrelated { base: BASE, cap: CAP },
            Backoff::Additive { base: BASE, cap: CAP, spread: BASE },
            Backoff::ranges(),
            Backoff::Fixed(BASE),
        ];
        for backoff in rules {
            for random in 0..200 {
                assert!(backoff.wait(1, Duration::ZERO, random) >= backoff.least(), "{backoff:?}");
            }
        }
    }

    #[test]
    fn a_list_is_followed_and_its_last_range_repeats() {
        let backoff = Backoff::ranges();
        for (count, from, to) in [(1, 100, 200), (2, 300, 600), (3, 700, 1_400), (9, 700, 1_400)] {
            for random in 0..100 {
                let wait = backoff.wait(count, Duration::ZERO, random);
                let range = Duration::from_millis(from)..=Duration::from_millis(to);
                assert!(range.contains(&wait), "{count}: {wait:?}");
            }
        }
    }

    #[test]
    fn chance_reaches_every_part_of_the_range_also_at_the_cap() {
        let backoff = Backoff::Full { base: BASE, cap: CAP };
        let mut tenths = [0; 10];
        for random in 0..1_000_u64 {
            let wait = backoff.wait(40, CAP, random.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let tenth = (wait.as_nanos() * 10 / CAP.as_nanos()).min(9) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (50..150).contains(count)), "{tenths:?}");
    }
}
