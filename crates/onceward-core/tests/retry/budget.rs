//! What retries cost.

use onceward_core::retry::{Action, Class, Method, Rules, Seen, Share, Stop, Why};

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
    for (seen, left) in [
        (Seen { hint: Some(millis(1)), ..Class::Overload.into() }, 25),
        (Seen::from(Class::Overload), 20),
        (Seen::from(Class::NeverSent { reused: true }), 30),
        (Seen::from(Class::NeverSent { reused: false }), 20),
    ] {
        let mut bench = Bench::new(rules());
        let mut call = bench.call(Method::Safe);
        bench.begin(&mut call).unwrap();
        assert!(matches!(bench.ended(&mut call, seen), Action::Attempt { .. }));
        assert_eq!(bench.target.budget_left(), Some(left), "{seen:?}");
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
    assert_eq!(bench.begin(&mut call), Err(Stop::Failed(Why::Breaker)));
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
