//! What is known of one target: the memory that all calls to it share.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::{
    BudgetBalance, Circuit, Class, Hedge, Moment, Observation, Rules, ShareCounter,
    breaker::{BreakerPass, BreakerState, Ended},
    hedge::HedgeBalance,
    latency::Latency,
    limit::InFlight,
    own::OwnEffect,
    random::Random,
    saturation,
    throttle::ThrottleHistory,
};

/// With more routes than this, the further ones share their latencies.
const ROUTES: u32 = 64;

/// One target: its budget, breaker, throttle, latencies, and how many calls it has in flight.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Circuit, Rules, Target};
///
/// let mut target = Target::new(&Rules::standard());
/// assert_eq!(target.budget_left(), Some(30));
/// assert_eq!(target.circuit(Duration::ZERO), Circuit::Closed);
/// assert_eq!(target.saturation(Duration::ZERO), 0.0);
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) balance: Option<BudgetBalance>,
    pub(super) traffic: Option<ShareCounter>,
    breaker: Option<BreakerState>,
    throttle: Option<ThrottleHistory>,
    hedges: Option<(Hedge, HedgeBalance)>,
    latencies: BTreeMap<u32, Latency>,
    flights: InFlight,
}

impl Target {
    /// A target of which nothing is known yet.
    #[must_use]
    pub fn new(rules: &Rules) -> Self {
        Self {
            balance: rules
                .budget
                .map(|budget| BudgetBalance::new(budget.for_attempts(rules.attempts))),
            traffic: rules.share.map(ShareCounter::new),
            breaker: rules.breaker.map(BreakerState::new),
            throttle: rules.throttle.map(ThrottleHistory::new),
            hedges: rules.hedge.map(|hedge| (hedge, HedgeBalance::new(&hedge))),
            latencies: BTreeMap::new(),
            flights: InFlight::new(rules.limit),
        }
    }

    /// One call by these rules can use all its attempts, as one by the rules that it was made with can:
    /// for a target whose calls go by several rules.
    ///
    /// ```
    /// use onceward_core::retry::{Rules, Target};
    ///
    /// let mut target = Target::new(&Rules::standard());
    /// target.fit(&Rules::patient());
    /// assert_eq!(target.budget_left(), Some(70), "seven retries cost 10 each");
    /// ```
    pub fn fit(&mut self, rules: &Rules) {
        if let (Some(balance), Some(budget)) = (&mut self.balance, rules.budget) {
            balance.fit(budget.for_attempts(rules.attempts));
        }
    }

    /// What is left to pay retries with.
    #[must_use]
    pub fn budget_left(&self) -> Option<u32> {
        self.balance.as_ref().map(BudgetBalance::left)
    }

    /// What its budget holds at most.
    #[must_use]
    pub fn budget_capacity(&self) -> Option<u32> {
        self.balance.as_ref().map(BudgetBalance::capacity)
    }

    /// What its breaker lets through.
    #[must_use]
    pub fn circuit(&mut self, now: Moment) -> Circuit {
        self.breaker.as_mut().map_or(Circuit::Closed, |breaker| breaker.circuit(now))
    }

    /// How many calls are in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.flights.in_flight
    }

    /// How many may be.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.flights.limit()
    }

    /// How overloaded the target is, from 0 to 1.
    #[must_use]
    pub fn saturation(&mut self, now: Moment) -> f64 {
        let need = self.balance.as_ref().map_or(0.0, BudgetBalance::need);
        self.pressure(now).max(need)
    }

    /// An attempt has left nothing behind any more: its answer was read to the end, or dropped.
    ///
    /// To be called once for each attempt that [`begin`](super::Context::begin) or
    /// [`hedge`](super::Context::hedge) let go.
    pub fn landed(&mut self) {
        self.flights.in_flight = self.flights.in_flight.saturating_sub(1);
    }

    /// The saturation without the budget.
    pub(super) fn pressure(&mut self, now: Moment) -> f64 {
        self.pressure_without(0, now)
    }

    /// The same, as if a call had not failed so often.
    pub(super) fn pressure_without(&mut self, failures: u32, now: Moment) -> f64 {
        let throttle = self.throttle.as_mut();
        let chance = throttle.map_or(0.0, |throttle| throttle.chance_without(failures, now));
        chance.max(self.flights.use_of())
    }

    /// How near its budget is to being empty, without what this call has paid.
    pub(super) fn need_without(&self, own: &OwnEffect) -> f64 {
        self.balance.as_ref().map_or(0.0, |balance| balance.need_without(own.spent))
    }

    pub(super) fn throttles(&mut self, failures: u32, now: Moment, random: &mut Random) -> bool {
        let Some(throttle) = &mut self.throttle else { return false };
        let refused = random.unit() < throttle.chance_without(failures, now);
        throttle.asked(now);
        refused
    }

    pub(super) fn has_room(&self) -> bool {
        self.flights.has_room()
    }

    pub(super) fn take_off(&mut self) {
        self.flights.in_flight = self.flights.in_flight.saturating_add(1);
    }

    pub(super) fn allows_retries(&mut self, own: &OwnEffect, now: Moment) -> bool {
        self.breaker.as_mut().is_none_or(|breaker| breaker.allows_retries(own, now))
    }

    pub(super) fn admit(&mut self, own: &OwnEffect, now: Moment) -> BreakerPass {
        self.breaker.as_mut().map_or(BreakerPass::Free, |breaker| breaker.admit(own, now))
    }

    pub(super) fn give_back_trial(&mut self, round: u32) {
        if let Some(breaker) = &mut self.breaker {
            breaker.give_back_trial(round);
        }
    }

    pub(super) fn pay(&mut self, price: u32) -> bool {
        self.balance.as_mut().is_none_or(|balance| balance.pay(price))
    }

    pub(super) fn put_back(&mut self, paid: u32) {
        if let Some(balance) = &mut self.balance {
            balance.put(paid);
        }
    }

    /// One attempt of a call ended so, after this time.
    pub(super) fn learn(
        &mut self,
        observation: Observation,
        (own, trial): (&mut OwnEffect, Option<u32>),
        took: Duration,
        now: Moment,
        random: &mut Random,
    ) {
        let failed = observation.class.is_failure();
        if let Some(breaker) = &mut self.breaker {
            let hint = observation.hint.filter(|_| observation.class == Class::Overload);
            breaker.ended(
                Ended { failed, alive: observation.alive, trial, hint },
                own,
                now,
                random,
            );
        }
        if let Some(throttle) = self.throttle.as_mut().filter(|_| !failed) {
            throttle.accepted(now);
        }
        self.flights.ended(took, observation.class, now);
    }

    /// The target answered a call that no hedge or retry had asked in vain.
    pub(super) fn succeeded(&mut self, route: u32, took: Duration) {
        if let Some((hedge, balance)) = &mut self.hedges {
            balance.success();
            let latency = self.latencies.entry(route.min(ROUTES));
            latency.or_insert_with(|| Latency::new(hedge.quantile)).add(took);
        }
    }

    /// After which time an answer of this route is late.
    pub(super) fn late_after(&self, route: u32) -> Option<Duration> {
        let (hedge, _) = self.hedges.as_ref()?;
        let late = self.latencies.get(&route.min(ROUTES))?.quantile(hedge.samples)?;
        Some(saturation::times(late, hedge.stretch))
    }

    pub(super) fn pay_hedge(&mut self, price: u32) -> bool {
        let enough = self.hedges.as_ref().is_some_and(|(_, balance)| balance.has_one());
        if !enough || !self.pay(price) {
            return false;
        }
        if let Some((_, balance)) = &mut self.hedges {
            balance.pay();
        }
        true
    }
}
