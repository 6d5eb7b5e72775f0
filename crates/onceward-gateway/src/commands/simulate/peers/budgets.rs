//! The peers' budgets: who may retry, and what pays for it.

use crate::commands::simulate::{
    agenda::{Nanos, SECOND, seconds},
    policy::{Ongoing, Outcome},
};

pub(crate) trait Budget {
    fn opened(&mut self, _now: Nanos) {}
    fn succeeded(&mut self, _call: &Ongoing, _now: Nanos) {}
    fn failed(&mut self, _now: Nanos) {}
    /// What a retry after this costs, or nothing when it may not be.
    fn pay(&mut self, outcome: Outcome, now: Nanos) -> Option<f64>;
}

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
    newest: u64,
}

const SLOTS: usize = 10;

impl Window {
    pub(crate) const DEPOSIT_BY_REQUEST: bool = true;
    pub(crate) const DEPOSIT_BY_SUCCESS: bool = false;
    /// 10 a second, over the 10 s that the window has.
    const RESERVE: f64 = 100.0;

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

/// A bucket that is full at first; successes and, with some, time fill it.
pub(crate) struct Bucket {
    tokens: f64,
    most: f64,
    refund: Refund,
    a_second: f64,
    cost: f64,
    timeout_cost: f64,
    filled: Nanos,
}

enum Refund {
    Always(f64),
    /// What its last retry cost, or 1 without one.
    OfRetry,
}

impl Bucket {
    /// Brooker's, and with time tower-resilience's: a retry costs 1.
    pub(crate) fn new(most: f64, by_success: f64, a_second: f64) -> Self {
        let refund = Refund::Always(by_success);
        Self { tokens: most, most, refund, a_second, cost: 1.0, timeout_cost: 1.0, filled: 0 }
    }

    pub(crate) fn aws(cost: f64, timeout_cost: f64) -> Self {
        Self { refund: Refund::OfRetry, cost, timeout_cost, ..Self::new(500.0, 0.0, 0.0) }
    }

    fn fill(&mut self, more: f64, now: Nanos) {
        let by_time = seconds(now - self.filled) * self.a_second;
        self.filled = now;
        self.tokens = (self.tokens + by_time + more).min(self.most);
    }
}

impl Budget for Bucket {
    fn succeeded(&mut self, call: &Ongoing, now: Nanos) {
        let refund = match self.refund {
            Refund::Always(tokens) => tokens,
            Refund::OfRetry if call.attempts > 1 => call.paid,
            Refund::OfRetry => 1.0,
        };
        self.fill(refund, now);
    }

    fn pay(&mut self, outcome: Outcome, now: Nanos) -> Option<f64> {
        self.fill(0.0, now);
        let cost = if outcome == Outcome::TimedOut { self.timeout_cost } else { self.cost };
        let is_paid = self.tokens >= cost;
        is_paid.then(|| {
            self.tokens -= cost;
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
