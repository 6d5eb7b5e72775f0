//! What is known of the upstream: one state for all routes, one for what has no route, and one for each
//! route that wants its own.
//!
//! A state has a [`TargetHandle`] of the library with budget, breaker and bulkhead, and beside it who holds how
//! many of the places at the upstream. Each has a mutex, which no task holds across an await.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{
    client::driver::{Environment, InFlightPermit, TargetHandle},
    retry::{Breaker, Circuit, Hedge, Limit, Moment, Rules, Share, ShareCounter},
    telemetry::{RejectReason, SentAs},
};
use serde_json::{Value, json};

use super::{
    answers::Answers,
    deliver::UpstreamPolicy,
    shares::{HeldShare, Holder, SharedShares},
    sockets::Sockets,
};
use crate::{config::Delivery, descriptors::Descriptors, observe::metrics};

/// There is only this upstream, and clients wait for it: the breaker tries it again soon, also after a long
/// outage. Three trials in a few seconds are no load.
const OPEN: Duration = Duration::from_secs(1);
const OPEN_MOST: Duration = Duration::from_secs(5);

/// The state of all routes that have none of their own.
const SHARED: &str = "shared";

/// The state of requests that no route speaks of: any client may send them anywhere, and what becomes of them
/// shall not close the upstream for others.
const UNMATCHED: &str = "unmatched";

/// All states; clones are the same. They outlive a configuration: what is at the upstream stays counted.
#[derive(Clone)]
pub(crate) struct UpstreamStates {
    known: Arc<Mutex<KnownStates>>,
    /// The answers of all states.
    pub(crate) answers: Answers,
    pub(crate) sockets: Sockets,
    pub(crate) descriptors: Descriptors,
}

#[derive(Default)]
struct KnownStates {
    /// Where they lead to, when they were last asked for.
    upstream: String,
    states: BTreeMap<String, Arc<UpstreamState>>,
    /// Each route has a number of its own, for as long as the process lives.
    numbers: HashMap<String, u32>,
}

/// What is known of the upstream by the requests of some routes.
pub(crate) struct UpstreamState {
    rules: Rules,
    started: Instant,
    pub(crate) target: Arc<TargetHandle>,
    /// For each route, how many of its requests were retries of clients: rule 27.
    traffic: Mutex<BTreeMap<u32, (Share, ShareCounter)>>,
    /// Who is at the upstream.
    pub(crate) shares: SharedShares,
    pub(crate) counts: Counts,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    attempts: AtomicU64,
    retries: AtomicU64,
    hedges: AtomicU64,
    rejected: AtomicU64,
}

impl UpstreamStates {
    pub(crate) fn new(descriptors: Descriptors) -> Self {
        let sockets = Sockets::new(descriptors.upstream());
        Self { known: Arc::default(), answers: Answers::new(), sockets, descriptors }
    }

    /// The state for a route, and the route's number. Without a label it is for what has no route.
    pub(crate) fn of(
        &self,
        upstream: &str,
        label: Option<&str>,
        delivery: &Delivery,
    ) -> (Arc<UpstreamState>, u32) {
        let mut known = lock(&self.known);
        if known.upstream != upstream {
            // Another upstream is not to be judged by this one.
            known.states.clear();
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
        let state = known.states.get(name).filter(|state| state.rules == rules).cloned();
        let state = state.unwrap_or_else(|| {
            let state = Arc::new(UpstreamState::new(rules));
            known.states.insert(name.to_owned(), state.clone());
            state
        });
        (state, number)
    }

    pub(crate) fn keep<'a>(&self, used: impl Iterator<Item = &'a UpstreamPolicy>) {
        let used: Vec<&Arc<UpstreamState>> = used.map(|policy| &policy.state).collect();
        let is_used = |state: &Arc<UpstreamState>| used.iter().any(|used| Arc::ptr_eq(used, state));
        lock(&self.known).states.retain(|_, state| is_used(state));
    }

    pub(crate) fn document(&self) -> Value {
        let known = lock(&self.known);
        let states = known.states.iter().map(|(name, state)| state.document(name));
        json!({ "upstream": known.upstream, "states": states.collect::<Vec<_>>() })
    }

    pub(crate) fn measure(&self) {
        let states: Vec<_> = lock(&self.known).states.values().cloned().collect();
        let (mut in_flight, mut left) = (0, None);
        let mut circuits = [0; Circuit::ALL.len()];
        for state in states {
            let now = state.now();
            state.target.with(|target| {
                in_flight += u64::from(target.in_flight());
                left = left.into_iter().chain(target.budget_left()).min();
                circuits[target.circuit(now) as usize] += 1;
            });
        }
        metrics::UPSTREAM_IN_FLIGHT.set(in_flight);
        metrics::RETRY_BUDGET.set(left.unwrap_or_default().into());
        for circuit in Circuit::ALL {
            metrics::CIRCUITS.set_of(circuit, circuits[circuit as usize]);
        }
    }
}

/// The rules of a state; a call goes by those of its route.
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

impl UpstreamState {
    fn new(rules: Rules) -> Self {
        let (target, started) = (TargetHandle::new(&rules), Instant::now());
        let (traffic, shares) = (Mutex::default(), SharedShares::default());
        Self { rules, started, target, traffic, shares, counts: Counts::default() }
    }

    /// Why this request would not be let through now: a look, which changes nothing.
    pub(crate) fn is_shut(&self, holder: &Holder) -> Option<RejectReason> {
        let now = self.now();
        let (circuit, in_flight, limit) =
            self.target.with(|target| (target.circuit(now), target.in_flight(), target.limit()));
        if circuit == Circuit::Open {
            return Some(RejectReason::Breaker);
        }
        if in_flight >= limit {
            return Some(RejectReason::Limit);
        }
        (!self.shares.admit(holder, limit)).then_some(RejectReason::Share)
    }

    /// Counts a request of a client, and takes a place for it, if its shares allow that.
    pub(crate) fn admit(
        &self,
        holder: Holder,
        (route, share): (u32, Share),
        is_retry: bool,
    ) -> Result<HeldShare, RejectReason> {
        if !self.admits(route, share, is_retry) {
            return Err(RejectReason::RetryShare);
        }
        let limit = self.target.with(|target| target.limit());
        self.shares.try_take(holder, limit).ok_or(RejectReason::Share)
    }

    /// Counts a request of a client; `false`: it is a retry, and there are too many of them.
    fn admits(&self, route: u32, share: Share, is_retry: bool) -> bool {
        let (now, fresh) = (self.now(), || (share, ShareCounter::new(share)));
        let mut traffic = lock(&self.traffic);
        let counted = traffic.entry(route).or_insert_with(fresh);
        if counted.0 != share {
            *counted = fresh();
        }
        if is_retry {
            return counted.1.admits_retry(now);
        }
        counted.1.first_try(now);
        true
    }

    fn document(&self, name: &str) -> Value {
        let now = self.now();
        self.target.with(|target| {
            let budget = target.budget_capacity().zip(target.budget_left());
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            json!({
                "name": name,
                "circuit": target.circuit(now).as_str(),
                "in_flight": target.in_flight(),
                "limit": target.limit(),
                "saturation": (target.saturation(now) * 1000.0).round() / 1000.0,
                "budget": budget.map(|(capacity, left)| json!({"left": left, "capacity": capacity})),
                "attempts": count(&self.counts.attempts),
                "retries": count(&self.counts.retries),
                "hedges": count(&self.counts.hedges),
                "rejected": count(&self.counts.rejected),
            })
        })
    }
}

impl Environment for UpstreamState {
    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    fn random(&self) -> u64 {
        fastrand::u64(..)
    }
}

impl Counts {
    pub(crate) fn sent(&self, sent_as: SentAs) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        match sent_as {
            SentAs::First => {}
            SentAs::Retry => add_one(&self.retries),
            SentAs::Hedge => add_one(&self.hedges),
        }
    }

    pub(crate) fn reject(&self) {
        add_one(&self.rejected);
    }
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A request at the upstream: it is there until its answer has begun, or with a limit of its own until it
/// was read to the end, or dropped.
pub(crate) struct InFlight {
    _permit: InFlightPermit,
    _share: HeldShare,
}

impl InFlight {
    pub(crate) fn new(permit: InFlightPermit, share: HeldShare) -> Self {
        Self { _permit: permit, _share: share }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
