//! The shipped code as a contender: `onceward::retry`, with the rules that it ships with.

use std::time::Duration;

use onceward::retry::{
    Action, Backoff, Call, Class, Context, Hedge, Limit, Method, Permit, Rules, RulesBuilder,
    Target, decide,
};

use super::{
    agenda::{Nanos, nanos},
    policy::{Next, Ongoing, Origin, Outcome, Policy, Start},
    random::Random,
};

pub(super) fn standard(attempts: u32) -> Rules {
    built(Rules::standard().to_builder().attempts(attempts))
}

pub(super) fn timed(attempts: u32, attempt_timeout: Nanos, deadline: Nanos) -> Rules {
    let timeout = Duration::from_nanos(attempt_timeout);
    let rules = Rules::standard().to_builder().attempts(attempts).attempt_timeout(timeout);
    built(rules.deadline(Duration::from_nanos(deadline)))
}

pub(super) fn unbroken(rules: &Rules) -> Rules {
    built(rules.to_builder().without_breaker())
}

/// Nothing but the backoff: the study asks how waits spread, and every client writes in the end.
pub(super) fn contention(base: Nanos, cap: Nanos) -> Rules {
    let backoff =
        Backoff::Full { base: Duration::from_nanos(base), cap: Duration::from_nanos(cap) };
    let long = Duration::from_secs(24 * 60 * 60);
    let rules = Rules::standard().to_builder().attempts(u32::MAX).deadline(long);
    built(rules.attempt_timeout(long).backoff(backoff).without_budget().without_breaker())
}

/// The shipped defaults and hedging, after `stretch` times the observed 95th percentile.
pub(super) fn hedging(stretch: f64) -> Rules {
    let rules = Rules::standard().to_builder().limit(Limit::standard());
    built(rules.hedge(Hedge { stretch, ..Hedge::standard() }))
}

fn built(rules: RulesBuilder) -> Rules {
    rules.build().expect("a scenario's rules make sense, as its test shows")
}

pub(super) struct Ours {
    rules: Rules,
    target: Target,
}

impl Ours {
    pub(super) fn new(rules: &Rules) -> Self {
        Self { target: Target::new(rules), rules: rules.clone() }
    }

    fn context<'a>(&'a mut self, call: &'a mut Ongoing) -> Context<'a> {
        let call = call.call.as_mut().expect("every call of ours was opened by us");
        Context { rules: &self.rules, call, target: &mut self.target }
    }

    /// Leave for an attempt, with the time after which it may be hedged.
    pub(super) fn permit(
        &mut self,
        call: &mut Ongoing,
        now: Nanos,
        random: &mut Random,
    ) -> Option<Permit> {
        let permit = self.context(call).begin(Duration::from_nanos(now), random.bits()).ok();
        call.attempts += u32::from(permit.is_some());
        permit
    }

    pub(super) fn hedge(&mut self, call: &mut Ongoing, now: Nanos) -> bool {
        self.context(call).hedge(Duration::from_nanos(now))
    }

    pub(super) fn hedge_won(&mut self, call: &mut Ongoing) {
        self.context(call).hedge_won();
    }

    /// A request that was sent is over, also one that no call waited for.
    pub(super) fn landed(&mut self) {
        self.target.landed();
    }
}

impl Policy for Ours {
    /// A write with a key: what this product is for, and what may always be repeated.
    fn open(&mut self, origin: Origin, now: Nanos) -> Ongoing {
        let since = Duration::from_nanos(now);
        let mut call = Call::new(&self.rules, Method::of("POST"), since)
            .keyed()
            .within(Duration::from_nanos(origin.within), since);
        if origin.nested {
            call = call.nested();
        }
        let until = now.saturating_add(nanos(call.remaining(since)));
        Ongoing { call: Some(call), ..Ongoing::new(now, until) }
    }

    fn begin(&mut self, call: &mut Ongoing, now: Nanos, random: &mut Random) -> Start {
        match self.permit(call, now, random) {
            Some(permit) => Start::Permit { timeout: nanos(permit.timeout) },
            None => Start::Stop,
        }
    }

    fn ended(
        &mut self,
        call: &mut Ongoing,
        outcome: Outcome,
        now: Nanos,
        random: &mut Random,
    ) -> Next {
        let class = match outcome {
            Outcome::Success => Class::Success,
            Outcome::Fault => Class::ServerFault,
            Outcome::TimedOut => Class::Ambiguous,
            Outcome::Refused => Class::Overload,
        };
        let mut context = self.context(call);
        let action = decide(&mut context, class.into(), Duration::from_nanos(now), random.bits());
        self.landed();
        match action {
            Action::Succeed => Next::Succeed,
            Action::Attempt { wait } => Next::Attempt { wait: nanos(wait) },
            // No scenario answers 202 or 401, so nothing else than a stop is left.
            Action::Stop(_) | Action::Poll { .. } | Action::Refresh => Next::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::agenda::{MILLISECOND, SECOND};
    use super::*;
    use onceward::retry::{Breaker, Budget};

    /// The figures speak for what ships only if a scenario changes nothing but what it is about.
    #[test]
    fn a_scenario_has_the_shipped_rules_but_for_what_it_is_about() {
        let shipped = Rules::standard();
        assert_eq!(standard(shipped.attempts()), shipped);
        assert_eq!(standard(7).attempts(), 7);
        let timed = timed(4, 200 * MILLISECOND, SECOND);
        let times = (timed.attempts(), timed.attempt_timeout(), timed.deadline());
        assert_eq!(times, (4, Duration::from_millis(200), Duration::from_secs(1)));
        let back = timed.to_builder().attempts(shipped.attempts()).deadline(shipped.deadline());
        assert_eq!(built(back.attempt_timeout(shipped.attempt_timeout())), shipped);
        let hedging = hedging(2.5);
        assert_eq!(hedging.hedge(), Some(Hedge { stretch: 2.5, ..Hedge::standard() }));
        assert_eq!(built(hedging.to_builder().without_hedge()), shipped);
    }

    #[test]
    fn only_without_a_breaker_and_a_budget_is_every_failure_tried_again() {
        let mut random = Random::new(1, 0);
        let mut tries = |rules: &Rules| {
            let mut ours = Ours::new(rules);
            // Two that take turns: what one fails at is held against the other.
            let mut calls = [ours.open(Origin::FIRST, 0), ours.open(Origin::FIRST, 0)];
            let mut goes_on = |now: &Nanos| {
                calls.rotate_left(1);
                let call = &mut calls[0];
                matches!(ours.begin(call, *now, &mut random), Start::Permit { .. })
                    && ours.ended(call, Outcome::Fault, *now, &mut random) != Next::GiveUp
            };
            (0..1000).map(|number| number * MILLISECOND).take_while(|now| goes_on(now)).count()
        };
        let contention = contention(10 * MILLISECOND, 20 * MILLISECOND);
        assert_eq!(tries(&contention), 1000);
        let with_breaker = contention.to_builder().breaker(Breaker::standard());
        let with_breaker = built(with_breaker);
        assert!(tries(&with_breaker) < 1000);
        assert_eq!(tries(&unbroken(&with_breaker)), 1000);
        assert!(tries(&built(contention.to_builder().budget(Budget::standard()))) < 1000);
    }

    #[test]
    fn a_call_is_told_to_wait_and_then_to_stop() {
        let mut random = Random::new(1, 0);
        let mut ours = Ours::new(&standard(2));
        let mut call = ours.open(Origin::FIRST, 0);
        assert_eq!(ours.begin(&mut call, 0, &mut random), Start::Permit { timeout: 4 * SECOND });
        let next = ours.ended(&mut call, Outcome::TimedOut, SECOND, &mut random);
        assert!(matches!(next, Next::Attempt { wait } if wait <= 50 * MILLISECOND), "{next:?}");
        ours.begin(&mut call, 2 * SECOND, &mut random);
        assert_eq!(ours.ended(&mut call, Outcome::Fault, 3 * SECOND, &mut random), Next::GiveUp);
        let nested = Origin { nested: true, within: 100 * MILLISECOND };
        let mut call = ours.open(nested, 4 * SECOND);
        let timeout = 100 * MILLISECOND;
        assert_eq!(ours.begin(&mut call, 4 * SECOND, &mut random), Start::Permit { timeout });
        let now = 4 * SECOND + 1;
        assert_eq!(ours.ended(&mut call, Outcome::Fault, now, &mut random), Next::GiveUp);
    }
}
