//! The decision alone: what `decide` costs with budget and breaker, as the standard rules have them.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use onceward::retry::{Action, Call, Class, Context, Method, Rules, Target, decide};

use super::Line;

/// How many decisions one turn has.
pub(super) const TURN: u32 = 10_000;

pub(super) const SUCCESS: &str = "`begin` and `decide`: a success";
pub(super) const RETRY: &str = "`decide`: a failure, paid and to be tried again";

pub(super) fn measure(turns: u32) -> Vec<Line> {
    let mut lines = vec![Line::new(SUCCESS), Line::new(RETRY)];
    for number in 0..=turns {
        // The first turn of each warms up.
        for (line, turn) in lines.iter_mut().zip([successes, retries]) {
            let nanos = turn().as_nanos() as f64 / f64::from(TURN);
            line.nanos.extend((number > 0).then_some(nanos));
        }
    }
    lines
}

fn successes() -> Duration {
    let rules = Rules::standard();
    let mut target = Target::new(&rules);
    let started = Instant::now();
    for number in 0..TURN {
        let now = Duration::from_micros(u64::from(number) * 100);
        let mut call = Call::new(&rules, Method::Other, now).keyed();
        let mut context = Context { rules: &rules, call: &mut call, target: &mut target };
        let random = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let begun = context.begin(now, random);
        assert!(begun.is_ok(), "it succeeds always");
        let action = decide(&mut context, Class::Success.into(), now, random);
        assert_eq!(black_box(action), Action::Succeed);
        target.landed();
    }
    started.elapsed()
}

/// A failure among nine successes, so that the budget and the breaker allow every retry. Only the
/// decisions about failures are timed: the clock is read around a row of them.
fn retries() -> Duration {
    const ROW: u32 = 100;
    let rules = Rules::standard().to_builder().without_breaker().build().expect("it can work");
    let mut took = Duration::ZERO;
    for row in 0..TURN / ROW {
        let now = Duration::from_millis(u64::from(row));
        let fresh = Target::new(&rules);
        // Each decision has a target of its own, as full as a target is.
        let mut all: Vec<_> = (0..ROW)
            .map(|_| (Call::new(&rules, Method::Other, now).keyed(), fresh.clone()))
            .collect();
        for (call, target) in &mut all {
            let begun = Context { rules: &rules, call, target }.begin(now, u64::from(row));
            assert!(begun.is_ok(), "nothing has failed yet");
        }
        let started = Instant::now();
        for (number, (call, target)) in (0_u64..).zip(&mut all) {
            let mut context = Context { rules: &rules, call, target };
            let action = decide(&mut context, Class::Ambiguous.into(), now, number << 32);
            assert!(matches!(black_box(action), Action::Attempt { .. }));
        }
        took += started.elapsed();
    }
    took
}
