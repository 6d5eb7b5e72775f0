//! The second request beside a late one.

use onceward_core::retry::{Action, Class, Hedge, Method, Observation, Rules, Stop, StopReason};

use crate::{Bench, millis};

/// A target whose answers take 10 to 20 ms, as it has learned from so many.
fn known(samples: u64) -> Bench {
    let rules = Rules::standard().to_builder().hedge(Hedge::standard()).build().unwrap();
    let mut bench = Bench::new(rules);
    for sample in 0..samples {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        bench.now += millis(10 + sample % 10);
        bench.ended(&mut call, Class::Success);
    }
    bench
}

#[test]
fn nothing_is_late_before_there_are_enough_answers_to_compare() {
    for (samples, known_late) in [(90, false), (200, true)] {
        let mut bench = known(samples);
        let mut call = bench.call(Method::Safe);
        let permit = bench.begin(&mut call).unwrap();
        assert_eq!(permit.hedge_after.is_some(), known_late);
        if let Some(after) = permit.hedge_after {
            assert!((millis(18)..millis(22)).contains(&after), "{after:?}");
        }
    }
}

#[test]
fn only_what_may_be_repeated_is_hedged() {
    let mut bench = known(1_000);
    for (call, hedged) in [
        (bench.call(Method::Safe), true),
        (bench.call(Method::Idempotent), true),
        (bench.call(Method::Other), false),
        (bench.call(Method::Other).keyed(), true),
        (bench.call(Method::Safe).nested(), false),
        (bench.call(Method::Safe).body_gone(), false),
    ] {
        let mut call = call;
        let permit = bench.begin(&mut call).unwrap();
        assert!(permit.hedge_after.is_some() || !hedged, "{call:?}");
        assert_eq!(bench.hedge(&mut call), hedged, "{call:?}");
    }
}

#[test]
fn nothing_is_asked_to_be_hedged_that_may_not_be_or_ends_before_it_is_late() {
    let mut bench = known(1_000);
    let mut call = bench.call(Method::Other);
    assert_eq!(bench.begin(&mut call).unwrap().hedge_after, None);
    let mut call = bench.call(Method::Safe);
    let after = bench.begin(&mut call).unwrap().hedge_after.unwrap();
    for (within, hedged) in [(after, None), (after + millis(1), Some(after))] {
        let mut call = bench.call(Method::Safe).within(within, bench.now);
        assert_eq!(bench.begin(&mut call).unwrap().hedge_after, hedged, "{within:?}");
    }
}

#[test]
fn a_hedge_that_failed_without_an_answer_leaves_doubt() {
    let doubtful = Observation { doubt: true, ..Class::ServerFault.into() };
    for (observation, stop) in [
        (Class::Ambiguous.into(), Stop::Unknown(StopReason::Answered)),
        (doubtful, Stop::Unknown(StopReason::Answered)),
        (Class::ServerFault.into(), Stop::Failed(StopReason::Answered)),
    ] {
        let mut bench = known(1_000);
        let mut call = bench.call(Method::Other).keyed();
        bench.begin(&mut call).unwrap();
        assert!(bench.hedge(&mut call));
        let random = bench.random();
        bench.context(&mut call, |context, now| context.hedge_failed(observation, now, random));
        assert_eq!(bench.ended(&mut call, Class::Final), Action::Stop(stop), "{observation:?}");
    }
}

#[test]
fn hedges_have_a_purse_of_their_own_and_pay_the_budget_too() {
    let mut bench = known(1_000);
    assert_eq!(bench.target.budget_left(), Some(100));
    let mut granted = 0;
    for _ in 0..100 {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        granted += u32::from(bench.hedge(&mut call));
    }
    assert!((7..=8).contains(&granted), "the budget's fullness stops them first: {granted}");
    assert_eq!(bench.target.budget_left(), Some(100 - 10 * granted));
}

#[test]
fn a_hedge_that_wins_gets_its_price_back_and_one_that_fails_changes_nothing() {
    let mut bench = known(1_000);
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    assert!(bench.hedge(&mut call));
    bench.context(&mut call, |context, _| context.hedge_won());
    assert_eq!(bench.ended(&mut call, Class::Success), Action::Succeed);
    assert_eq!(bench.target.budget_left(), Some(100));

    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    assert!(bench.hedge(&mut call));
    let random = bench.random();
    bench.context(&mut call, |context, now| {
        context.hedge_failed(Class::ServerFault.into(), now, random);
    });
    assert_eq!(bench.ended(&mut call, Class::Success), Action::Succeed);
}
