//! What is known of the upstream: one room for all routes, one for what has no route, and one for each
//! route that wants its own.
//!
//! A room is a [`Target`] of the core with its budget, breaker and bulkhead. Requests go through it in
//! short sections under a mutex: one before an attempt, one after it, one when its answer has ended.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use onceward::{
    retry::{
        Breaker, Call, Circuit, Context, Hedge, Limit, Moment, Rules, Share, ShareCounter, Target,
    },
    telemetry::{self, CircuitState, RejectReason},
};
use serde_json::{Value, json};

use super::{
    answers::{Answer, Answers},
    deliver::UpstreamPolicy,
    shares::{Holder, Shares},
    sockets::Sockets,
};
use crate::{config::Delivery, descriptors::Descriptors};

/// The upstream is all there is, and clients wait for it: it is looked at again soon, also after a long
/// outage. Three trials in a few seconds are no load.
const OPEN: Duration = Duration::from_secs(1);
const OPEN_MOST: Duration = Duration::from_secs(5);

/// The room of all routes that have none of their own.
const SHARED: &str = "shared";

/// The room of requests that no route speaks of: anybody may send them anywhere, and what becomes of them
/// shall not close the upstream for others.
const UNMATCHED: &str = "unmatched";

/// All rooms; clones are the same. They outlive a configuration: what is at the upstream stays counted.
#[derive(Clone)]
pub(crate) struct UpstreamStates {
    known: Arc<Mutex<KnownStates>>,
    /// The answers of all rooms.
    pub(super) answers: Answers,
    pub(super) sockets: Sockets,
    pub(super) descriptors: Descriptors,
}

#[derive(Default)]
struct KnownStates {
    /// Where they lead to, when they were last asked for.
    upstream: String,
    upstream_states: BTreeMap<String, Arc<UpstreamState>>,
    /// Each route has a number of its own, for as long as the process lives.
    numbers: HashMap<String, u32>,
}

/// One room.
pub(crate) struct UpstreamState {
    rules: Rules,
    started: Instant,
    inside: Mutex<Inside>,
}

pub(super) struct Inside {
    target: Target,
    /// For each route, how many of its requests were retries of clients: rule 27.
    traffic: BTreeMap<u32, (Share, ShareCounter)>,
    /// Who is at the upstream.
    shares: Shares,
    pub(super) counts: Counts,
}

/// Since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) attempts: u64,
    pub(super) retries: u64,
    pub(super) hedges: u64,
    pub(super) rejected: u64,
}

impl UpstreamStates {
    pub(super) fn new(descriptors: Descriptors) -> Self {
        let sockets = Sockets::new(descriptors.upstream());
        Self { known: Arc::default(), answers: Answers::new(), sockets, descriptors }
    }

    /// The room for a route, and the route's number. Without a label it is for what has no route.
    pub(super) fn of(
        &self,
        upstream: &str,
        label: Option<&str>,
        delivery: &Delivery,
    ) -> (Arc<UpstreamState>, u32) {
        let mut known = lock(&self.known);
        if known.upstream != upstream {
            // Another upstream is not to be judged by this one.
            known.upstream_states.clear();
            known.upstream = upstream.to_owned();
        }
        let next = u32::try_from(known.numbers.len()).unwrap_or(u32::MAX);
        let number = *known.numbers.entry(label.unwrap_or_default().to_owned()).or_insert(next);
        let is_own = delivery.limit.is_some() || !delivery.breaker;
        let name = match label {
            Some(label) if is_own => label,
            Some(_) => SHARED,
            None => UNMATCHED,
        };
        let rules = rules(delivery);
        let state = known.upstream_states.get(name).filter(|state| state.rules == rules).cloned();
        let state = state.unwrap_or_else(|| {
            let state = Arc::new(UpstreamState::new(rules));
            known.upstream_states.insert(name.to_owned(), state.clone());
            state
        });
        (state, number)
    }

    /// Forgets the rooms that no route uses any more.
    pub(super) fn keep<'a>(&self, used: impl Iterator<Item = &'a UpstreamPolicy>) {
        let used: Vec<&Arc<UpstreamState>> = used.map(|way| &way.state).collect();
        let is_used = |state: &Arc<UpstreamState>| used.iter().any(|used| Arc::ptr_eq(used, state));
        lock(&self.known).upstream_states.retain(|_, state| is_used(state));
    }

    /// Everything about them, for operators.
    pub(crate) fn document(&self) -> Value {
        let known = lock(&self.known);
        let upstream_states =
            known.upstream_states.iter().map(|(name, state)| state.document(name));
        json!({ "upstream": known.upstream, "rooms": upstream_states.collect::<Vec<_>>() })
    }

    /// Sets the gauges.
    pub(crate) fn measure(&self) {
        let upstream_states: Vec<_> = lock(&self.known).upstream_states.values().cloned().collect();
        let (mut in_flight, mut left) = (0, None);
        let mut circuits = [0; 4];
        for state in upstream_states {
            let now = state.now();
            let mut inside = state.enter();
            in_flight += u64::from(inside.target.in_flight());
            left = left.into_iter().chain(inside.target.budget_left()).min();
            circuits[circuit_state(inside.target.circuit(now)) as usize] += 1;
        }
        telemetry::UPSTREAM_IN_FLIGHT.set(in_flight);
        telemetry::RETRY_BUDGET.set(left.unwrap_or_default().into());
        for state in [
            CircuitState::Closed,
            CircuitState::Guarded,
            CircuitState::Open,
            CircuitState::HalfOpen,
        ] {
            telemetry::CIRCUITS.set_of(state, circuits[state as usize]);
        }
    }
}

/// What a room is made by; the numbers of a call are its route's.
fn rules(delivery: &Delivery) -> Rules {
    let limit = delivery.limit.map_or(Limit::standard(), Limit::Fixed);
    let breaker = Breaker { open: OPEN, open_most: OPEN_MOST, ..Breaker::standard() };
    let builder = Rules::standard().to_builder().limit(limit).hedge(Hedge::standard());
    let builder = match delivery.breaker {
        true => builder.breaker(breaker),
        false => builder.without_breaker(),
    };
    builder.build().expect("the limit was checked with the configuration")
}

fn circuit_state(circuit: Circuit) -> CircuitState {
    match circuit {
        Circuit::Closed => CircuitState::Closed,
        Circuit::Guarded => CircuitState::Guarded,
        Circuit::Open => CircuitState::Open,
        Circuit::HalfOpen => CircuitState::HalfOpen,
    }
}

impl UpstreamState {
    fn new(rules: Rules) -> Self {
        let target = Target::new(&rules);
        let inside = Inside {
            target,
            traffic: BTreeMap::new(),
            shares: Shares::default(),
            counts: Counts::default(),
        };
        Self { rules, started: Instant::now(), inside: Mutex::new(inside) }
    }

    /// The time as the core counts it.
    pub(super) fn now(&self) -> Moment {
        self.started.elapsed()
    }

    pub(super) fn enter(&self) -> MutexGuard<'_, Inside> {
        lock(&self.inside)
    }

    /// Why this request would not be let through now: a look, which changes nothing.
    pub(super) fn is_shut(&self, holder: &Holder) -> Option<RejectReason> {
        let now = self.now();
        let inside = &mut *self.enter();
        if inside.target.circuit(now) == Circuit::Open {
            return Some(RejectReason::Breaker);
        }
        if inside.target.in_flight() >= inside.target.limit() {
            return Some(RejectReason::Limit);
        }
        (!inside.has_share(holder)).then_some(RejectReason::Share)
    }

    /// One call by these rules can use all its attempts.
    pub(super) fn fit(&self, rules: &Rules) {
        self.enter().target.fit(rules);
    }

    /// Counts a request that is sent, until it is dropped.
    pub(super) fn flight(
        self: &Arc<Self>,
        inside: &mut Inside,
        holder: Holder,
        answer: Answer,
    ) -> InFlightPermit {
        inside.shares.take(&holder);
        InFlightPermit { state: self.clone(), holder, answer }
    }

    fn document(&self, name: &str) -> Value {
        let now = self.now();
        let Inside { target, counts, .. } = &mut *self.enter();
        let budget = target.budget_capacity().zip(target.budget_left());
        json!({
            "name": name,
            "circuit": target.circuit(now).name(),
            "in_flight": target.in_flight(),
            "limit": target.limit(),
            "saturation": (target.saturation(now) * 1000.0).round() / 1000.0,
            "budget": budget.map(|(capacity, left)| json!({"left": left, "capacity": capacity})),
            "attempts": counts.attempts,
            "retries": counts.retries,
            "hedges": counts.hedges,
            "rejected": counts.rejected,
        })
    }
}

impl Inside {
    pub(super) fn context<'a>(&'a mut self, rules: &'a Rules, call: &'a mut Call) -> Context<'a> {
        Context { rules, call, target: &mut self.target }
    }

    /// Whether the shares of a request leave a place for it.
    pub(super) fn has_share(&self, holder: &Holder) -> bool {
        self.shares.admit(holder, self.target.limit())
    }

    /// Counts a request of a client; `false`: it is a retry, and there are too many of them.
    pub(super) fn admits(&mut self, route: u32, share: Share, is_retry: bool, now: Moment) -> bool {
        let fresh = || (share, ShareCounter::new(share));
        let traffic = self.traffic.entry(route).or_insert_with(fresh);
        if traffic.0 != share {
            *traffic = fresh();
        }
        if is_retry {
            return traffic.1.admits_retry(now);
        }
        traffic.1.first_try(now);
        true
    }
}

/// A request at the upstream: it is there until its answer has begun, or with a limit of its own until it
/// was read to the end, or dropped.
pub(super) struct InFlightPermit {
    state: Arc<UpstreamState>,
    holder: Holder,
    /// What it is to be answered with.
    pub(super) answer: Answer,
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut inside = self.state.enter();
        inside.target.landed();
        inside.shares.give_back(&self.holder);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
