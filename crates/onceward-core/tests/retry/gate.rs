//! Whether it is sent again at all.

use onceward_core::retry::{Action, Answer, Class, Method, Observation, Stop, StopReason};

use crate::{Bench, CLASSES, METHODS, bare, millis};

/// Every way in which one request without an answer of its own can end.
const FAILURES: [Class; 8] = [
    Class::Ambiguous,
    Class::ServerFault,
    Class::Overload,
    Class::InProgress,
    Class::Conflict,
    Class::Unknown,
    Class::Final,
    Class::Bound,
];

#[test]
fn a_write_without_a_key_is_sent_once_unless_it_certainly_was_not_sent() {
    for class in FAILURES {
        let mut bench = Bench::new(bare());
        let call = bench.call(Method::Other);
        assert_eq!(bench.run(call, class).0, 1, "{class:?}");
    }
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Other);
    assert_eq!(bench.run(call, Class::NeverSent { reused: false }).0, 3);
}

#[test]
fn a_key_or_the_method_opens_the_gate() {
    for class in [Class::Ambiguous, Class::ServerFault, Class::Overload] {
        let mut bench = Bench::new(bare());
        let call = bench.call(Method::Other).keyed();
        assert_eq!(bench.run(call, class).0, 3, "{class:?} with a key");
        for method in [Method::Safe, Method::Idempotent] {
            let call = bench.call(method);
            assert_eq!(bench.run(call, class).0, 3, "{class:?} {method:?}");
        }
    }
}

#[test]
fn every_pair_of_method_and_class_is_repeated_exactly_where_it_is_harmless() {
    for method in METHODS {
        for keyed in [false, true] {
            for class in CLASSES {
                let mut bench = Bench::new(bare());
                let mut call = bench.call(method);
                if keyed {
                    call = call.keyed();
                }
                bench.begin(&mut call).unwrap();
                let again = matches!(bench.ended(&mut call, class), Action::Attempt { .. });
                let harmless =
                    method != Method::Other || keyed || matches!(class, Class::NeverSent { .. });
                let useful =
                    class.is_failure() || matches!(class, Class::InProgress | Class::Ended);
                assert_eq!(again, harmless && useful, "{method:?} keyed {keyed} {class:?}");
            }
        }
    }
}

#[test]
fn a_bound_answer_is_never_asked_for_again() {
    for status in [500, 502, 503, 504, 429] {
        let class = Answer { bound: true, ..Answer::of(status) }.class();
        let mut bench = Bench::new(bare());
        let call = bench.call(Method::Other).keyed();
        let (sent, action) = bench.run(call, class);
        assert_eq!(
            (sent, action),
            (1, Action::Stop(Stop::Failed(StopReason::Answered))),
            "{status}"
        );
    }
}

#[test]
fn a_body_that_is_gone_and_a_call_inside_a_retry_are_sent_once() {
    for (reason, class) in
        [(StopReason::BodyGone, Class::Ambiguous), (StopReason::Nested, Class::Ambiguous)]
    {
        let mut bench = Bench::new(bare());
        let call = bench.call(Method::Other).keyed();
        let call = if reason == StopReason::Nested { call.nested() } else { call.body_gone() };
        assert_eq!(bench.run(call, class), (1, Action::Stop(Stop::Unknown(reason))));
    }
}

#[test]
fn to_give_up_after_an_attempt_without_an_answer_is_to_not_know() {
    for (method, keyed, unknown) in [
        (Method::Other, true, true),
        (Method::Other, false, true),
        (Method::Idempotent, false, true),
        (Method::Safe, false, false),
    ] {
        let mut bench = Bench::new(bare());
        let mut call = bench.call(method);
        if keyed {
            call = call.keyed();
        }
        let (_, action) = bench.run(call, Class::Ambiguous);
        let Action::Stop(stop) = action else { panic!("{action:?}") };
        assert_eq!(stop.is_unknown(), unknown, "{method:?} keyed {keyed}");
    }
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Other).keyed();
    let (_, action) = bench.run(call, Class::ServerFault);
    assert_eq!(
        action,
        Action::Stop(Stop::Failed(StopReason::Attempts)),
        "every attempt was answered"
    );
}

#[test]
fn only_an_answer_that_is_stored_under_the_key_ends_the_doubt() {
    for (class, stop) in [
        (Class::Bound, Stop::Failed(StopReason::Answered)),
        (Class::Final, Stop::Unknown(StopReason::Answered)),
        (Class::Conflict, Stop::Unknown(StopReason::Conflict)),
        (Class::Unauthorised, Stop::Unknown(StopReason::Unauthorised)),
    ] {
        let mut bench = Bench::new(bare());
        let mut call = bench.call(Method::Other).keyed();
        bench.begin(&mut call).unwrap();
        assert!(matches!(bench.ended(&mut call, Class::Ambiguous), Action::Attempt { .. }));
        bench.begin(&mut call).unwrap();
        assert_eq!(bench.ended(&mut call, class), Action::Stop(stop), "{class:?}");
    }
}

#[test]
fn to_be_turned_away_after_it_was_known_to_run_is_to_not_know() {
    for class in [Class::InProgress, Class::Ended] {
        let mut bench = Bench::new(bare());
        let mut call = bench.call(Method::Other).keyed();
        bench.begin(&mut call).unwrap();
        assert!(matches!(bench.ended(&mut call, class), Action::Attempt { .. }));
        bench.now += bench.rules.deadline();
        assert_eq!(bench.begin(&mut call), Err(Stop::Unknown(StopReason::Deadline)), "{class:?}");
    }
}

#[test]
fn an_answer_may_leave_doubt() {
    let gateway = Answer::of(504).observation(None);
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Other).keyed();
    assert_eq!(bench.run(call, gateway).1, Action::Stop(Stop::Unknown(StopReason::Attempts)));
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Safe);
    assert_eq!(bench.run(call, gateway).1, Action::Stop(Stop::Failed(StopReason::Attempts)));
}

#[test]
fn new_credentials_are_asked_for_once() {
    let mut bench = Bench::new(bare());
    let mut call = bench.call(Method::Other).keyed().refreshable();
    bench.begin(&mut call).unwrap();
    assert_eq!(bench.ended(&mut call, Class::Unauthorised), Action::Refresh);
    bench.begin(&mut call).unwrap();
    let stop = Action::Stop(Stop::Failed(StopReason::Unauthorised));
    assert_eq!(bench.ended(&mut call, Class::Unauthorised), stop);

    let mut unkeyed = bench.call(Method::Other).refreshable();
    bench.begin(&mut unkeyed).unwrap();
    assert_eq!(bench.ended(&mut unkeyed, Class::Unauthorised), stop);
}

#[test]
fn a_busy_key_is_waited_for_beyond_the_attempts_and_costs_nothing() {
    let mut bench = Bench::new(onceward_core::retry::Rules::standard());
    let mut call = bench.call(Method::Other).keyed();
    let busy = Observation { hint: Some(millis(1_000)), ..Class::InProgress.into() };
    for _ in 0..8 {
        bench.begin(&mut call).unwrap();
        let Action::Attempt { wait } = bench.ended(&mut call, busy) else { panic!() };
        bench.now += wait;
    }
    assert_eq!(bench.target.budget_left(), Some(30));
    bench.begin(&mut call).unwrap();
    let Action::Stop(stop) = bench.run(call, busy).1 else { panic!() };
    assert_eq!(stop, Stop::Unknown(StopReason::Deadline), "somebody is still at it");
}

#[test]
fn an_accepted_operation_is_followed_only_when_asked() {
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Other).keyed();
    assert_eq!(bench.run(call, Class::Accepted), (1, Action::Succeed));

    let mut bench = Bench::new(bare().to_builder().until_done().build().unwrap());
    let mut call = bench.call(Method::Other).keyed();
    bench.begin(&mut call).unwrap();
    for class in [Class::Accepted, Class::Pending, Class::Pending] {
        let Action::Poll { wait } = bench.ended(&mut call, class) else { panic!("{class:?}") };
        bench.now += wait;
    }
    assert!(matches!(bench.ended(&mut call, Class::Ended), Action::Attempt { .. }));
    bench.begin(&mut call).unwrap();
    assert_eq!(bench.ended(&mut call, Class::Success), Action::Succeed);
}

#[test]
fn what_a_process_before_may_have_sent_is_in_doubt_from_the_start() {
    let mut bench = Bench::new(bare());
    let mut call = bench.call(Method::Other).keyed();
    bench.context(&mut call, |context, _| context.doubt());
    bench.begin(&mut call).unwrap();
    assert_eq!(
        bench.ended(&mut call, Class::Final),
        Action::Stop(Stop::Unknown(StopReason::Answered))
    );
}

#[test]
fn the_first_word_that_it_has_ended_is_believed_at_once_and_later_ones_wait() {
    let mut bench = Bench::new(bare().to_builder().until_done().build().unwrap());
    let mut call = bench.call(Method::Other).keyed();
    bench.begin(&mut call).unwrap();
    assert_eq!(bench.ended(&mut call, Class::Ended), Action::Attempt { wait: millis(0) });
    bench.begin(&mut call).unwrap();
    let Action::Attempt { wait } = bench.ended(&mut call, Class::Ended) else { panic!() };
    assert!((millis(10)..=millis(1_000)).contains(&wait), "{wait:?}");
}

#[test]
fn without_its_body_an_operation_is_followed_but_its_answer_is_not_asked_for() {
    let mut bench = Bench::new(bare().to_builder().until_done().build().unwrap());
    let mut call = bench.call(Method::Other).keyed().body_gone();
    bench.begin(&mut call).unwrap();
    for class in [Class::Accepted, Class::Pending] {
        assert!(matches!(bench.ended(&mut call, class), Action::Poll { .. }), "{class:?}");
    }
    assert_eq!(
        bench.ended(&mut call, Class::Ended),
        Action::Stop(Stop::Unknown(StopReason::BodyGone))
    );
}

/// A key that the server does not keep is no key.
#[test]
fn a_server_that_does_not_keep_the_key_closes_the_gate_for_the_rest_of_the_call() {
    let failed = Answer { code: Some("upstream-failed"), ..Answer::of(502) };
    for (answer, reason) in [
        (Answer { unprotected: true, ..failed }, StopReason::Unsafe),
        (Answer { unprotected: true, retryable: Some(true), ..failed }, StopReason::Unsafe),
        (Answer { retryable: Some(false), ..failed }, StopReason::Unsafe),
    ] {
        let mut bench = Bench::new(bare());
        let call = bench.call(Method::Other).keyed();
        let (sent, action) = bench.run(call, answer.observation(None));
        assert_eq!((sent, action), (1, Action::Stop(Stop::Unknown(reason))), "{answer:?}");
    }
    let mut bench = Bench::new(bare());
    let mut call = bench.call(Method::Other).keyed();
    bench.begin(&mut call).unwrap();
    let refused = Observation { unprotected: true, ..Class::NeverSent { reused: false }.into() };
    assert!(matches!(bench.ended(&mut call, refused), Action::Attempt { .. }), "nothing was sent");
    bench.begin(&mut call).unwrap();
    let stop = Action::Stop(Stop::Unknown(StopReason::Unsafe));
    assert_eq!(bench.ended(&mut call, Class::Ambiguous), stop, "and it said so before");
    let idempotent = bench.call(Method::Idempotent);
    let unprotected = Answer { unprotected: true, ..failed }.observation(None);
    assert_eq!(bench.run(idempotent, unprotected).0, 3, "its method makes it harmless");
}

#[test]
fn what_the_server_or_the_rules_forbid_is_not_sent_again() {
    let rules =
        bare().to_builder().retry_status([404, 507]).no_retry_status([500]).build().unwrap();
    for (status, keyed, sent, stop) in [
        (404, true, 3, Stop::Failed(StopReason::Attempts)),
        (507, true, 3, Stop::Failed(StopReason::Attempts)),
        (507, false, 1, Stop::Failed(StopReason::Unsafe)),
        (500, true, 1, Stop::Failed(StopReason::Answered)),
        (422, true, 1, Stop::Failed(StopReason::Answered)),
    ] {
        let mut bench = Bench::new(rules.clone());
        let call = bench.call(Method::Other);
        let call = if keyed { call.keyed() } else { call };
        let observation = rules.observation(&Answer::of(status), None);
        assert_eq!(
            bench.run(call, observation),
            (sent, Action::Stop(stop)),
            "{status} keyed {keyed}"
        );
    }
    let misconfigured = Answer { retryable: Some(false), ..Answer::of(500) };
    let mut bench = Bench::new(bare());
    let call = bench.call(Method::Other).keyed();
    let stop = Action::Stop(Stop::Failed(StopReason::Answered));
    assert_eq!(bench.run(call, misconfigured.observation(None)), (1, stop));
}

#[test]
fn an_operation_without_a_key_is_not_sent_again_because_a_status_url_says_so() {
    let mut bench = Bench::new(bare().to_builder().until_done().build().unwrap());
    let mut call = bench.call(Method::Other);
    bench.begin(&mut call).unwrap();
    assert!(matches!(bench.ended(&mut call, Class::Accepted), Action::Poll { .. }));
    let stop = Action::Stop(Stop::Unknown(StopReason::Unsafe));
    assert_eq!(bench.ended(&mut call, Class::Ended), stop);
}
