//! Other people's policies, modelled after their source or documentation of autumn 2026.
//!
//! Each has its own backoff and budget with the defaults it ships with; attempts and time-outs are the
//! scenario's, the same for all. What is modelled after what is said at each of them.

mod budgets;

use super::{
    agenda::{MILLISECOND, Nanos, SECOND},
    ours::{self, Ours},
    policy::{Contender, Next, Ongoing, Origin, Outcome, Policy, Start},
    random::Random,
};
use budgets::{Bucket, Throttle};
pub(super) use budgets::{Budget, Unlimited, Window};

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) attempts: u32,
    pub(super) attempt_timeout: Nanos,
    pub(super) deadline: Nanos,
}

/// A peer: attempts are counted, waits grow, and a budget may say no.
pub(super) struct Peer<B> {
    limits: Limits,
    backoff: Backoff,
    budget: B,
}

pub(super) enum Backoff {
    None,
    /// `base · 2^n`, the same for all.
    Exponential {
        base: Nanos,
        cap: Nanos,
    },
    /// Half of that, and chance for the other half.
    Equal {
        base: Nanos,
        cap: Nanos,
    },
    Full {
        base: Nanos,
        cap: Nanos,
    },
    /// Three times the last wait at most.
    Decorrelated {
        base: Nanos,
        cap: Nanos,
    },
    /// tower 0.5 `ExponentialBackoff`: chance is added to the bound and cut off at the cap. Its generator
    /// is cloned for each call, so that all calls of a process draw the same numbers.
    Tower {
        base: Nanos,
        cap: Nanos,
        draws: Vec<f64>,
    },
}

impl Backoff {
    /// `draws` of one process. Eight are more than any scenario has attempts before the cap.
    pub(super) fn tower(base: Nanos, cap: Nanos, random: &mut Random) -> Self {
        Self::Tower { base, cap, draws: (0..8).map(|_| random.unit()).collect() }
    }

    pub(super) fn wait(&self, count: u32, before: Nanos, random: &mut Random) -> Nanos {
        let bound = |base: Nanos, cap: Nanos| {
            base.saturating_mul(1_u64.checked_shl(count - 1).unwrap_or(u64::MAX)).min(cap)
        };
        match *self {
            Self::None => 0,
            Self::Exponential { base, cap } => bound(base, cap),
            Self::Equal { base, cap } => {
                let half = bound(base, cap) / 2;
                half + random.up_to(half)
            }
            Self::Full { base, cap } => random.up_to(bound(base, cap)),
            Self::Decorrelated { base, cap } => {
                let most = before.max(base).saturating_mul(3);
                (base + random.up_to(most - base)).min(cap)
            }
            Self::Tower { base, cap, ref draws } => {
                let bound = bound(base, cap);
                let draw = draws.get(count as usize - 1).copied().unwrap_or(1.0);
                bound + ((bound as f64 * 0.99 * draw) as Nanos).min(cap - bound)
            }
        }
    }
}

impl<B: Budget> Peer<B> {
    pub(super) fn new(limits: Limits, backoff: Backoff, budget: B) -> Self {
        Self { limits, backoff, budget }
    }
}

impl<B: Budget> Policy for Peer<B> {
    fn open(&mut self, _: Origin, now: Nanos) -> Ongoing {
        self.budget.opened(now);
        Ongoing::new(now, now.saturating_add(self.limits.deadline))
    }

    fn begin(&mut self, call: &mut Ongoing, now: Nanos, _: &mut Random) -> Start {
        call.attempts += 1;
        Start::Permit { timeout: self.limits.attempt_timeout.min(call.until.saturating_sub(now)) }
    }

    fn ended(
        &mut self,
        call: &mut Ongoing,
        outcome: Outcome,
        now: Nanos,
        random: &mut Random,
    ) -> Next {
        if outcome == Outcome::Success {
            self.budget.succeeded(call, now);
            return Next::Succeed;
        }
        self.budget.failed(now);
        if call.attempts >= self.limits.attempts {
            return Next::GiveUp;
        }
        let wait = self.backoff.wait(call.attempts, call.waited, random);
        if now.saturating_add(wait) >= call.until {
            return Next::GiveUp;
        }
        let Some(paid) = self.budget.pay(outcome, now) else {
            return Next::GiveUp;
        };
        call.paid = paid;
        call.waited = wait;
        Next::Attempt { wait }
    }
}

/// All of them, the one that never retries, and the shipped code.
pub(super) fn beside_ours(limits: Limits) -> Vec<Contender> {
    let mut all = vec![none(limits)];
    all.extend(self::all(limits));
    let rules = ours::standard(limits.attempts);
    all.push(Contender::new("onceward", move |_| Ours::new(&rules)).ours());
    all
}

/// All of them but the one that never retries.
pub(super) fn all(limits: Limits) -> Vec<Contender> {
    let aws = move |base, cost, timeout_cost| {
        let backoff = Backoff::Full { base, cap: 20 * SECOND };
        Peer::new(limits, backoff, Bucket::aws(cost, timeout_cost))
    };
    vec![
        Contender::new(RETRIES, move |_| Peer::new(limits, Backoff::None, Unlimited)),
        // `RetryBudget()` gives 20 % of the requests of the last 10 s and 10 a second on top; every
        // request pays in as it starts (`RequeueFilter.apply`), and requeues do not wait.
        Contender::new("Finagle", move |_| {
            Peer::new(limits, Backoff::None, Window::new(Window::DEPOSIT_BY_REQUEST))
        }),
        // tower 0.5: `TpsBudget::default()` has the same numbers; a policy pays in on success, as its
        // example does. Waits are `ExponentialBackoffMaker::default()`: 50 ms, jitter 0.99.
        Contender::new("tower", move |random| {
            let backoff = Backoff::tower(50 * MILLISECOND, Nanos::MAX, random);
            Peer::new(limits, backoff, Window::new(Window::DEPOSIT_BY_SUCCESS))
        }),
        // The standard mode before 2026: a bucket of 500; a retry costs 5, after a time-out 10; a
        // success returns what its retry cost, or 1. Waits: chance × 2^n seconds up to 20 s.
        Contender::new("AWS 2.0", move |_| aws(SECOND, 5.0, 10.0)),
        // "Retry behaviour 2.1" (`AWS_NEW_RETRIES_2026`): the same bucket, a transient failure costs
        // 14; waits start at 50 ms.
        Contender::new("AWS 2.1", move |_| aws(50 * MILLISECOND, 14.0, 14.0)),
        // Proposal A6 with the numbers of its examples: `maxTokens` 10, `tokenRatio` 0.1; no retries at
        // or below half. Waits: chance × 100 ms · 2^n up to 1 s.
        Contender::new("gRPC", move |_| {
            let backoff = Backoff::Full { base: 100 * MILLISECOND, cap: SECOND };
            Peer::new(limits, backoff, Throttle::new(10.0, 0.1))
        }),
        // Brooker 2022: a success puts a tenth of a token into a bucket of 5, a retry takes a whole one
        // and comes at once. His program pays in as a call starts instead, which is worth 0.1 at a total
        // outage; this is his text.
        Contender::new("Brooker", move |_| {
            Peer::new(limits, Backoff::None, Bucket::new(5.0, 0.1, 0.0))
        }),
        // tower-resilience 0.13: its token bucket holds 100, gains 10 a second and 1 for each success,
        // and a retry takes 1. Waits: 100 ms · 2^n without jitter.
        Contender::new("tower-resilience", move |_| {
            let backoff = Backoff::Exponential { base: 100 * MILLISECOND, cap: Nanos::MAX };
            Peer::new(limits, backoff, Bucket::new(100.0, 1.0, 10.0))
        }),
    ]
}

/// The name of a loop around the call.
pub(super) const RETRIES: &str = "plain retries";

pub(super) fn none(limits: Limits) -> Contender {
    let once = Limits { attempts: 1, ..limits };
    Contender::new("no retries", move |_| Peer::new(once, Backoff::None, Unlimited))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { attempts: 4, attempt_timeout: SECOND, deadline: 10 * SECOND };

    /// Retries that a total outage gets out of a policy in a minute of ten calls a second.
    fn retries(contender: &Contender) -> u32 {
        let mut random = Random::new(1, 0);
        let mut policy = (contender.make)(&mut random);
        let mut retries = 0;
        for call in 0..600 {
            let now = call * SECOND / 10;
            let mut call = policy.open(Origin::FIRST, now);
            policy.begin(&mut call, now, &mut random);
            while let Next::Attempt { .. } =
                policy.ended(&mut call, Outcome::Fault, now, &mut random)
            {
                retries += 1;
                policy.begin(&mut call, now, &mut random);
            }
        }
        retries
    }

    #[test]
    fn a_total_outage_gets_as_many_retries_as_their_numbers_say() {
        assert_eq!(retries(&none(LIMITS)), 0);
        let by_name: Vec<_> = all(LIMITS).iter().map(|peer| (peer.name, retries(peer))).collect();
        for (name, least, most) in [
            (RETRIES, 1800, 1800),
            // 10 a second, and 20 % of the requests.
            ("Finagle", 700, 720),
            ("tower", 600, 600),
            ("AWS 2.0", 100, 100),
            ("AWS 2.1", 35, 35),
            // Three of the first call; its four failures leave 6, and the next one the half.
            ("gRPC", 3, 3),
            ("Brooker", 5, 5),
            ("tower-resilience", 690, 700),
        ] {
            let (_, retries) = by_name.iter().find(|peer| peer.0 == name).unwrap();
            assert!((least..=most).contains(retries), "{name}: {retries}");
        }
    }

    #[test]
    fn all_calls_of_a_tower_process_wait_alike_and_its_cap_has_no_jitter() {
        let mut random = Random::new(1, 0);
        let tower = Backoff::tower(5 * MILLISECOND, 2 * SECOND, &mut random);
        let first = tower.wait(1, 0, &mut random);
        assert_eq!(first, tower.wait(1, 0, &mut random));
        assert!((5 * MILLISECOND..10 * MILLISECOND).contains(&first));
        assert_eq!(tower.wait(20, 0, &mut random), 2 * SECOND);
    }
}
