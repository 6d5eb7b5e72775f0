//! Hedges: a second request to overtake a first one that is late.
//!
//! After "The Tail at Scale" (2013). A hedge is sent when the first answer is later than almost all
//! others are, so only few are sent, and whichever answer is acceptable first is taken. What makes
//! hedging dangerous is a day on which *every* answer is late: then a hedge for each doubles the load
//! of a server that is slow already. So hedges have a purse of their own, which successes fill by a
//! small part each, and they pay the retry budget as well.

/// The numbers of hedging.
///
/// ```
/// use onceward_core::retry::Hedge;
///
/// let hedge = Hedge { stretch: 1.5, ..Hedge::standard() };
/// assert_eq!(hedge.quantile, 0.95);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    /// An answer is late when it takes longer than this part of the answers before.
    pub quantile: f64,
    /// How many times that long to wait; at least 1.
    pub stretch: f64,
    /// With fewer answers than this nothing is hedged.
    pub samples: u32,
    /// The share of calls that may be hedged: what a success brings.
    pub share: f64,
    /// How many hedges may be saved up for a burst.
    pub burst: u32,
}

impl Hedge {
    /// After the 95th percentile of at least 100 answers, at most 5 % of the calls.
    #[must_use]
    pub fn standard() -> Self {
        Self { quantile: 0.95, stretch: 1.0, samples: 100, share: 0.05, burst: 10 }
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if !(self.quantile > 0.0 && self.quantile < 1.0) {
            Some("the quantile of a hedge lies between 0 and 1")
        } else if !(self.stretch >= 1.0 && self.stretch <= 100.0) {
            Some("the stretch of a hedge lies between 1 and 100")
        } else if !(self.share > 0.0 && self.share <= 1.0) {
            Some("the share of hedges lies above 0 and at most at 1")
        } else if self.burst == 0 {
            Some("a burst of hedges must be at least one")
        } else {
            None
        }
    }
}

/// A thousand of them pay one hedge.
const ONE: u32 = 1_000;

/// What hedges are paid from.
#[derive(Clone, Debug)]
pub(super) struct HedgeBalance {
    success: u32,
    capacity: u32,
    left: u32,
}

impl HedgeBalance {
    pub(super) fn new(rules: &Hedge) -> Self {
        let success = (rules.share * f64::from(ONE)) as u32;
        Self { success: success.max(1), capacity: rules.burst.saturating_mul(ONE), left: 0 }
    }

    pub(super) fn success(&mut self) {
        self.left = self.left.saturating_add(self.success).min(self.capacity);
    }

    pub(super) fn has_one(&self) -> bool {
        self.left >= ONE
    }

    pub(super) fn pay(&mut self) {
        self.left = self.left.saturating_sub(ONE);
    }
}
