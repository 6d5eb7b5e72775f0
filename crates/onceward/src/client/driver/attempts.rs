//! The questions to the core about one call, and the observations for it.

use std::{mem, sync::Arc, time::Duration};

use onceward_core::retry::{
    self, Action, Call, Context, Moment, Observation, Permit, Rules, Stop, Target,
};

use super::{Ended, Launch, TargetHandle};
use crate::telemetry::SentAs;

/// Where the time and the randomness of attempts come from.
pub trait Environment: Sync {
    /// Monotonic time: a wall clock that is set changes nothing here.
    fn now(&self) -> Moment;
    /// Fresh randomness for every decision.
    fn random(&self) -> u64;
}

/// All attempts of one call, and what they still owe to their target.
///
/// Dropped in the midst of an attempt, it gives back what that attempt was given.
pub struct Attempts<'a, E: Environment> {
    environment: &'a E,
    rules: &'a Rules,
    target: &'a Arc<TargetHandle>,
    call: Call,
    /// Read once after everything that takes time, and not at every step.
    now: Moment,
    sent: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// An attempt has begun, and its target has not heard yet how it ended.
    Running,
    /// Another attempt was decided on and perhaps paid for, and has not begun.
    Waiting,
}

impl<'a, E: Environment> Attempts<'a, E> {
    /// For a call that has not begun.
    pub fn new(
        environment: &'a E,
        rules: &'a Rules,
        target: &'a Arc<TargetHandle>,
        call: Call,
    ) -> Self {
        let now = environment.now();
        Self { environment, rules, target, call, now, sent: 0, phase: Phase::Idle }
    }

    /// The call, as the core counts it.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The rules that it goes by.
    #[must_use]
    pub fn rules(&self) -> &'a Rules {
        self.rules
    }

    /// When the clock was last read.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Reads the clock: some time has passed.
    pub fn tick(&mut self) {
        self.now = self.environment.now();
    }

    /// What is left of the call's time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.call.remaining(self.now)
    }

    /// How many requests were sent, hedges included.
    #[must_use]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Reads or changes the target.
    pub fn with_target<T>(&self, ask: impl FnOnce(&mut Target) -> T) -> T {
        self.target.with(ask)
    }

    /// It may have been carried out by a request whose answer is not the one that is taken.
    pub fn doubt(&mut self) {
        self.with(|context, _, _| context.doubt());
    }

    /// What was asked beside the attempts has shown this.
    pub fn learn(&mut self, observation: Observation) -> Action {
        let action =
            self.with(|context, now, random| retry::decide(context, observation, now, random));
        self.phase = match action {
            Action::Attempt { .. } => Phase::Waiting,
            _ => Phase::Idle,
        };
        action
    }

    /// Gives up the attempt in progress, or the one that was decided on: its target gets back what it gave.
    pub fn abandon(&mut self) {
        match mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => {}
            Phase::Running => self.with(|context, _, _| context.abandon()),
            Phase::Waiting => self.with(|context, _, _| context.forgo()),
        }
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method fits one lifetime only"
    )]
    pub(super) fn begin(&mut self) -> Result<Permit, Stop> {
        self.phase = Phase::Idle;
        let permit = self.with(|context, now, random| context.begin(now, random))?;
        self.phase = Phase::Running;
        Ok(permit)
    }

    /// The next request, which counts as in flight from now on.
    pub(super) fn launch(&mut self, timeout: Duration, is_hedge: bool) -> Launch {
        self.sent += 1;
        let sent_as = match (is_hedge, self.sent) {
            (true, _) => SentAs::Hedge,
            (false, 1) => SentAs::First,
            (false, _) => SentAs::Retry,
        };
        let permit = self.target.permit();
        Launch { number: self.sent, sent_as, timeout, at: self.now, permit }
    }

    pub(super) fn hedge(&mut self) -> bool {
        self.tick();
        self.with(|context, now, _| context.hedge(now))
    }

    pub(super) fn hedge_won(&mut self) {
        self.with(|context, _, _| context.hedge_won());
    }

    /// One of two requests failed, and the other one goes on.
    pub(super) fn hedge_failed(&mut self, observation: Observation) {
        self.tick();
        self.with(|context, now, random| context.hedge_failed(observation, now, random));
    }

    /// An attempt has ended: what to do now?
    pub(super) fn decide<R>(&mut self, ended: &Ended<R>) -> Action {
        self.now = self.now.max(ended.at);
        if ended.is_last {
            self.call = self.call.clone().last();
        }
        self.learn(ended.observation)
    }

    fn with<T>(&mut self, ask: impl FnOnce(&mut Context<'_>, Moment, u64) -> T) -> T {
        let (rules, call, now) = (self.rules, &mut self.call, self.now);
        let random = self.environment.random();
        self.target.with(|target| ask(&mut Context { rules, call, target }, now, random))
    }
}

impl<E: Environment> Drop for Attempts<'_, E> {
    /// The caller does not wait for the answer any more.
    fn drop(&mut self) {
        self.abandon();
    }
}
