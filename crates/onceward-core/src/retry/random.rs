//! Chance as an argument: one number of the caller's, and as many as a decision needs made from it.

use core::time::Duration;

use super::saturation::times;

/// `SplitMix64`: from one fresh number, several that have nothing to do with each other.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `0 .. 1`.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `0 ..= most`.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        // The high half of the product: as uniform as 64 bits can be, and no division.
        let drawn = (u128::from(self.next()) * (u128::from(nanos) + 1)) >> 64;
        Duration::from_nanos(drawn as u64)
    }

    /// The duration, less or more by at most this share of it.
    pub(super) fn around(&mut self, middle: Duration, share: f64) -> Duration {
        times(middle, 1.0 - share + 2.0 * share * self.unit())
    }
}
