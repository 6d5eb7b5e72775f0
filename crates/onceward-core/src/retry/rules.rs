//! The numbers by which a call is retried: checked once, when they are put together.

use alloc::vec::Vec;
use core::{error::Error, fmt, time::Duration};

use super::{Backoff, Breaker, Budget, Hedge, Limit, Share, Throttle};

/// By which rules calls are retried.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Backoff, Rules};
///
/// let rules = Rules::standard()
///     .to_builder()
///     .attempts(5)
///     .deadline(Duration::from_secs(30))
///     .backoff(Backoff::ranges())
///     .build()?;
/// assert_eq!(rules.attempts(), 5);
///
/// let error = Rules::standard().to_builder().attempts(0).build().unwrap_err();
/// assert!(error.to_string().contains("at least one attempt"));
/// # Ok::<(), onceward_core::retry::RulesError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub(super) attempts: u32,
    pub(super) deadline: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) backoff: Backoff,
    pub(super) overload_backoff: Backoff,
    pub(super) budget: Option<Budget>,
    pub(super) share: Option<Share>,
    pub(super) breaker: Option<Breaker>,
    pub(super) throttle: Option<Throttle>,
    pub(super) hedge: Option<Hedge>,
    pub(super) limit: Limit,
    pub(super) until_done: bool,
    pub(super) retry_status: Vec<u16>,
    pub(super) no_retry_status: Vec<u16>,
}

const BASE: Duration = Duration::from_millis(50);
const OVERLOAD_BASE: Duration = Duration::from_secs(1);

impl Rules {
    /// For a person who waits: 3 attempts of 4 s within 10 s, full jitter up to 20 s.
    #[must_use]
    pub fn standard() -> Self {
        Self::preset(3, Duration::from_secs(4), Duration::from_secs(10), Duration::from_secs(20))
    }

    /// For work in the background: 8 attempts of 30 s within 120 s, full jitter up to 30 s.
    #[must_use]
    pub fn patient() -> Self {
        Self::preset(8, Duration::from_secs(30), Duration::from_secs(120), Duration::from_secs(30))
    }

    /// One attempt within 10 s, and nothing that would refuse it.
    #[must_use]
    pub fn never() -> Self {
        let deadline = Duration::from_secs(10);
        let one = Self::preset(1, deadline, deadline, Duration::from_secs(20));
        Self { budget: None, breaker: None, limit: Limit::Fixed(u32::MAX), ..one }
    }

    fn preset(attempts: u32, attempt_timeout: Duration, deadline: Duration, cap: Duration) -> Self {
        Self {
            attempts,
            deadline,
            attempt_timeout,
            backoff: Backoff::Full { base: BASE, cap },
            overload_backoff: Backoff::Full { base: OVERLOAD_BASE, cap },
            budget: Some(Budget::standard()),
            share: None,
            breaker: Some(Breaker::standard()),
            throttle: None,
            hedge: None,
            limit: Limit::standard(),
            until_done: false,
            retry_status: Vec::new(),
            no_retry_status: Vec::new(),
        }
    }

    /// These rules, to be changed.
    pub fn to_builder(&self) -> RulesBuilder {
        let overload_base = match self.overload_backoff {
            Backoff::Full { base, .. }
            | Backoff::Equal { base, .. }
            | Backoff::Decorrelated { base, .. }
            | Backoff::Additive { base, .. } => base,
            _ => OVERLOAD_BASE,
        };
        RulesBuilder { rules: self.clone(), overload_base, deadline: None, timeout: None }
    }

    /// How many attempts there are in all.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long a call may take, with all its attempts and waits.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        self.attempt_timeout
    }

    /// How long to wait where a retry is wanted but cannot be paid for: by the backoff of an overloaded target.
    #[must_use]
    pub fn pause(&self, failures: u32, random: u64) -> Duration {
        self.overload_backoff.wait(failures.max(1), Duration::ZERO, random)
    }

    /// What retries are paid from, if they are.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        self.budget
    }

    /// Whether late answers are hedged, and how.
    #[must_use]
    pub fn hedge(&self) -> Option<Hedge> {
        self.hedge
    }

    fn problem(&self) -> Option<&'static str> {
        if self.attempts == 0 {
            return Some("there must be at least one attempt: for none, do not call");
        }
        if self.deadline.is_zero() || self.attempt_timeout.is_zero() {
            return Some("deadline and attempt time-out must be longer than nothing");
        }
        if self.attempt_timeout > self.deadline {
            return Some("one attempt must not be given more time than the whole call");
        }
        if self.attempts > 1 && self.backoff.least() >= self.deadline {
            return Some("the first wait would outlast the deadline: no retry could ever be made");
        }
        self.problem_of_statuses()
            .or_else(|| self.backoff.problem())
            .or_else(|| self.budget.as_ref().and_then(Budget::problem))
            .or_else(|| self.share.as_ref().and_then(Share::problem))
            .or_else(|| self.breaker.as_ref().and_then(Breaker::problem))
            .or_else(|| self.throttle.as_ref().and_then(Throttle::problem))
            .or_else(|| self.hedge.as_ref().and_then(Hedge::problem))
            .or_else(|| self.limit.problem())
    }

    fn problem_of_statuses(&self) -> Option<&'static str> {
        let mut all = self.retry_status.iter().chain(&self.no_retry_status);
        if all.any(|status| !(400..=599).contains(status)) {
            return Some("a status to try again after, or not, lies between 400 and 599");
        }
        let is_in_both = self.retry_status.iter().any(|one| self.no_retry_status.contains(one));
        is_in_both.then_some("a status is tried again after, or not: it cannot be both")
    }
}

/// Rules that are being put together.
///
/// ```
/// use onceward_core::retry::{Hedge, Rules, Share};
///
/// let rules = Rules::standard()
///     .to_builder()
///     .hedge(Hedge::standard())
///     .share(Share::of(0.1))
///     .without_breaker()
///     .build()?;
/// assert!(rules.hedge().is_some());
/// # Ok::<(), onceward_core::retry::RulesError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "rules are made by `build`"]
pub struct RulesBuilder {
    rules: Rules,
    overload_base: Duration,
    /// What the caller set here, in whichever order.
    deadline: Option<Duration>,
    timeout: Option<Duration>,
}

impl RulesBuilder {
    /// How many attempts there are in all.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.rules.attempts = attempts;
        self
    }

    /// How long a call may take in all. Without an `attempt_timeout`, one attempt takes no more than half
    /// of it, so that there is time for another.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long one attempt may take; never longer than the whole call.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Statuses, besides the usual ones, after which to try again where that is safe: a 404 of a server
    /// that is behind, say.
    pub fn retry_status(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.rules.retry_status = statuses.into_iter().collect();
        self
    }

    /// Statuses after which not to try again, although that is usual.
    pub fn no_retry_status(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.rules.no_retry_status = statuses.into_iter().collect();
        self
    }

    /// How long to wait between attempts.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.rules.backoff = backoff;
        self
    }

    /// The base of the backoff when the target said that it is overloaded.
    pub fn overload_base(mut self, base: Duration) -> Self {
        self.overload_base = base;
        self
    }

    /// What retries are paid from.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.rules.budget = Some(budget);
        self
    }

    /// Retries cost nothing. Only where something else bounds them.
    pub fn without_budget(mut self) -> Self {
        self.rules.budget = None;
        self
    }

    /// A second bound on retries: their share over a rolling window.
    pub fn share(mut self, share: Share) -> Self {
        self.rules.share = Some(share);
        self
    }

    /// When a failing target is left alone.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.rules.breaker = Some(breaker);
        self
    }

    /// A failing target is never left alone.
    pub fn without_breaker(mut self) -> Self {
        self.rules.breaker = None;
        self
    }

    /// Refuses a part of the calls here when the target refuses most of them.
    pub fn throttle(mut self, throttle: Throttle) -> Self {
        self.rules.throttle = Some(throttle);
        self
    }

    /// Sends a second request when the first is late, where that is safe.
    pub fn hedge(mut self, hedge: Hedge) -> Self {
        self.rules.hedge = Some(hedge);
        self
    }

    /// Sends no second request before the first has ended.
    pub fn without_hedge(mut self) -> Self {
        self.rules.hedge = None;
        self
    }

    /// How many calls a target may have in flight.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.rules.limit = limit;
        self
    }

    /// Follows a 202 of ours until the operation has ended, instead of giving it back.
    pub fn until_done(mut self) -> Self {
        self.rules.until_done = true;
        self
    }

    /// The rules, if they make sense.
    ///
    /// # Errors
    ///
    /// They contradict each other, or could never work; the error says how.
    pub fn build(mut self) -> Result<Rules, RulesError> {
        self.rules.overload_backoff = self.rules.backoff.starting_at(self.overload_base);
        if let Some(deadline) = self.deadline {
            let most = if self.rules.attempts > 1 { deadline / 2 } else { deadline };
            self.rules.deadline = deadline;
            self.rules.attempt_timeout = self.rules.attempt_timeout.min(most);
        }
        if let Some(timeout) = self.timeout {
            self.rules.attempt_timeout = timeout;
        }
        match self.rules.problem() {
            Some(problem) => Err(RulesError(problem)),
            None => Ok(self.rules),
        }
    }
}

/// Why rules for retries make no sense.
///
/// ```
/// use onceward_core::retry::{Rules, RulesError};
///
/// let error: RulesError = Rules::standard().to_builder().attempts(0).build().unwrap_err();
/// assert!(error.to_string().starts_with("these rules for retries cannot work"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesError(&'static str);

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "these rules for retries cannot work: {}", self.0)
    }
}

impl Error for RulesError {}
