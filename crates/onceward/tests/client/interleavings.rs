//! Statement 7: the shipped `target.rs`, with a lock that explores the orders in which threads come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use onceward::retry::{
    Action, Breaker, Budget, Call, Circuit, Class, Context, Limit, Method, Priority, Rules,
    StopReason, decide,
};

mod sync {
    pub(super) use shuttle::sync::Mutex;
}

#[path = "../../src/client/driver/target.rs"]
#[allow(dead_code, unreachable_pub, reason = "only a part of it is explored here")]
mod target;

use self::target::{TargetHandle, Targets};

const ORDERS: usize = 2_000;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Fails once; gives whether a retry was granted.
fn fail_once(rules: &Rules, target: &Arc<TargetHandle>, random: u64) -> bool {
    // The highest, or it would be the saturation that refuses, and not the purse.
    let mut call = Call::new(rules, Method::Safe, at(0)).priority(Priority::HIGHEST);
    let begun =
        target.with(|target| Context { rules, call: &mut call, target }.begin(at(1), random));
    let flight = begun.map(|_| target.permit());
    assert!(flight.is_ok(), "the breaker is off");
    let action = target.with(|target| {
        decide(
            &mut Context { rules, call: &mut call, target },
            Class::ServerFault.into(),
            at(2),
            random,
        )
    });
    match action {
        Action::Attempt { .. } => true,
        Action::Stop(stop) => {
            assert_eq!(stop.reason(), StopReason::Budget);
            false
        }
        other => panic!("{other:?}"),
    }
}

/// With room for two retries.
fn poor() -> Rules {
    let budget = Budget { capacity: 100, start: 20, retry: 10, hinted: 5, success: 1 };
    let rules = Rules::standard().to_builder().budget(budget).without_breaker();
    rules.limit(Limit::Fixed(100)).build().unwrap()
}

#[test]
fn statement_7_in_no_order_does_a_budget_grant_more_than_it_has() {
    shuttle::check_random(
        || {
            let rules = Arc::new(poor());
            let targets = Arc::new(Targets::new(10));
            let granted = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (rules, targets, granted) =
                        (rules.clone(), targets.clone(), granted.clone());
                    shuttle::thread::spawn(move || {
                        let target = targets.get(&"a", &rules, at(0));
                        granted
                            .fetch_add(fail_once(&rules, &target, number).into(), Ordering::SeqCst);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let target = targets.find(&"a").unwrap();
            assert!(granted.load(Ordering::SeqCst) <= 2);
            assert_eq!(
                target.with(|target| target.budget_left()),
                Some(20 - 10 * granted.load(Ordering::SeqCst))
            );
            assert_eq!(target.with(|target| target.in_flight()), 0);
        },
        ORDERS,
    );
}

/// Opens at once and lets two try after five seconds.
fn cautious() -> Rules {
    let breaker = Breaker { in_a_row: 1, hopeless: 1, trials: 2, ..Breaker::standard() };
    Rules::standard().to_builder().breaker(breaker).without_budget().build().unwrap()
}

/// A target whose breaker is open; gives the time at which it lets some try.
fn opened(rules: &Rules, target: &TargetHandle) -> Duration {
    for time in 0..2 {
        let mut call = Call::new(rules, Method::Safe, at(time));
        target.with(|target| {
            let mut context = Context { rules, call: &mut call, target };
            context.begin(at(time), 1).unwrap();
            let _ = decide(&mut context, Class::ServerFault.into(), at(time), 1);
            context.target.landed();
        });
    }
    assert_eq!(target.with(|target| target.circuit(at(2))), Circuit::Open);
    at(100_000)
}

#[test]
fn statement_7_in_no_order_does_a_half_open_breaker_let_more_through_than_its_quota() {
    shuttle::check_random(
        || {
            let rules = Arc::new(cautious());
            let target = TargetHandle::new(&rules);
            let now = opened(&rules, &target);
            let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (rules, target) = (rules.clone(), target.clone());
                    let (running, most) = (running.clone(), most.clone());
                    shuttle::thread::spawn(move || {
                        let mut call = Call::new(&rules, Method::Safe, now);
                        let begun = target.with(|target| {
                            Context { rules: &rules, call: &mut call, target }.begin(now, number)
                        });
                        if begun.is_err() {
                            return;
                        }
                        let flight = target.permit();
                        most.fetch_max(
                            running.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        shuttle::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        // One caller goes away, and its trial is another's.
                        target.with(|target| {
                            Context { rules: &rules, call: &mut call, target }.abandon();
                        });
                        drop(flight);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} at once");
            assert!(most.load(Ordering::SeqCst) >= 1, "somebody was let through");
        },
        ORDERS,
    );
}
