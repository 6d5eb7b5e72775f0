//! The peers' budgets: who may retry, and what pays for it.

use crate::commands::simulate::{
    agenda::{Nanos, SECOND, seconds},
    policy::{Ongoing, Outcome},
};

pub(crate) trait Budget {
    /// A call starts.
    fn opened(&mut self, _now: Nanos) {}
    fn succeeded(&mut self, _call: &Ongoing, _now: Nanos) {}
    fn failed(&mut self, _now: Nanos) {}
    /// What a retry after this costs, or nothing when it may not be.
    fn pay(&mut self, outcome: Outcome, now: Nanos) -> Option<f64>;
}

/// Nobody counts.
pub(crate) struct Unlimited;

impl Budget for Unlimited {
    fn pay(&mut self, _: Outcome, _: Nanos) -> Option<f64> {
        Some(0.0)
    }
}

/// Finagle's and tower's: what was paid in and taken out in the last ten slots of a second, above a
/// reserve that is always there.
pub(crate) struct Window {
    share: f64,
    by_request: bool,
    slots: [f64; SLOTS],
    /// The second of the newest slot.
    newest: u64,
}

const SLOTS: usize = 10;

impl Window {
    pub(crate) const DEPOSIT_BY_REQUEST: bool = true;
    pub(crate) const DEPOSIT_BY_SUCCESS: bool = false;
    /// 10 a second, over the 10 s that the window has.
    const RESERVE: f64 = 100.0;

    /// 20 % of the requests.
    pub(crate) fn new(by_request: bool) -> Self {
        Self::of_share(0.2, by_request)
    }

    pub(crate) fn of_share(share: f64, by_request: bool) -> Self {
        Self { share, by_request, slots: [0.0; SLOTS], newest: 0 }
    }

    fn slot(&mut self, now: Nanos) -> &mut f64 {
        let second = now / SECOND;
        let passed = (second - self.newest).min(SLOTS as u64);
        for later in 1..=passed {
            self.slots[((second - passed + later) % SLOTS as u64) as usize] = 0.0;
        }
        self.newest = second;
        &mut self.slots[(second % SLOTS as u64) as usize]
    }
}

impl Budget for Window {
    fn opened(&mut self, now: Nanos) {
        if self.by_request {
            let share = self.share;
            *self.slot(now) += share;
        }
    }

    fn succeeded(&mut self, _: &Ongoing, now: Nanos) {
        if !self.by_request {
            let share = self.share;
            *self.slot(now) += share;
        }
    }

    fn pay(&mut self, _: Outcome, now: Nanos) -> Option<f64> {
        self.slot(now);
        // A grain above the sum, because ten times a fifth is not two in binary fractions.
        if Self::RESERVE + self.slots.iter().sum::<f64>() + 1e-9 < 1.0 {
            return None;
        }
        *self.slot(now) -= 1.0;
        Some(1.0)
    }
}

/// The AWS SDKs': full at first; a success returns what its last retry cost, or 1 without one.
pub(crate) struct Quota {
    left: f64,
    cost: f64,
    timeout_cost: f64,
}

impl Quota {
    const CAPACITY: f64 = 500.0;

    pub(crate) fn new(cost: f64, timeout_cost: f64) -> Self {
        Self { left: Self::CAPACITY, cost, timeout_cost }
    }
}

impl Budget for Quota {
    fn succeeded(&mut self, call: &Ongoing, _: Nanos) {
        let back = if call.attempts > 1 { call.paid } else { 1.0 };
        self.left = (self.left + back).min(Self::CAPACITY);
    }

    fn pay(&mut self, outcome: Outcome, _: Nanos) -> Option<f64> {
        let cost = if outcome == Outcome::TimedOut { self.timeout_cost } else { self.cost };
        let enough = self.left >= cost;
        enough.then(|| {
            self.left -= cost;
            cost
        })
    }
}

/// gRPC's: every failure takes a token, every success gives a part of one back.
pub(crate) struct Throttle {
    tokens: f64,
    most: f64,
    ratio: f64,
}

impl Throttle {
    pub(crate) fn new(most: f64, ratio: f64) -> Self {
        Self { tokens: most, most, ratio }
    }
}

impl Budget for Throttle {
    fn succeeded(&mut self, _: &Ongoing, _: Nanos) {
        self.tokens = (self.tokens + self.ratio).min(self.most);
    }

    fn failed(&mut self, _: Nanos) {
        self.tokens = (self.tokens - 1.0).max(0.0);
    }

    fn pay(&mut self, _: Outcome, _: Nanos) -> Option<f64> {
        (self.tokens > self.most / 2.0).then_some(0.0)
    }
}

/// Brooker's: only successes fill it.
pub(crate) struct Bucket {
    tokens: f64,
    most: f64,
    by_success: f64,
}

impl Bucket {
    pub(crate) fn new(most: f64, by_success: f64) -> Self {
        Self { tokens: most, most, by_success }
    }
}

impl Budget for Bucket {
    fn succeeded(&mut self, _: &Ongoing, _: Nanos) {
        self.tokens = (self.tokens + self.by_success).min(self.most);
    }

    fn pay(&mut self, _: Outcome, _: Nanos) -> Option<f64> {
        let enough = self.tokens >= 1.0;
        enough.then(|| {
            self.tokens -= 1.0;
            1.0
        })
    }
}

/// tower-resilience's: time and successes fill it.
pub(crate) struct Refilled {
    tokens: f64,
    most: f64,
    a_second: f64,
    filled: Nanos,
}

impl Refilled {
    pub(crate) fn new(most: f64, a_second: f64) -> Self {
        Self { tokens: most, most, a_second, filled: 0 }
    }

    fn fill(&mut self, more: f64, now: Nanos) {
        let by_time = seconds(now - self.filled) * self.a_second;
        self.filled = now;
        self.tokens = (self.tokens + by_time + more).min(self.most);
    }
}

impl Budget for Refilled {
    fn succeeded(&mut self, _: &Ongoing, now: Nanos) {
        self.fill(1.0, now);
    }

    fn pay(&mut self, _: Outcome, now: Nanos) -> Option<f64> {
        self.fill(0.0, now);
        let enough = self.tokens >= 1.0;
        enough.then(|| {
            self.tokens -= 1.0;
            1.0
        })
    }
}
