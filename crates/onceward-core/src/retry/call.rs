//! One logical call: what is at stake, and what its attempts have shown so far.

use core::{fmt, time::Duration};

use super::{Class, Method, Moment, Priority, Rules, own::OwnEffect, priority::Rank};
use crate::words::words;

/// One call, over all its attempts.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Call, Method, Priority, Rules};
///
/// let now = Duration::from_secs(7);
/// let call = Call::new(&Rules::standard(), Method::Other, now).keyed().priority(Priority::HIGHEST);
/// assert_eq!(call.remaining(now), Duration::from_secs(10));
/// assert_eq!(call.attempts(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) method: Method,
    pub(super) keyed: bool,
    /// The target has said that it does not keep the key.
    pub(super) unprotected: bool,
    pub(super) body_gone: bool,
    pub(super) nested: bool,
    pub(super) refreshable: bool,
    pub(super) last: bool,
    pub(super) rank: Rank,
    pub(super) route: u32,
    pub(super) deadline: Moment,
    pub(super) attempts: u32,
    /// Attempts that failed, without those that met a busy key.
    pub(super) failures: u32,
    /// Answers that said: not yet.
    pub(super) busy: u32,
    /// Some attempt may have been carried out without our knowing.
    pub(super) ambiguous: bool,
    /// The status URL has said once that it ended.
    pub(super) ended: bool,
    pub(super) refreshed: bool,
    pub(super) reconnected: bool,
    /// The attempt that runs, or is about to, is a retry in the sense of budget and breaker.
    pub(super) retrying: bool,
    /// What that retry cost.
    pub(super) paid: u32,
    /// What the hedge beside it cost.
    pub(super) hedge_paid: u32,
    pub(super) own: OwnEffect,
    pub(super) began: Moment,
    /// The round of trials of the breaker that it is one of.
    pub(super) trial: Option<u32>,
    pub(super) waited: Duration,
    pub(super) hint: Option<Duration>,
}

impl Call {
    /// A call that starts now and has the time that the rules give.
    #[must_use]
    pub fn new(rules: &Rules, method: Method, now: Moment) -> Self {
        Self {
            method,
            keyed: false,
            unprotected: false,
            body_gone: false,
            nested: false,
            refreshable: false,
            last: false,
            rank: Rank { priority: Priority::NORMAL, level: 1.0 },
            route: 0,
            deadline: now.saturating_add(rules.deadline),
            attempts: 0,
            failures: 0,
            busy: 0,
            ambiguous: false,
            ended: false,
            refreshed: false,
            reconnected: false,
            retrying: false,
            paid: 0,
            hedge_paid: 0,
            own: OwnEffect::default(),
            began: now,
            trial: None,
            waited: Duration::ZERO,
            hint: None,
        }
    }

    /// It carries a key, the same on every attempt: a repeat is the same operation.
    #[must_use]
    pub fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// Its body can be sent once only, because it was too large to keep.
    #[must_use]
    pub fn body_gone(mut self) -> Self {
        self.body_gone = true;
        self
    }

    /// It serves a request that is itself a retry: its client will try again, not we.
    #[must_use]
    pub fn nested(mut self) -> Self {
        self.nested = true;
        self
    }

    /// The caller can get new credentials for it.
    #[must_use]
    pub fn refreshable(mut self) -> Self {
        self.refreshable = true;
        self
    }

    /// Whatever the attempt that runs has shown, it is what the caller gets: its failure is stored, say.
    ///
    /// The target is judged by it all the same.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// It goes on after so many failed attempts, which another process made, say. A breaker takes its next
    /// attempt for a first try.
    #[must_use]
    pub fn failed_before(mut self, failures: u32) -> Self {
        self.attempts = failures;
        self.failures = failures;
        self
    }

    /// How important it is.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.rank.priority = priority;
        self
    }

    /// Which of the target's routes it takes: each has latencies of its own.
    #[must_use]
    pub fn route(mut self, route: u32) -> Self {
        self.route = route;
        self
    }

    /// It has at most this much time from now on, if that is less than the rules give.
    #[must_use]
    pub fn within(mut self, time: Duration, now: Moment) -> Self {
        self.deadline = self.deadline.min(now.saturating_add(time));
        self
    }

    /// How many attempts have begun, without hedges.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How many attempts have failed, without those that met a busy key.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What its method promises about repeats.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// What is left of its time.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.deadline.saturating_sub(now)
    }

    /// After which time the target asked to come back, in its last answer.
    #[must_use]
    pub fn hint(&self) -> Option<Duration> {
        self.hint
    }

    /// Whether some attempt may have been carried out without an answer that says so.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Whether the target has said that it does not keep the key: then a repeat with it may be a second
    /// run.
    #[must_use]
    pub fn is_unprotected(&self) -> bool {
        self.unprotected
    }

    pub(super) fn may_repeat(&self, class: Class) -> bool {
        self.method.may_repeat(self.keyed && !self.unprotected, class)
    }

    /// To stop now, for this reason: what is then known of the operation.
    pub(super) fn stop(&self, reason: StopReason) -> Stop {
        if self.ambiguous && self.method != Method::Safe {
            Stop::Unknown(reason)
        } else {
            Stop::Failed(reason)
        }
    }
}

/// How a call ended that did not succeed.
///
/// ```
/// use onceward_core::retry::{Stop, StopReason};
///
/// let stop = Stop::Unknown(StopReason::Deadline);
/// assert!(stop.is_unknown());
/// assert_eq!(stop.reason(), StopReason::Deadline);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// No answer says that it happened, and no attempt went unanswered.
    Failed(StopReason),
    /// It may have happened. With the same key it can be found out; with another it may happen twice.
    Unknown(StopReason),
}

impl Stop {
    /// The reason for stopping.
    #[must_use]
    pub fn reason(self) -> StopReason {
        let (Self::Failed(reason) | Self::Unknown(reason)) = self;
        reason
    }

    /// Whether the operation may have happened.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

words! {
    /// Why no further attempt is made.
    ///
    /// ```
    /// use onceward_core::retry::StopReason;
    ///
    /// let reason = StopReason::Budget;
    /// assert_eq!(reason.as_str(), "budget"); // for metrics and JSON
    /// assert!(!reason.is_answer(), "the target did not say this");
    /// ```
    #[non_exhaustive]
    pub enum StopReason {
        /// The answer is final: another attempt would get the same.
        Answered = "answered",
        /// The state at the target is another one; refresh it first.
        Conflict = "conflict",
        /// The credentials were refused.
        Unauthorised = "unauthorised",
        /// It may have been carried out, and nothing makes a second run harmless: it has no key, or one that
        /// the target does not keep.
        Unsafe = "unsafe",
        /// Its body was too large to keep, or is a stream.
        BodyGone = "body_gone",
        /// An outer layer retries already.
        Nested = "nested",
        /// All attempts are used up.
        Attempts = "attempts",
        /// Its time is over, or would be before the next attempt.
        Deadline = "deadline",
        /// The retry budget of the target is spent.
        Budget = "budget",
        /// Retries are as large a share of the traffic as they may be.
        Share = "share",
        /// The target fails, and is left alone.
        Breaker = "breaker",
        /// The target refuses most calls, and this one was refused here.
        Throttle = "throttle",
        /// Too many calls are under way or refused, and this one is not important enough.
        Shed = "shed",
        /// As many calls are in flight as may be.
        Limit = "limit",
    }
}

impl StopReason {
    /// What to tell a person.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Answered => "the answer is final: another attempt would get the same",
            Self::Conflict => "the state at the server is another one: read it again, then decide",
            Self::Unauthorised => "the credentials were refused",
            Self::Unsafe => {
                "it may have been carried out, and without a key that the server keeps a repeat could do it twice"
            }
            Self::BodyGone => "its body was too large to keep, so it cannot be sent again",
            Self::Nested => {
                "it serves a request that is itself a retry: the outer layer tries again"
            }
            Self::Attempts => "all attempts are used up",
            Self::Deadline => "its time is over, or would be before another attempt",
            Self::Budget => {
                "retry budget exhausted: too few of this server's answers are successes to pay for more"
            }
            Self::Share => "retries are already as large a share of the traffic as they may be",
            Self::Breaker => "this server keeps failing and is left alone for a while",
            Self::Throttle => "this server refuses most calls, so some are refused here",
            Self::Shed => {
                "too many calls to this server are under way or refused, and this one gives way"
            }
            Self::Limit => "as many calls to this server are in flight as are allowed",
        }
    }

    /// Whether it was an answer of the target that ended the call, and not its lack.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Answered | Self::Conflict | Self::Unauthorised)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
