//! The decision: what to do after an attempt. Read this file first; the other files are its parts.

use core::time::Duration;

use super::{
    Action, Call, Class, Moment, Observation, Permit, Rules, Stop, StopReason, Target,
    breaker::BreakerPass,
    priority::Rank,
    random::Random,
    saturation::{allows_first_try, allows_hedge, allows_retry, widened},
};

/// The client asks at least this often for what still runs, unless the server says otherwise, and at
/// most a hundred times as often.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that a decision looks at and learns from, apart from time and chance.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::*;
///
/// let rules = Rules::standard();
/// let mut target = Target::new(&rules);
/// let now = Duration::ZERO;
/// let mut call = Call::new(&rules, Method::of("POST"), now).keyed();
///
/// let mut context = Context { rules: &rules, call: &mut call, target: &mut target };
/// let permit = context.begin(now, 1)?;
/// assert_eq!(permit.timeout, Duration::from_secs(4));
/// // … the attempt is sent, and its connection is reset.
/// let action = decide(&mut context, Class::Ambiguous.into(), Duration::from_millis(20), 2);
/// assert!(matches!(action, Action::Attempt { wait } if wait <= Duration::from_millis(50)));
/// # Ok::<(), Stop>(())
/// ```
#[derive(Debug)]
pub struct Context<'a> {
    /// By which rules.
    pub rules: &'a Rules,
    /// For which call.
    pub call: &'a mut Call,
    /// What is known of its target.
    pub target: &'a mut Target,
}

/// What to do after an attempt that has shown this.
///
/// `now` is monotonic time; `random` is fresh for each decision, or waits would not be spread.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::*;
///
/// let (rules, now) = (Rules::standard(), Duration::ZERO);
/// let (mut target, mut call) = (Target::new(&rules), Call::new(&rules, Method::of("POST"), now));
/// let mut context = Context { rules: &rules, call: &mut call, target: &mut target };
/// context.begin(now, 1)?;
/// // The connection breaks. Without a key a second POST could do it twice.
/// let action = decide(&mut context, Class::Ambiguous.into(), now, 2);
/// assert_eq!(action, Action::Stop(Stop::Unknown(StopReason::Unsafe)));
/// # Ok::<(), Stop>(())
/// ```
#[must_use]
pub fn decide(
    context: &mut Context<'_>,
    observation: Observation,
    now: Moment,
    random: u64,
) -> Action {
    let mut random = Random::new(random);
    context.learn(observation, now, &mut random);
    let call = &mut *context.call;
    match observation.class {
        Class::Success => Action::Succeed,
        // The answer of this operation, also when earlier attempts went unanswered.
        Class::Bound => Action::Stop(Stop::Failed(StopReason::Answered)),
        Class::Final => Action::Stop(call.stop(StopReason::Answered)),
        Class::Conflict => Action::Stop(call.stop(StopReason::Conflict)),
        Class::Unknown => Action::Stop(Stop::Unknown(StopReason::Answered)),
        Class::Unauthorised if call.refreshable && !call.refreshed => {
            context.refresh(observation.class)
        }
        Class::Unauthorised => Action::Stop(call.stop(StopReason::Unauthorised)),
        Class::Accepted if !context.rules.until_done => Action::Succeed,
        Class::Accepted | Class::Pending | Class::Ended => {
            context.follow(observation, now, &mut random)
        }
        Class::InProgress => context.wait_for_owner(observation, now, &mut random),
        Class::NeverSent { .. } | Class::Ambiguous | Class::Overload | Class::ServerFault => {
            match context.retry(observation, now, &mut random) {
                Ok(wait) => Action::Attempt { wait },
                Err(reason) => Action::Stop(context.call.stop(reason)),
            }
        }
    }
}

impl Context<'_> {
    /// Asks for leave to make an attempt, and counts it.
    ///
    /// # Errors
    ///
    /// The call ends here: its time is over, or the target is to be left alone.
    pub fn begin(&mut self, now: Moment, random: u64) -> Result<Permit, Stop> {
        let mut random = Random::new(random);
        if self.call.attempts == 0 {
            self.call.rank = Rank::new(self.call.rank.priority, &mut random);
        }
        if let Err(reason) = self.admit(now, &mut random) {
            self.forgo();
            return Err(self.call.stop(reason));
        }
        self.call.attempts = self.call.attempts.saturating_add(1);
        self.call.began = now;
        self.call.hedge_paid = 0;
        self.target.take_off();
        let timeout = self.rules.attempt_timeout.min(self.call.remaining(now));
        let hedge_after = self
            .target
            .late_after(self.call.route)
            .filter(|_| self.rules.hedge.is_some() && !self.call.body_gone)
            .filter(|after| self.call.may_repeat(Class::Ambiguous) && *after < timeout);
        Ok(Permit { timeout, hedge_after })
    }

    /// Asks for leave to send a second request beside one that is late, and pays for it.
    pub fn hedge(&mut self, now: Moment) -> bool {
        let price = self.rules.budget.map_or(0, |budget| budget.retry);
        let may = !self.call.body_gone
            && !self.call.nested
            && self.call.may_repeat(Class::Ambiguous)
            && self.target.has_room()
            && self.target.allows_retries(&self.call.own, now)
            && allows_hedge(self.saturation(now).1)
            && self.target.pay_hedge(price);
        if may {
            self.call.hedge_paid = price;
            self.call.own.paid(price);
            self.target.take_off();
        }
        may
    }

    /// The hedge gave the answer that is taken. To be followed by [`decide`].
    pub fn hedge_won(&mut self) {
        let paid = core::mem::take(&mut self.call.hedge_paid);
        self.put_back(paid);
    }

    /// The hedge failed: the target learns from it, and the first request goes on as if alone.
    pub fn hedge_failed(&mut self, observation: Observation, now: Moment, random: u64) {
        self.call.hedge_paid = 0;
        self.call.ambiguous |= observation.class == Class::Ambiguous || observation.doubt;
        self.call.unprotected |= observation.unprotected;
        let took = now.saturating_sub(self.call.began);
        let of_call = (&mut self.call.own, None);
        self.target.learn(observation, of_call, took, now, &mut Random::new(random));
    }

    /// The caller no longer waits for the attempt that runs: its trial goes back to the breaker.
    pub fn abandon(&mut self) {
        if let Some(trial) = self.call.trial.take() {
            self.target.give_back_trial(trial);
        }
    }

    /// The caller did not begin the attempt that was decided on: the budget gets its price back.
    pub fn forgo(&mut self) {
        let paid = core::mem::take(&mut self.call.paid);
        self.put_back(paid);
    }

    fn put_back(&mut self, paid: u32) {
        self.target.put_back(paid);
        self.call.own.got_back(paid);
    }

    /// How overloaded the target is, as this call may see it: without the budget, and with it.
    fn saturation(&mut self, now: Moment) -> (f64, f64) {
        let pressure = self.target.pressure_without(self.call.failures, now);
        (pressure, pressure.max(self.target.need_without(&self.call.own)))
    }

    /// It may have been carried out before this call: by a process that is no more, say.
    pub fn doubt(&mut self) {
        self.call.ambiguous = true;
    }

    fn admit(&mut self, now: Moment, random: &mut Random) -> Result<(), StopReason> {
        let first = self.call.attempts == 0;
        if self.call.remaining(now).is_zero() {
            return Err(StopReason::Deadline);
        }
        if first && !allows_first_try(self.target.pressure(now), self.call.rank) {
            return Err(StopReason::Shed);
        }
        if self.target.throttles(self.call.failures, now, random) {
            return Err(StopReason::Throttle);
        }
        if !self.target.has_room() {
            return Err(StopReason::Limit);
        }
        // It may have changed its mind since the wait began.
        if self.call.retrying && !self.target.allows_retries(&self.call.own, now) {
            return Err(StopReason::Breaker);
        }
        match self.target.admit(&self.call.own, now) {
            BreakerPass::Free => self.call.trial = None,
            BreakerPass::Trial(round) => self.call.trial = Some(round),
            BreakerPass::Refused(after) => {
                self.call.hint = Some(after);
                return Err(StopReason::Breaker);
            }
        }
        if let Some(traffic) = self.target.traffic.as_mut().filter(|_| first) {
            traffic.first_try(now);
        }
        Ok(())
    }

    fn learn(&mut self, observation: Observation, now: Moment, random: &mut Random) {
        let call = &mut *self.call;
        call.hint = observation.hint;
        call.unprotected |= observation.unprotected;
        let took = now.saturating_sub(call.began);
        // The service runs it, or did: a call that gives up now does not know its outcome.
        call.ambiguous |= observation.doubt
            || matches!(
                observation.class,
                Class::Ambiguous
                    | Class::InProgress
                    | Class::Accepted
                    | Class::Pending
                    | Class::Ended
            );
        if matches!(observation.class, Class::Pending | Class::Ended) {
            // What a status URL says is about the operation, not about the target's health.
            return;
        }
        let trial = call.trial.take();
        self.target.learn(observation, (&mut call.own, trial), took, now, random);
        if observation.class.is_failure() {
            call.failures = call.failures.saturating_add(1);
            call.paid = 0;
        } else if observation.class.is_settled() {
            // A retry that met a busy key gets its price back with the answer that it waited for.
            let paid = core::mem::take(&mut call.paid);
            let earned = self.rules.budget.map_or(0, |budget| budget.success);
            call.own.got_back(paid);
            self.target.put_back(if paid == 0 { earned } else { paid });
            self.target.succeeded(call.route, took);
        }
    }

    fn refresh(&mut self, class: Class) -> Action {
        if self.call.body_gone || !self.call.may_repeat(class) {
            return Action::Stop(self.call.stop(StopReason::Unauthorised));
        }
        self.call.refreshed = true;
        self.call.retrying = false;
        Action::Refresh
    }

    /// The operation is carried out elsewhere: ask how it ends, then send the key for its answer.
    fn follow(&mut self, observation: Observation, now: Moment, random: &mut Random) -> Action {
        let ended = observation.class == Class::Ended;
        // The client acts on the first of them at once; a server that says so again and again waits.
        let wait = if ended && !core::mem::replace(&mut self.call.ended, true) {
            self.in_time(Duration::ZERO, None, now, random)
        } else {
            self.patience(observation, now, random)
        };
        self.call.retrying = false;
        match wait {
            Ok(_) if ended && !self.call.may_repeat(observation.class) => {
                Action::Stop(Stop::Unknown(StopReason::Unsafe))
            }
            Ok(_) if self.call.body_gone && ended => {
                Action::Stop(Stop::Unknown(StopReason::BodyGone))
            }
            Ok(wait) if ended => Action::Attempt { wait },
            Ok(wait) => Action::Poll { wait },
            Err(reason) => Action::Stop(Stop::Unknown(reason)),
        }
    }

    /// Another attempt with the same key runs: that is no failure, costs nothing and does not count.
    fn wait_for_owner(
        &mut self,
        observation: Observation,
        now: Moment,
        random: &mut Random,
    ) -> Action {
        let may = if !self.call.may_repeat(observation.class) {
            Err(StopReason::Unsafe)
        } else if self.call.body_gone {
            Err(StopReason::BodyGone)
        } else if self.call.nested {
            Err(StopReason::Nested)
        } else if self.rules.attempts == 1 {
            Err(StopReason::Attempts)
        } else {
            self.patience(observation, now, random)
        };
        self.call.retrying = false;
        match may {
            Ok(wait) => Action::Attempt { wait },
            // Another execution runs it: this call does not know its outcome.
            Err(reason) => Action::Stop(self.call.stop(reason)),
        }
    }

    /// The wait for something that is not ended yet.
    fn patience(
        &mut self,
        observation: Observation,
        now: Moment,
        random: &mut Random,
    ) -> Result<Duration, StopReason> {
        self.call.busy = self.call.busy.saturating_add(1);
        let own = self.rules.backoff.wait(self.call.busy, self.call.waited, random.next());
        self.in_time(own.clamp(POLL_INTERVAL / 100, POLL_INTERVAL), observation.hint, now, random)
    }

    /// Whether to try again, and after which wait; the order is that of the harm done by a mistake.
    fn retry(
        &mut self,
        observation: Observation,
        now: Moment,
        random: &mut Random,
    ) -> Result<Duration, StopReason> {
        let call = &mut *self.call;
        if call.last {
            return Err(StopReason::Answered);
        }
        if !call.may_repeat(observation.class) {
            return Err(StopReason::Unsafe);
        }
        if observation.last {
            return Err(StopReason::Answered);
        }
        if call.body_gone {
            return Err(StopReason::BodyGone);
        }
        if call.nested {
            return Err(StopReason::Nested);
        }
        if call.failures >= self.rules.attempts {
            return Err(StopReason::Attempts);
        }
        if !self.target.allows_retries(&call.own, now) {
            return Err(StopReason::Breaker);
        }
        let (pressure, saturation) = self.saturation(now);
        if !allows_retry(pressure, self.call.rank) {
            return Err(StopReason::Shed);
        }
        if !allows_retry(saturation, self.call.rank) {
            return Err(StopReason::Budget);
        }
        let backoff = match observation.class {
            Class::Overload => &self.rules.overload_backoff,
            _ => &self.rules.backoff,
        };
        let own = backoff.wait(self.call.failures, self.call.waited, random.next());
        let wait = self.in_time(widened(own, saturation), observation.hint, now, random)?;
        self.pay(observation, now)?;
        self.call.retrying = true;
        Ok(wait)
    }

    /// The longer of the own wait and the hint, if there is time for an attempt after it.
    fn in_time(
        &mut self,
        own: Duration,
        hint: Option<Duration>,
        now: Moment,
        random: &mut Random,
    ) -> Result<Duration, StopReason> {
        let hinted =
            hint.map_or(Duration::ZERO, |hint| hint.saturating_add(random.up_to(hint / 10)));
        let wait = own.max(hinted);
        if wait >= self.call.remaining(now) {
            return Err(StopReason::Deadline);
        }
        self.call.waited = wait;
        Ok(wait)
    }

    fn pay(&mut self, observation: Observation, now: Moment) -> Result<(), StopReason> {
        if self.target.traffic.as_mut().is_some_and(|traffic| !traffic.has_room(now)) {
            return Err(StopReason::Share);
        }
        let price = match (self.rules.budget, observation.class) {
            (None, _) => 0,
            // The server closed a connection that was idle: that is no sign of trouble, once.
            (_, Class::NeverSent { reused: true }) if !self.call.reconnected => {
                self.call.reconnected = true;
                0
            }
            (Some(budget), Class::Overload) if observation.hint.is_some() => budget.hinted,
            (Some(budget), _) => budget.retry,
        };
        if !self.target.pay(price) {
            return Err(StopReason::Budget);
        }
        if let Some(traffic) = &mut self.target.traffic {
            traffic.retry(now);
        }
        self.call.paid = price;
        self.call.own.paid(price);
        Ok(())
    }
}
