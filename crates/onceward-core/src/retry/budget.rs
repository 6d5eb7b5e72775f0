//! The retry budget: retries are paid for by successes.
//!
//! A retry is only worth sending where most calls succeed. So each target has a purse that successes
//! fill and retries empty. When a target is down nothing fills it, and after the first few retries
//! the load is that of the first tries alone, however many clients there are. There is no floor of
//! "so many a second": with a floor in each process a fleet of a thousand small clients has a
//! thousand floors.

/// The numbers of a budget.
///
/// ```
/// use onceward_core::retry::Budget;
///
/// let budget = Budget { capacity: 500, ..Budget::standard() };
/// assert_eq!(budget.retry, 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What the purse holds at most.
    pub capacity: u32,
    /// What it holds at first; at least what one call costs that uses all its attempts, up to
    /// [`MOST_AT_START`](Self::MOST_AT_START). With 0 a new target has to earn its retries.
    pub start: u32,
    /// What a retry costs. The budget gets it back when the retry succeeds.
    pub retry: u32,
    /// What a retry costs that the server named a time for.
    pub hinted: u32,
    /// What a success at the first try brings.
    pub success: u32,
}

impl Budget {
    /// No purse starts with more because a call may make many attempts: thirty retries are enough to
    /// find out.
    pub const MOST_AT_START: u32 = 300;

    /// Capacity 100, start 30, a retry 10, a hinted one 5, a success 1.
    #[must_use]
    pub fn standard() -> Self {
        Self { capacity: 100, start: 30, retry: 10, hinted: 5, success: 1 }
    }

    /// The same numbers, with a start from which one call can pay all its retries.
    pub(super) fn for_attempts(self, attempts: u32) -> Self {
        if self.start == 0 {
            return self;
        }
        let retries = attempts.saturating_sub(1);
        let whole_call =
            self.retry.max(self.hinted).saturating_mul(retries).min(Self::MOST_AT_START);
        let start = self.start.max(whole_call);
        Self { start, capacity: self.capacity.max(start), ..self }
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.start > self.capacity {
            Some("a budget must not start with more than its capacity")
        } else if self.retry > self.capacity || self.hinted > self.capacity {
            Some("a retry must not cost more than the capacity of its budget")
        } else if self.retry > 0 && self.success == 0 && self.start == 0 {
            Some("a budget that starts empty and that no success fills never pays a retry")
        } else {
            None
        }
    }
}

/// What is left of a budget.
///
/// ```
/// use onceward_core::retry::{Budget, BudgetBalance};
///
/// let mut balance = BudgetBalance::new(Budget::standard());
/// assert!((0..3).all(|_| balance.pay(10)));
/// assert!(!balance.pay(10), "thirty were in it");
/// assert_eq!(balance.left(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct BudgetBalance {
    rules: Budget,
    left: u32,
}

impl BudgetBalance {
    /// A purse with what a budget starts with.
    #[must_use]
    pub fn new(rules: Budget) -> Self {
        Self { rules, left: rules.start }
    }

    /// What is in it.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Takes the price out, or nothing at all.
    pub fn pay(&mut self, price: u32) -> bool {
        let enough = self.left >= price;
        if enough {
            self.left -= price;
        }
        enough
    }

    /// Puts something in, up to the capacity.
    pub fn put(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(self.rules.capacity);
    }

    /// How near it is to being empty: 0 with what it started with or more, 1 with nothing.
    ///
    /// Counted from the start and not from the capacity: a new purse is no sign of trouble.
    #[must_use]
    pub fn need(&self) -> f64 {
        self.need_without(0)
    }

    /// The same, as if a call had not spent this much.
    pub(super) fn need_without(&self, spent: u32) -> f64 {
        let left = self.left.saturating_add(spent);
        if self.rules.start == 0 || left >= self.rules.start {
            return 0.0;
        }
        1.0 - f64::from(left) / f64::from(self.rules.start)
    }

    pub(super) fn capacity(&self) -> u32 {
        self.rules.capacity
    }

    /// Starts with more, if that is more than it started with.
    pub(super) fn fit(&mut self, rules: Budget) {
        if rules.start > self.rules.start {
            let more = rules.start - self.rules.start;
            self.rules.start = rules.start;
            self.rules.capacity = self.rules.capacity.max(rules.capacity);
            self.put(more);
        }
    }
}
