//! The circuit breaker: what is plainly down is left alone, in two steps.
//!
//! A breaker that refuses every call as soon as half of them fail turns a brown-out into an outage:
//! the half that would have succeeded is lost, and when the target recovers the breaker is still
//! open. So the first step, at the usual thresholds, only stops what is speculative: retries and
//! hedges. First tries go on, and they are the probes. Only when they show nothing but failures the
//! second step refuses them as well, for a while that doubles, and then lets a counted few through.

use core::time::Duration;

use super::{Moment, own::OwnEffect, random::Random, window::Window};
use crate::words::words;

/// The numbers of a breaker.
///
/// ```
/// use onceward_core::retry::Breaker;
///
/// let breaker = Breaker { trials: 1, ..Breaker::standard() };
/// assert_eq!(breaker.in_a_row, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// The window over which calls are counted.
    pub window: Duration,
    /// So many calls in the window before a share of failures means anything.
    pub calls: u32,
    /// The share of failures at which retries and hedges stop.
    pub share: f64,
    /// So many failures one after the other stop them as well.
    pub in_a_row: u32,
    /// So many failures after that, and not one success in the window: first tries are refused too.
    pub hopeless: u32,
    /// For how long they are refused the first time; it doubles.
    pub open: Duration,
    /// For how long at most.
    pub open_most: Duration,
    /// How many are then let through; all of them must succeed.
    pub trials: u32,
}

impl Breaker {
    /// Half of 20 calls in 10 s or 5 in a row; 50 without a success; 5 s to 60 s; 3 trials.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            window: Duration::from_secs(10),
            calls: 20,
            share: 0.5,
            in_a_row: 5,
            hopeless: 50,
            open: Duration::from_secs(5),
            open_most: Duration::from_secs(60),
            trials: 3,
        }
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            Some("the share of failures of a breaker lies above 0 and at most at 1")
        } else if self.in_a_row == 0 || self.calls == 0 || self.hopeless == 0 || self.trials == 0 {
            Some("a breaker must count at least one call, failure and trial")
        } else if self.window.is_zero() || self.open.is_zero() || self.open > self.open_most {
            Some("a breaker's times must be longer than nothing, and open no longer than its most")
        } else {
            None
        }
    }
}

words! {
    /// What a breaker lets through, for people and for metrics.
    ///
    /// ```
    /// use core::time::Duration;
    /// use onceward_core::retry::{Circuit, Rules, Target};
    ///
    /// let mut target = Target::new(&Rules::standard());
    /// let circuit = target.circuit(Duration::ZERO);
    /// assert_eq!((circuit, circuit.as_str()), (Circuit::Closed, "closed"));
    /// ```
    pub enum Circuit {
        /// Everything.
        Closed = "closed",
        /// First tries, but no retries and no hedges.
        Guarded = "guarded",
        /// Nothing.
        Open = "open",
        /// A counted few, to see whether it is better.
        HalfOpen = "half_open",
    }
}

/// The right to make one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerPass {
    Free,
    /// One of the counted few of this round: how it ends decides, or the call gives it back.
    Trial(u32),
    /// Not now; perhaps after this time.
    Refused(Duration),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Guarded { since: Moment },
    Open { until: Moment },
    HalfOpen { since: Moment, granted: u32, succeeded: u32 },
}

#[derive(Clone, Debug)]
pub(super) struct BreakerState {
    rules: Breaker,
    state: State,
    /// Calls and their failures: all of them when closed, those since it was guarded when it is.
    window: Window,
    in_a_row: u32,
    /// What speaks for leaving the target alone, while it is not closed.
    evidence: Evidence,
    /// The number of this row of failures: another one begins after a success, or when it is closed.
    row: u32,
    /// How often it was closed.
    closings: u32,
    /// How often it opened since it was closed.
    openings: u32,
    /// How often it was half open: what a trial of an earlier round shows comes too late.
    round: u32,
}

impl BreakerState {
    pub(super) fn new(rules: Breaker) -> Self {
        let window = Window::new(rules.window);
        Self {
            rules,
            state: State::Closed,
            window,
            in_a_row: 0,
            evidence: Evidence::default(),
            row: 1,
            closings: 1,
            openings: 0,
            round: 0,
        }
    }

    pub(super) fn circuit(&mut self, now: Moment) -> Circuit {
        self.pass_time(now);
        match self.state {
            State::Closed => Circuit::Closed,
            State::Guarded { .. } => Circuit::Guarded,
            State::Open { .. } => Circuit::Open,
            State::HalfOpen { .. } => Circuit::HalfOpen,
        }
    }

    pub(super) fn admit(&mut self, own: &OwnEffect, now: Moment) -> BreakerPass {
        self.pass_time(now);
        let is_held = self.is_held_against(own);
        match &mut self.state {
            State::Closed | State::Guarded { .. } => BreakerPass::Free,
            State::HalfOpen { granted, .. } if *granted < self.rules.trials => {
                *granted += 1;
                BreakerPass::Trial(self.round)
            }
            State::Open { .. } | State::HalfOpen { .. } if !is_held => BreakerPass::Free,
            State::Open { until } => BreakerPass::Refused(until.saturating_sub(now)),
            State::HalfOpen { .. } => BreakerPass::Refused(self.rules.open),
        }
    }

    /// Whether a call with this part in it may try again.
    pub(super) fn allows_retries(&mut self, own: &OwnEffect, now: Moment) -> bool {
        self.circuit(now) == Circuit::Closed || !self.is_held_against(own)
    }

    /// Whether it would not be closed either without this call's own failures.
    fn is_held_against(&self, own: &OwnEffect) -> bool {
        let Evidence { row, calls, failures, since } = self.evidence;
        let row = row.saturating_sub(own.in_row(self.row));
        let recent = own.in_window(self.closings, self.rules.window, since);
        let (calls, failures) = (calls.saturating_sub(recent), failures.saturating_sub(recent));
        row >= self.rules.in_a_row
            || (calls >= self.rules.calls && self.is_too_many(failures, calls))
    }

    fn is_too_many(&self, failures: u32, calls: u32) -> bool {
        f64::from(failures) >= self.rules.share * f64::from(calls)
    }

    /// A trial whose caller went away without a report.
    pub(super) fn give_back_trial(&mut self, round: u32) {
        if let State::HalfOpen { granted, .. } = &mut self.state
            && round == self.round
        {
            *granted = granted.saturating_sub(1);
        }
    }

    pub(super) fn ended(
        &mut self,
        observation: Ended,
        own: &mut OwnEffect,
        now: Moment,
        random: &mut Random,
    ) {
        self.pass_time(now);
        let counts = match self.state {
            State::Closed | State::Guarded { .. } => true,
            State::HalfOpen { .. } => observation.trial == Some(self.round),
            State::Open { .. } => false,
        };
        // Otherwise it began before: it says nothing about now.
        if !counts {
            return;
        }
        if observation.failed {
            own.failed(self.row, self.closings, self.rules.window, now);
            self.evidence.failed();
        }
        match self.state {
            State::Closed => self.count(observation.failed, now),
            State::Guarded { .. } => self.count_guarded(observation, now, random),
            State::Open { .. } | State::HalfOpen { .. } => {
                self.count_trial(observation, now, random);
            }
        }
    }

    fn count(&mut self, failed: bool, now: Moment) {
        self.window.add(1, u32::from(failed), now);
        if !failed {
            self.in_a_row = 0;
            self.row = self.row.wrapping_add(1);
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let (calls, failures) = self.window.sums(now);
        let share = self.is_too_many(failures, calls);
        if self.in_a_row >= self.rules.in_a_row || (calls >= self.rules.calls && share) {
            self.evidence = Evidence { row: self.in_a_row, calls, failures, since: now };
            self.become_state(State::Guarded { since: now });
        }
    }

    fn count_guarded(&mut self, observation: Ended, now: Moment, random: &mut Random) {
        self.in_a_row = if observation.is_dead() { self.in_a_row.saturating_add(1) } else { 0 };
        self.window.add(1, u32::from(observation.failed), now);
        let (calls, failures) = self.window.sums(now);
        if failures == calls && self.in_a_row >= self.rules.hopeless {
            self.open(observation.hint, now, random);
        } else if calls >= self.rules.in_a_row && !self.is_too_many(failures, calls) {
            // One success among failures is no recovery: a breaker that believed it would be guarded
            // anew every other moment, and some day see nothing but bad luck.
            self.become_state(State::Closed);
        }
    }

    fn count_trial(&mut self, observation: Ended, now: Moment, random: &mut Random) {
        if observation.is_dead() {
            self.open(observation.hint, now, random);
        } else if let State::HalfOpen { succeeded, .. } = &mut self.state {
            *succeeded += 1;
            if *succeeded >= self.rules.trials {
                self.openings = 0;
                self.become_state(State::Closed);
            }
        }
    }

    fn open(&mut self, hint: Option<Duration>, now: Moment, random: &mut Random) {
        let doubled = self.rules.open.saturating_mul(1 << self.openings.min(16));
        // Clients that opened together must not come back together.
        let own = random.around(doubled, 0.2);
        let asked =
            hint.map_or(Duration::ZERO, |hint| hint.saturating_add(random.up_to(hint / 10)));
        let time = own.max(asked).min(self.rules.open_most);
        self.openings = self.openings.saturating_add(1);
        self.become_state(State::Open { until: now.saturating_add(time) });
    }

    fn half_open(&mut self, now: Moment) {
        self.round = self.round.wrapping_add(1);
        self.become_state(State::HalfOpen { since: now, granted: 0, succeeded: 0 });
    }

    fn pass_time(&mut self, now: Moment) {
        match self.state {
            State::Open { until } if now >= until => self.half_open(now),
            // A trial without a report for so long is not waited for.
            State::HalfOpen { since, .. } if now.saturating_sub(since) >= self.rules.open_most => {
                self.half_open(now);
            }
            // No call came for a whole window: what was seen is too old to hold against it.
            State::Guarded { since }
                if now.saturating_sub(since) >= self.rules.window
                    && self.window.sums(now).0 == 0 =>
            {
                self.become_state(State::Closed);
            }
            _ => {}
        }
    }

    fn become_state(&mut self, state: State) {
        if matches!(state, State::Closed) {
            self.row = self.row.wrapping_add(1);
            self.closings = self.closings.wrapping_add(1);
        }
        self.state = state;
        self.in_a_row = 0;
        self.window.clear();
    }
}

/// What was counted when it was guarded, and the failures since then. Successes are left out: what was
/// held against a call stays so until the breaker is closed.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// Failures in a row.
    row: u32,
    /// Calls in the window, and how many of them failed.
    calls: u32,
    failures: u32,
    /// When it was guarded.
    since: Moment,
}

impl Evidence {
    fn failed(&mut self) {
        for count in [&mut self.row, &mut self.calls, &mut self.failures] {
            *count = count.saturating_add(1);
        }
    }
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) failed: bool,
    /// The target answered, although with a failure.
    pub(super) alive: bool,
    pub(super) trial: Option<u32>,
    pub(super) hint: Option<Duration>,
}

impl Ended {
    /// A failure without an answer: the target may be gone.
    fn is_dead(self) -> bool {
        self.failed && !self.alive
    }
}
