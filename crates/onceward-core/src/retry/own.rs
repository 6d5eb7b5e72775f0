//! What a call has itself done to its target.
//!
//! A call that was given eight attempts must be able to use them. So what it paid and its own failures
//! are not held against its own further attempts. They count against all other calls, and what other
//! calls paid and failed at counts against it.

use core::time::Duration;

use super::Moment;

/// The part of one call in what is known of its target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnEffect {
    /// What it paid for retries and hedges and did not get back.
    pub(super) spent: u32,
    /// The row of failures that its last one belonged to, and how many of them were its own.
    row: u32,
    in_row: u32,
    /// How often the breaker was closed before its last failure, its failures since then, and the last.
    round: u32,
    in_round: u32,
    last: Moment,
}

impl OwnEffect {
    /// A breaker has counted one of its failures.
    pub(super) fn failed(&mut self, row: u32, round: u32, window: Duration, now: Moment) {
        let is_old = now.saturating_sub(self.last) >= window;
        self.in_row = if self.row == row { self.in_row.saturating_add(1) } else { 1 };
        self.in_round = match self.round == round && !is_old {
            true => self.in_round.saturating_add(1),
            false => 1,
        };
        (self.row, self.round, self.last) = (row, round, now);
    }

    /// How many failures of this row are its own.
    pub(super) fn in_row(&self, row: u32) -> u32 {
        if self.row == row { self.in_row } else { 0 }
    }

    /// How many failures are its own of those that a window showed which ended at that moment, or that
    /// came later.
    pub(super) fn in_window(&self, round: u32, window: Duration, until: Moment) -> u32 {
        let is_in = self.round == round && self.last.saturating_add(window) > until;
        if is_in { self.in_round } else { 0 }
    }

    pub(super) fn paid(&mut self, price: u32) {
        self.spent = self.spent.saturating_add(price);
    }

    pub(super) fn got_back(&mut self, price: u32) {
        self.spent = self.spent.saturating_sub(price);
    }
}
