//! When a target is left alone, and how it comes back.

use onceward_core::retry::{
    Action, Answer, Circuit, Class, Method, Observation, Rules, Stop, StopReason,
};

use crate::{Bench, millis, seconds};

fn rules() -> Rules {
    Rules::standard().to_builder().without_budget().build().unwrap()
}

fn circuit(bench: &mut Bench) -> Circuit {
    let now = bench.now;
    bench.target.circuit(now)
}

fn fail(bench: &mut Bench, times: u32) {
    for _ in 0..times {
        let _ = bench.attempt(Class::ServerFault);
    }
}

/// Five to be guarded, fifty more to be open.
fn open(bench: &mut Bench) {
    fail(bench, 55);
    assert_eq!(circuit(bench), Circuit::Open);
}

#[test]
fn five_failures_in_a_row_stop_retries_but_not_first_tries() {
    let mut bench = Bench::new(rules());
    fail(&mut bench, 4);
    assert_eq!(circuit(&mut bench), Circuit::Closed);
    fail(&mut bench, 1);
    assert_eq!(circuit(&mut bench), Circuit::Guarded);
    let call = bench.call(Method::Safe);
    let stop = Action::Stop(Stop::Failed(StopReason::Breaker));
    assert_eq!(bench.run(call, Class::ServerFault), (1, stop));
    for _ in 0..4 {
        assert_eq!(circuit(&mut bench), Circuit::Guarded, "one success is no recovery");
        assert!(bench.attempt(Class::Success).is_ok(), "first tries are the probes");
    }
    assert_eq!(circuit(&mut bench), Circuit::Closed);
}

#[test]
fn half_of_many_calls_stop_retries() {
    let mut bench = Bench::new(rules());
    for turn in 0..19 {
        let class = if turn % 2 == 0 { Class::Ambiguous } else { Class::Success };
        bench.attempt(class).unwrap();
        assert_eq!(circuit(&mut bench), Circuit::Closed, "{turn}: too few to say");
    }
    bench.attempt(Class::Ambiguous).unwrap();
    assert_eq!(circuit(&mut bench), Circuit::Guarded);
}

#[test]
fn a_brown_out_does_not_become_an_outage() {
    let mut bench = Bench::new(rules());
    for turn in 0..10_000 {
        let class = if turn % 4 == 0 { Class::Success } else { Class::Ambiguous };
        assert!(bench.attempt(class).is_ok(), "a quarter succeeds: {turn}");
        bench.now += millis(1);
    }
}

#[test]
fn a_brown_out_by_chance_does_not_become_an_outage_either() {
    let mut bench = Bench::new(rules());
    let mut refused = 0;
    for _ in 0..100_000 {
        let class =
            if bench.random() >> 32 < 0x3851_eb85 { Class::Success } else { Class::Ambiguous };
        refused += u32::from(bench.attempt(class).is_err());
        bench.now += millis(1);
    }
    assert_eq!(refused, 0, "22 % succeed");
}

#[test]
fn nothing_but_failures_refuses_first_tries_for_a_while() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    let mut call = bench.call(Method::Safe);
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(StopReason::Breaker)));
    let hint = call.hint().unwrap();
    assert!((seconds(4)..=seconds(6)).contains(&hint), "it says for how long: {hint:?}");
    assert_eq!(bench.target.in_flight(), 0);
}

#[test]
fn a_counted_few_are_let_through_and_all_must_succeed() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    bench.now += seconds(7);
    assert_eq!(circuit(&mut bench), Circuit::HalfOpen);
    let mut trials: Vec<_> = (0..3).map(|_| bench.call(Method::Safe)).collect();
    for trial in &mut trials {
        bench.begin(trial).unwrap();
    }
    let mut fourth = bench.call(Method::Safe);
    assert_eq!(bench.begin(&mut fourth), Err(Stop::Failed(StopReason::Breaker)));
    for trial in &mut trials {
        assert_eq!(circuit(&mut bench), Circuit::HalfOpen);
        bench.ended(trial, Class::Success);
    }
    assert_eq!(circuit(&mut bench), Circuit::Closed);
}

#[test]
fn a_failed_trial_opens_it_for_twice_as_long_up_to_a_minute() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    for expected in [10, 20, 40, 60, 60, 60] {
        bench.now += seconds(61);
        assert!(bench.attempt(Class::ServerFault).is_ok());
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap_err();
        let hint = call.hint().unwrap();
        let around = seconds(expected).mul_f64(0.8)..=seconds(expected).mul_f64(1.2);
        assert!(around.contains(&hint) && hint <= seconds(60), "{expected} s: {hint:?}");
    }
}

#[test]
fn a_trial_that_nobody_waits_for_is_given_to_another() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    bench.now += seconds(7);
    for _ in 0..50 {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        bench.context(&mut call, |context, _| context.abandon());
        bench.target.landed();
    }
    assert_eq!(circuit(&mut bench), Circuit::HalfOpen);
}

#[test]
fn the_target_says_itself_how_long_it_wants_to_be_left_alone() {
    let mut bench = Bench::new(rules());
    for _ in 0..55 {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        bench.ended(&mut call, Observation { hint: Some(seconds(30)), ..Class::Overload.into() });
    }
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap_err();
    let hint = call.hint().unwrap();
    assert!((seconds(30)..=seconds(33)).contains(&hint), "{hint:?}");
}

#[test]
fn complete_failures_stop_retries_but_never_first_tries() {
    let mut bench = Bench::new(rules());
    let failed = Answer::of(500).observation(None);
    for _ in 0..1_000 {
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).expect("one caller's bad requests must not refuse everybody's");
        bench.ended(&mut call, failed);
    }
    assert_eq!(circuit(&mut bench), Circuit::Guarded);
}

#[test]
fn a_trial_of_an_earlier_round_says_nothing() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    bench.now += seconds(7);
    let mut old = bench.call(Method::Safe);
    bench.begin(&mut old).unwrap();
    assert!(bench.attempt(Class::ServerFault).is_ok(), "another trial fails");
    bench.now += seconds(13);
    assert_eq!(circuit(&mut bench), Circuit::HalfOpen);
    bench.ended(&mut old, Class::ServerFault);
    assert_eq!(circuit(&mut bench), Circuit::HalfOpen, "what it shows comes too late");
}

#[test]
fn trials_that_nobody_hears_of_are_not_waited_for() {
    let mut bench = Bench::new(rules());
    open(&mut bench);
    bench.now += seconds(7);
    for _ in 0..3 {
        let mut lost = bench.call(Method::Safe);
        bench.begin(&mut lost).unwrap();
    }
    assert!(bench.attempt(Class::Success).is_err());
    bench.now += seconds(60);
    assert!(bench.attempt(Class::Success).is_ok());
}

#[test]
fn refusals_of_one_request_say_nothing_about_the_target() {
    let mut bench = Bench::new(rules());
    for class in [Class::Final, Class::Bound, Class::Conflict, Class::InProgress, Class::Unknown] {
        for _ in 0..100 {
            bench.attempt(class).unwrap();
        }
        assert_eq!(circuit(&mut bench), Circuit::Closed, "{class:?}");
    }
}

#[test]
fn what_was_seen_long_ago_is_not_held_against_it() {
    let mut bench = Bench::new(rules());
    fail(&mut bench, 5);
    assert_eq!(circuit(&mut bench), Circuit::Guarded);
    bench.now += seconds(11);
    assert_eq!(circuit(&mut bench), Circuit::Closed);
}

/// Otherwise a call in a new process could never make more than five attempts.
#[test]
fn a_calls_own_failures_do_not_open_the_breaker_against_it() {
    for attempts in [8, 20, 60, 200] {
        let rules = rules().to_builder().attempts(attempts).deadline(seconds(100_000));
        let mut bench = Bench::new(rules.build().unwrap());
        let call = bench.call(Method::Safe);
        let (sent, action) = bench.run(call, Class::ServerFault);
        assert_eq!((sent, action), (attempts, Action::Stop(Stop::Failed(StopReason::Attempts))));
    }
    let mut bench = Bench::new(rules().to_builder().attempts(8).build().unwrap());
    let call = bench.call(Method::Safe);
    bench.run(call, Class::ServerFault);
    assert_eq!(circuit(&mut bench), Circuit::Guarded, "against all others it is");
    let other = bench.call(Method::Safe);
    let stop = Action::Stop(Stop::Failed(StopReason::Breaker));
    assert_eq!(bench.run(other, Class::ServerFault), (1, stop));
}

#[test]
fn the_failures_of_other_calls_open_the_breaker_against_a_call() {
    let stop = Action::Stop(Stop::Failed(StopReason::Breaker));
    for others in 0..10 {
        let mut bench = Bench::new(rules().to_builder().attempts(8).build().unwrap());
        let mut call = bench.call(Method::Safe);
        for _ in 0..4 {
            bench.begin(&mut call).unwrap();
            assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
        }
        fail(&mut bench, others);
        bench.now += millis(1);
        match bench.begin(&mut call) {
            Ok(_) => assert!(others < 5, "{others}"),
            Err(refused) => {
                assert_eq!(Action::Stop(refused), stop, "{others}");
                assert!(others >= 5, "four of other calls and four of its own: {others}");
            }
        }
    }
}

#[test]
fn what_was_held_against_a_call_stays_so_after_one_success() {
    let mut bench = Bench::new(rules().to_builder().attempts(8).build().unwrap());
    let mut call = bench.call(Method::Safe);
    bench.begin(&mut call).unwrap();
    assert!(matches!(bench.ended(&mut call, Class::ServerFault), Action::Attempt { .. }));
    fail(&mut bench, 5);
    bench.attempt(Class::Success).unwrap();
    assert_eq!(circuit(&mut bench), Circuit::Guarded);
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(StopReason::Breaker)));
}

/// Failures before a success of another call are no part of the row after it.
#[test]
fn a_row_of_failures_of_other_calls_counts_whatever_a_call_failed_at_before() {
    let mut bench = Bench::new(rules().to_builder().attempts(8).build().unwrap());
    let mut call = bench.call(Method::Safe);
    for _ in 0..4 {
        bench.begin(&mut call).unwrap();
        bench.ended(&mut call, Class::ServerFault);
    }
    bench.attempt(Class::Success).unwrap();
    fail(&mut bench, 5);
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(StopReason::Breaker)));
}
