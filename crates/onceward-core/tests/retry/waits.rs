//! How long it waits, and that nothing is begun too late.

use std::time::Duration;

use onceward_core::retry::{Action, Backoff, Class, Method, Observation, Rules, Stop, StopReason};
use proptest::prelude::*;

use crate::{Bench, bare, millis, seconds};

#[test]
fn a_hint_beyond_the_deadline_ends_the_call_at_once_and_is_kept() {
    for hint in [seconds(10), seconds(11), seconds(1_000_000_000_000_000_000), Duration::MAX] {
        let mut bench = Bench::new(Rules::standard());
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        let observation = Observation { hint: Some(hint), ..Class::Overload.into() };
        let action = bench.ended(&mut call, observation);
        assert_eq!(action, Action::Stop(Stop::Failed(StopReason::Deadline)), "{hint:?}");
        assert_eq!(call.hint(), Some(hint));
        assert_eq!(bench.target.budget_left(), Some(30), "what is not sent costs nothing");
    }
}

#[test]
fn an_overloaded_target_is_given_more_time_than_a_failed_one() {
    let longest_first_wait = |class| {
        let mut bench = Bench::new(bare());
        let mut first_wait = || {
            let mut call = bench.call(Method::Safe);
            bench.begin(&mut call).unwrap();
            match bench.ended(&mut call, class) {
                Action::Attempt { wait } => wait,
                action => panic!("{action:?}"),
            }
        };
        (0..100).map(|_| first_wait()).max().unwrap()
    };
    assert!((millis(40)..=millis(50)).contains(&longest_first_wait(Class::ServerFault)));
    assert!((millis(800)..=seconds(1)).contains(&longest_first_wait(Class::Overload)));
}

/// The largest distance between the samples' distribution and the uniform one up to `most`.
fn kolmogorov_smirnov(mut samples: Vec<f64>, most: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    let distance = |(index, sample): (usize, &f64)| {
        let expected = sample / most;
        let (below, above) = (index as f64 / count, (index + 1) as f64 / count);
        (expected - below).abs().max((above - expected).abs())
    };
    samples.iter().enumerate().map(distance).fold(0.0, f64::max)
}

#[test]
fn statement_4_waits_of_many_calls_are_spread_evenly_at_every_attempt_and_at_the_cap() {
    let rules = bare()
        .to_builder()
        .attempts(14)
        .deadline(seconds(3_600))
        .backoff(Backoff::Full { base: millis(50), cap: seconds(20) })
        .build()
        .unwrap();
    let mut bench = Bench::new(rules);
    let mut sequences = Vec::new();
    for _ in 0..1_000 {
        let mut call = bench.call(Method::Safe);
        let mut waits = Vec::new();
        while waits.len() < 100 {
            bench.begin(&mut call).unwrap();
            match bench.ended(&mut call, Class::ServerFault) {
                Action::Attempt { wait } => waits.push(wait.as_secs_f64()),
                _ => break,
            }
        }
        assert_eq!(waits.len(), 13);
        sequences.push(waits);
    }
    for attempt in 0..13 {
        let most = (0.05 * f64::from(1 << attempt)).min(20.0);
        let samples = sequences.iter().map(|waits| waits[attempt]).collect();
        let distance = kolmogorov_smirnov(samples, most);
        assert!(distance < 0.05, "attempt {attempt}: D = {distance}");
    }
    sequences.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(sequences.windows(2).all(|pair| pair[0] != pair[1]), "no two calls wait alike");
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    let times =
        (1_u64..5_000, 1_u64..60_000).prop_map(|(a, b)| (millis(a.min(b)), millis(a.max(b))));
    (0..7, times).prop_map(|(kind, (base, cap))| match kind {
        0 => Backoff::Full { base, cap },
        1 => Backoff::Equal { base, cap },
        2 => Backoff::Decorrelated { base, cap },
        3 => Backoff::Additive { base, cap, spread: base },
        4 => Backoff::ranges(),
        5 => Backoff::Fixed(base),
        _ => Backoff::None,
    })
}

fn observation() -> impl Strategy<Value = Observation> {
    let class = prop::sample::select(crate::CLASSES.to_vec());
    let hint = prop::option::of(prop_oneof![
        (0_u64..20_000).prop_map(millis),
        Just(Duration::MAX),
        Just(seconds(1_000_000_000_000_000_000)),
    ]);
    (class, hint).prop_map(|(class, hint)| Observation { hint, ..class.into() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Statements 2 and 3: nothing begins at or after the deadline, no attempt is given time beyond
    /// it, no wait is shorter than the hint, and nothing panics.
    #[test]
    fn statements_2_and_3_deadline_and_hint_are_kept(
        backoff in backoffs(),
        deadline in 1_u64..120_000,
        attempts in 1_u32..20,
        answers in prop::collection::vec((observation(), 0_u64..5_000), 1..30),
        start in any::<u64>(),
    ) {
        let built = Rules::patient()
            .to_builder()
            .attempts(attempts)
            .deadline(millis(deadline))
            .backoff(backoff)
            .until_done()
            .build();
        let Ok(rules) = built else { return Ok(()) };
        let mut bench = Bench::new(rules);
        bench.now = Duration::from_millis(start);
        let end = bench.now + millis(deadline);
        let mut call = bench.call(Method::Idempotent).keyed().refreshable();
        let mut sending = true;
        for (observation, took) in answers {
            let timeout = if sending {
                match bench.begin(&mut call) {
                    Ok(permit) => {
                        prop_assert!(bench.now < end, "begun too late");
                        permit.timeout
                    }
                    Err(_) => break,
                }
            } else {
                end.saturating_sub(bench.now)
            };
            prop_assert!(bench.now + timeout <= end, "an attempt may outlast the deadline");
            bench.now += millis(took).min(timeout);
            match bench.ended(&mut call, observation) {
                Action::Attempt { wait } | Action::Poll { wait } => {
                    let by_chance = observation.class == Class::Ended && wait.is_zero();
                    prop_assert!(by_chance || wait >= observation.hint.unwrap_or_default());
                    prop_assert!(bench.now + wait < end, "waits past the deadline");
                    sending = true;
                    bench.now += wait;
                }
                Action::Refresh => sending = true,
                Action::Succeed | Action::Stop(_) => break,
            }
        }
    }
}
