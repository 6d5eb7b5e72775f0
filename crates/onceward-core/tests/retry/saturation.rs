//! What gives way first when there is too much to do.

use onceward_core::retry::{
    Action, Class, Hedge, Limit, Method, Priority, Rules, Stop, StopReason,
};

use crate::Bench;

/// A target that may have a thousand in flight, has so many, and whose answers are known.
fn busy(in_flight: u32) -> Bench {
    let rules = Rules::standard()
        .to_builder()
        .without_budget()
        .without_breaker()
        .hedge(Hedge { share: 1.0, burst: 10_000, ..Hedge::standard() })
        .limit(Limit::Fixed(1_000))
        .build()
        .unwrap();
    let mut bench = Bench::new(rules);
    for _ in 0..1_000 {
        bench.attempt(Class::Success).unwrap();
    }
    for _ in 0..in_flight {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
    }
    bench
}

/// Of a hundred calls of this priority: how many may begin, and how many of them are tried again.
fn shares(bench: &mut Bench, priority: Priority) -> (u32, u32) {
    let (mut begun, mut retried) = (0, 0);
    for _ in 0..100 {
        let mut call = bench.call(Method::Safe).priority(priority);
        match bench.begin(&mut call) {
            Ok(_) => begun += 1,
            Err(stop) => {
                assert_eq!(stop, Stop::Failed(StopReason::Shed));
                continue;
            }
        }
        match bench.ended(&mut call, Class::ServerFault) {
            Action::Attempt { .. } => retried += 1,
            action => assert_eq!(action, Action::Stop(Stop::Failed(StopReason::Shed))),
        }
    }
    (begun, retried)
}

fn hedged(bench: &mut Bench) -> bool {
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    let hedged = bench.hedge(&mut call);
    bench.target.landed();
    if hedged {
        bench.target.landed();
    }
    hedged
}

#[test]
fn statement_9_hedges_go_first_then_low_retries_then_normal_ones_then_low_first_tries() {
    let all = 100..=100;
    let most = 85..=100;
    let none = 0..=0;
    for (in_flight, hedges, lowest, normal) in [
        (100, true, [&all, &all], [&all, &all]),
        (290, true, [&all, &all], [&all, &all]),
        (310, false, [&all, &most], [&all, &all]),
        (510, false, [&all, &none], [&all, &most]),
        (710, false, [&most, &none], [&all, &none]),
        (910, false, [&none, &none], [&all, &none]),
    ] {
        let mut bench = busy(in_flight);
        assert_eq!(hedged(&mut bench), hedges, "hedges at {in_flight}");
        for (priority, expected) in [(Priority::LOWEST, lowest), (Priority::NORMAL, normal)] {
            let (begun, retried) = shares(&mut bench, priority);
            assert!(
                expected[0].contains(&begun),
                "{priority:?} first tries at {in_flight}: {begun}"
            );
            assert!(
                expected[1].contains(&retried),
                "{priority:?} retries at {in_flight}: {retried}"
            );
        }
        assert_eq!(shares(&mut bench, Priority::HIGHEST), (100, 100), "at {in_flight}");
    }
}

#[test]
fn a_class_is_given_up_by_degrees_and_not_at_once() {
    let at = |in_flight| shares(&mut busy(in_flight), Priority::LOWEST).1;
    let (some, few) = (at(350), at(450));
    assert!((50..=95).contains(&some), "{some}");
    assert!((5..=50).contains(&few), "{few}");
}

#[test]
fn the_bulkhead_is_closed_for_everybody() {
    let mut bench = busy(1_000);
    let mut call = bench.call(Method::Safe).priority(Priority::HIGHEST);
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(StopReason::Limit)));
    bench.target.landed();
    assert!(bench.begin(&mut call).is_ok());
}

#[test]
fn an_empty_budget_does_not_keep_first_tries_out() {
    let rules = Rules::standard().to_builder().without_breaker().build().unwrap();
    let mut bench = Bench::new(rules);
    for _ in 0..10 {
        let call = bench.call(Method::Safe);
        bench.run(call, Class::ServerFault);
    }
    assert_eq!(bench.target.budget_left(), Some(0));
    let now = bench.now;
    assert_eq!(bench.target.saturation(now), 1.0);
    let mut lowest = bench.call(Method::Safe).priority(Priority::LOWEST);
    assert!(bench.begin(&mut lowest).is_ok(), "only their successes fill it again");
}
