//! What retries cost.

use std::{cmp::Reverse, collections::BinaryHeap};

use onceward_core::retry::{
    Action, Budget, Call, Class, Method, Observation, Priority, Rules, Share, Stop, StopReason,
    Target, Throttle,
};

use crate::{Bench, bare, millis, seconds};

fn rules() -> Rules {
    Rules::standard().to_builder().without_breaker().build().unwrap()
}

#[test]
fn when_everything_fails_three_retries_are_all_there_is() {
    let mut bench = Bench::new(rules());
    let mut sent = 0;
    for _ in 0..600 {
        let call = bench.call(Method::Safe);
        sent += bench.run(call, Class::ServerFault).0;
        bench.now += millis(100);
    }
    assert_eq!(sent, 603);
}

#[test]
fn a_success_brings_one_and_a_retry_that_succeeds_gets_its_price_back() {
    let mut bench = Bench::new(rules());
    bench.attempt(Class::Success).unwrap();
    assert_eq!(bench.target.budget_left(), Some(31));

    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
    assert_eq!(bench.target.budget_left(), Some(21));
    bench.begin(&mut call).unwrap();
    assert_eq!(bench.ended(&mut call, Class::Success), Action::Succeed);
    assert_eq!(bench.target.budget_left(), Some(31));
}

#[test]
fn a_retry_at_the_servers_word_costs_half_and_an_idle_connection_costs_nothing_once() {
    for (observation, left) in [
        (Observation { hint: Some(millis(1)), ..Class::Overload.into() }, 25),
        (Observation::from(Class::Overload), 20),
        (Observation::from(Class::NeverSent { reused: true }), 30),
        (Observation::from(Class::NeverSent { reused: false }), 20),
    ] {
        let mut bench = Bench::new(rules());
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        assert!(matches!(bench.ended(&mut call, observation), Action::Attempt { .. }));
        assert_eq!(bench.target.budget_left(), Some(left), "{observation:?}");
    }
    let mut bench = Bench::new(rules());
    let call = bench.call(Method::Safe);
    bench.run(call, Class::NeverSent { reused: true });
    assert_eq!(bench.target.budget_left(), Some(20), "the second one is paid");
}

#[test]
fn a_retry_that_is_not_begun_after_all_gets_its_price_back() {
    let mut bench = Bench::new(Rules::standard());
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
    assert_eq!(bench.target.budget_left(), Some(20));
    for _ in 0..5 {
        let _ = bench.attempt(Class::ServerFault);
    }
    let left = bench.target.budget_left().unwrap();
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(StopReason::Breaker)));
    assert_eq!(bench.target.budget_left(), Some(left + 10));
}

#[test]
fn a_retry_that_meets_a_busy_key_gets_its_price_back_with_the_answer() {
    let mut bench = Bench::new(rules());
    let mut call = bench.call(Method::Other).keyed();
    for (class, left) in [(Class::Ambiguous, 20), (Class::InProgress, 20), (Class::Success, 30)] {
        bench.begin(&mut call).unwrap();
        bench.ended(&mut call, class);
        assert_eq!(bench.target.budget_left(), Some(left), "{class:?}");
    }
}

#[test]
fn a_retry_that_nobody_waits_for_any_more_gets_its_price_back() {
    let mut bench = Bench::new(rules());
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    bench.ended(&mut call, Class::ServerFault);
    bench.context(&mut call, |context, _| context.forgo());
    assert_eq!(bench.target.budget_left(), Some(30));
}

#[test]
fn a_share_bounds_retries_however_full_the_purse_is() {
    let rules = bare().to_builder().attempts(2).share(Share::of(0.1)).build().unwrap();
    let mut bench = Bench::new(rules);
    let mut sent = 0;
    for _ in 0..1_000 {
        let call = bench.call(Method::Safe);
        let before = bench.now;
        sent += bench.run(call, Class::ServerFault).0;
        bench.now = before + millis(5);
    }
    // Below fifty requests the share says nothing.
    assert!((1_050..1_165).contains(&sent), "{sent}");
    bench.now += seconds(11);
    let call = bench.call(Method::Safe);
    assert_eq!(bench.run(call, Class::ServerFault).0, 2, "the window has passed");
}

/// A new process has nothing but what its purse starts with.
#[test]
fn one_call_in_a_new_process_uses_all_its_attempts() {
    for attempts in [1, 2, 3, 4, 5, 8, 20, 31] {
        for priority in [Priority::LOWEST, Priority::NORMAL, Priority::HIGHEST] {
            for class in [Class::ServerFault, Class::Overload, Class::Ambiguous] {
                let rules = Rules::standard().to_builder().attempts(attempts);
                let rules = rules.deadline(seconds(100_000)).throttle(Throttle::standard());
                let mut bench = Bench::new(rules.build().unwrap());
                let call = bench.call(Method::Safe).priority(priority);
                let (sent, action) = bench.run(call, class);
                let stop = Action::Stop(Stop::Failed(StopReason::Attempts));
                assert_eq!((sent, action), (attempts, stop), "{attempts} {priority:?} {class:?}");
            }
        }
    }
    let mut bench = Bench::new(Rules::patient());
    assert_eq!(bench.target.budget_left(), Some(70), "seven retries");
    let call = bench.call(Method::Safe);
    assert_eq!(bench.run(call, Class::ServerFault).0, 8);
}

#[test]
fn one_call_can_pay_its_attempts_also_where_a_hint_costs_more() {
    let budget = Budget { hinted: 30, ..Budget::standard() };
    let rules = rules().to_builder().attempts(5).deadline(seconds(100_000)).budget(budget);
    let bench = Bench::new(rules.build().unwrap());
    assert_eq!(bench.target.budget_left(), Some(120), "four retries");
}

#[test]
fn a_purse_starts_with_thirty_retries_at_most_and_then_says_so() {
    let rules = rules().to_builder().attempts(1_000).deadline(seconds(100_000)).build().unwrap();
    let mut bench = Bench::new(rules);
    assert_eq!(bench.target.budget_left(), Some(Budget::MOST_AT_START));
    let call = bench.call(Method::Safe);
    let (sent, action) = bench.run(call, Class::ServerFault);
    assert_eq!((sent, action), (31, Action::Stop(Stop::Failed(StopReason::Budget))));
    assert!(StopReason::Budget.sentence().starts_with("retry budget exhausted"));
}

#[test]
fn a_budget_that_is_to_be_earned_starts_with_nothing() {
    let earned = Budget { start: 0, ..Budget::standard() };
    let rules = rules().to_builder().attempts(8).budget(earned).build().unwrap();
    let mut bench = Bench::new(rules);
    assert_eq!(bench.target.budget_left(), Some(0));
    let call = bench.call(Method::Safe);
    let stop = Action::Stop(Stop::Failed(StopReason::Budget));
    assert_eq!(bench.run(call, Class::ServerFault), (1, stop));
}

#[test]
fn a_target_is_fit_for_the_largest_of_its_rules() {
    let patient = rules().to_builder().attempts(20).build().unwrap();
    let mut bench = Bench::new(rules());
    bench.target.fit(&patient);
    bench.target.fit(&rules());
    bench.target.fit(&patient);
    let balance = (bench.target.budget_left(), bench.target.budget_capacity());
    assert_eq!(balance, (Some(190), Some(190)), "once, however often it is said");
    let all = bench.target.clone();
    let call = bench.call(Method::Safe);
    bench.run(call, Class::ServerFault);
    bench.target.fit(&patient);
    assert_eq!(bench.target.budget_left(), Some(170), "it is no gift: {all:?}");
}

/// What one call paid is not held against its own next attempt, but against those of others.
#[test]
fn what_a_call_paid_saturates_others_and_not_itself() {
    let rules = rules().to_builder().attempts(4).build().unwrap();
    let mut bench = Bench::new(rules);
    let mut call = bench.call(Method::Safe);
    for _ in 0..2 {
        bench.begin(&mut call).unwrap();
        assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
    }
    let mut lowest = bench.call(Method::Safe).priority(Priority::LOWEST);
    bench.begin(&mut lowest).unwrap();
    let stop = Action::Stop(Stop::Failed(StopReason::Budget));
    assert_eq!(bench.ended(&mut lowest, Class::ServerFault), stop);
    bench.begin(&mut call).unwrap();
    assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
}

/// One client process that makes ten calls a second, all of which fail: how many requests it sends.
fn attempts_of_a_process(rules: &Rules, seed: u64) -> (u32, u32) {
    let mut bench = Bench::new(rules.clone());
    bench.target = Target::new(rules);
    let (start, mut calls, mut sent): (_, Vec<Call>, _) = (bench.now, Vec::new(), 0);
    // When, and which call: one that is there already tries again then.
    let mut agenda = BinaryHeap::from([Reverse((start + millis(seed % 100), 0))]);
    for _ in 0..seed {
        bench.random();
    }
    while let Some(Reverse((now, number))) = agenda.pop() {
        bench.now = now;
        if number == calls.len() {
            calls.push(bench.call(Method::Safe));
            if now < start + seconds(60) {
                agenda.push(Reverse((now + millis(100), number + 1)));
            }
        }
        let mut call = calls[number].clone();
        if bench.begin(&mut call).is_ok() {
            sent += 1;
            if let Action::Attempt { wait } = bench.ended(&mut call, Class::ServerFault) {
                agenda.push(Reverse((now + wait + millis(1), number)));
            }
        }
        calls[number] = call;
    }
    (u32::try_from(calls.len()).unwrap(), sent)
}

#[test]
fn statement_5_total_outage_stays_under_1_05_also_with_patient_rules() {
    let without_breaker = Rules::patient().to_builder().without_breaker().build().unwrap();
    for rules in [Rules::patient(), without_breaker, Rules::standard()] {
        let of_each = (0..100).map(|seed| attempts_of_a_process(&rules, seed));
        let (calls, sent) = of_each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert!(calls > 59_000, "{calls}");
        assert!(f64::from(sent) <= 1.05 * f64::from(calls), "{sent} of {calls}: {rules:?}");
    }
}
