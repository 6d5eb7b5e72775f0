//! What an attempt means for its message.

use std::time::Duration;

use onceward_core::{
    message::{Delivery, Next, Sent, begin_delivery, decide_delivery},
    retry::{Backoff, Breaker, Circuit, Moment, Permit, Rules, Target},
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The sink, the rules, and a clock that moves by hand.
struct Sink {
    rules: Rules,
    target: Target,
    now: Moment,
    random: u64,
}

impl Sink {
    fn new(rules: Rules) -> Self {
        Self { target: Target::new(&rules), rules, now: Duration::ZERO, random: 1 }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random
    }

    fn begin(&mut self, failures: u32) -> Result<(Delivery, Permit), Next> {
        let mut delivery = Delivery::new(&self.rules, failures, self.now);
        let random = self.random();
        let permit =
            begin_delivery(&self.rules, &mut self.target, &mut delivery, self.now, random)?;
        Ok((delivery, permit))
    }

    /// One attempt after so many failed ones; an error: none was made.
    fn attempt(&mut self, failures: u32, sent: Sent) -> Result<Next, Next> {
        let (mut delivery, _) = self.begin(failures)?;
        let random = self.random();
        let next =
            decide_delivery(&self.rules, &mut self.target, &mut delivery, sent, self.now, random);
        self.target.landed();
        Ok(next)
    }
}

/// Twelve attempts, an hour between them at most.
fn rules() -> Rules {
    let backoff = Backoff::Equal { base: SECOND, cap: Duration::from_secs(3600) };
    let rules = Rules::patient().to_builder().attempts(12).deadline(DAY);
    rules.attempt_timeout(SECOND * 30).backoff(backoff).build().unwrap()
}

fn plain() -> Rules {
    rules().to_builder().without_breaker().without_budget().build().unwrap()
}

fn failed() -> Sent {
    Sent::Failed { why: "500".into() }
}

fn busy() -> Sent {
    Sent::Retry { after: None, why: "503".into() }
}

fn unknown() -> Sent {
    Sent::Unknown { why: "reset".into() }
}

fn down() -> Sent {
    Sent::SinkDown { after: None, why: "refused".into() }
}

#[test]
fn each_answer_means_what_it_says() {
    let mut sink = Sink::new(plain());
    assert_eq!(sink.attempt(0, Sent::Accepted), Ok(Next::Delivered));
    assert_eq!(sink.attempt(3, Sent::Accepted), Ok(Next::Delivered));
    let refused = Sent::Refused { why: "400".into() };
    assert_eq!(sink.attempt(0, refused), Ok(Next::Die { why: "400".into() }));
    let gone = Sent::Gone { why: "410".into() };
    assert_eq!(sink.attempt(0, gone), Ok(Next::Hold { why: "410".into() }));
    for sent in [failed(), busy(), unknown()] {
        let next = sink.attempt(0, sent).unwrap();
        assert!(matches!(next, Next::Park { wait, .. } if wait <= SECOND), "{next:?}");
    }
    for after in [None, Some(SECOND)] {
        let down = Sent::SinkDown { after, why: "refused".into() };
        assert_eq!(sink.attempt(11, down), Ok(Next::Pause { wait: after }), "it is no attempt");
    }
}

#[test]
fn a_message_that_always_fails_dies_with_its_last_attempt() {
    for sent in [failed(), busy(), unknown()] {
        let mut sink = Sink::new(plain());
        for failures in 0..11 {
            let next = sink.attempt(failures, sent.clone()).unwrap();
            let Next::Park { wait, .. } = next else { panic!("{failures} failures: {next:?}") };
            sink.now += wait + DAY * 30;
        }
        let Ok(Next::Die { why }) = sink.attempt(11, sent) else { panic!("that was the last") };
        assert!(why.contains("all attempts are used up"), "{why}");
    }
}

#[test]
fn time_alone_kills_nothing() {
    let mut sink = Sink::new(rules());
    for _ in 0..500 {
        // The sink is down for weeks: attempts do not count, and the breaker opens.
        let _ = sink.attempt(0, down());
        sink.now += DAY / 10;
    }
    assert_eq!(sink.attempt(0, Sent::Accepted), Ok(Next::Delivered));
}

#[test]
fn what_the_sink_asks_for_counts_up_to_the_longest_wait() {
    let mut sink = Sink::new(plain());
    let after = |wait| Sent::Retry { after: Some(wait), why: "429".into() };
    let Ok(Next::Park { wait, .. }) = sink.attempt(0, after(SECOND * 90)) else { panic!("parked") };
    assert!(wait >= SECOND * 90 && wait <= SECOND * 99, "{wait:?}");
    let years = sink.attempt(0, after(DAY * 3_000));
    assert_eq!(years, Ok(Next::Park { wait: DAY, why: "429".into() }), "the rules' deadline");
}

#[test]
fn a_budget_that_is_spent_only_makes_messages_wait() {
    let mut sink = Sink::new(rules().to_builder().without_breaker().build().unwrap());
    for _ in 0..100 {
        let next = sink.attempt(0, busy()).unwrap();
        assert!(matches!(next, Next::Park { .. }), "{next:?}");
    }
    assert!(sink.target.saturation(sink.now) > 0.7, "there is too little left for a retry");
    assert!(matches!(sink.attempt(11, busy()), Ok(Next::Die { .. })), "attempts still count");
    assert_eq!(sink.attempt(5, Sent::Accepted), Ok(Next::Delivered));
}

#[test]
fn an_open_breaker_stops_the_lane_and_counts_no_attempt() {
    let mut sink = Sink::new(rules());
    let mut attempts = 0;
    let wait = loop {
        match sink.attempt(0, busy()) {
            Ok(_) => attempts += 1,
            Err(Next::Pause { wait }) => break wait.expect("the breaker says how long"),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(attempts < 100, "{attempts} in a row");
    assert_eq!(sink.target.circuit(sink.now), Circuit::Open);
    // A message that failed before is refused in the same way, and not sent to its death.
    assert!(matches!(sink.attempt(11, busy()), Err(Next::Pause { .. })));
    sink.now += wait;
    assert_eq!(sink.attempt(0, Sent::Accepted), Ok(Next::Delivered), "a trial");
}

#[test]
fn while_first_tries_show_how_the_sink_is_failed_ones_are_put_off() {
    let mut sink = Sink::new(rules());
    for _ in 0..Breaker::standard().in_a_row {
        sink.attempt(0, failed()).unwrap();
    }
    assert_eq!(sink.target.circuit(sink.now), Circuit::Guarded);
    let Err(Next::Postpone { wait, .. }) = sink.attempt(3, failed()) else { panic!("put off") };
    assert!(wait > Duration::ZERO);
    assert_eq!(sink.attempt(0, Sent::Accepted), Ok(Next::Delivered), "first tries go on");
    // With nothing to try the breaker forgets, and a queue of failed ones alone goes on.
    sink.now += Breaker::standard().window;
    assert_eq!(sink.attempt(3, Sent::Accepted), Ok(Next::Delivered));
}

#[test]
fn a_queue_of_failed_messages_alone_closes_an_open_breaker() {
    let mut sink = Sink::new(rules());
    while sink.target.circuit(sink.now) != Circuit::Open {
        let _ = sink.attempt(0, busy());
    }
    // The sink recovers; every message that is left has failed before.
    let mut delivered = 0;
    for _ in 0..1_000 {
        match sink.attempt(4, Sent::Accepted) {
            Ok(next) => {
                assert_eq!(next, Next::Delivered);
                delivered += 1;
            }
            Err(Next::Pause { wait: Some(wait) } | Next::Postpone { wait, .. }) => sink.now += wait,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(sink.target.circuit(sink.now), Circuit::Closed);
    assert!(delivered > 900, "{delivered}");
}

#[test]
fn a_sink_that_answers_500_is_there_and_keeps_its_lanes() {
    let mut sink = Sink::new(rules());
    for _ in 0..500 {
        let next = sink.attempt(0, failed());
        assert!(matches!(next, Ok(Next::Park { .. })), "{next:?}");
        sink.now += SECOND / 100;
    }
    assert_eq!(sink.attempt(0, Sent::Accepted), Ok(Next::Delivered));
}

#[test]
fn what_failed_for_another_reason_leaves_no_attempt_in_flight() {
    let mut sink = Sink::new(rules());
    for sent in [Sent::Accepted, failed(), busy(), unknown(), down()] {
        let _ = sink.attempt(0, sent);
    }
    assert_eq!(sink.target.in_flight(), 0);
    let (_, permit) = sink.begin(0).unwrap();
    assert_eq!(permit.timeout, SECOND * 30);
    assert_eq!(sink.target.in_flight(), 1);
}

#[test]
fn no_message_dies_of_showing_that_the_sink_is_down() {
    let mut sink = Sink::new(rules());
    let mut parked = 0;
    while let Ok(Next::Park { .. }) = sink.attempt(0, busy()) {
        parked += 1;
        sink.now += SECOND / 100;
    }
    assert!((50..100).contains(&parked), "{parked} until it opened");
    let mut shown = 0;
    let mut failures = 8;
    for _ in 0..200 {
        sink.now += SECOND * 60;
        // Its last attempt, from the fourth time on: counted to the end, it would be dead.
        match sink.attempt(failures, busy()) {
            Ok(Next::GiveWay { attempts, wait, .. }) => {
                assert_eq!(attempts, (failures + 1).min(11));
                assert!(wait >= SECOND * 128, "others show it next time: {wait:?}");
                (shown, failures) = (shown + 1, attempts);
            }
            Err(Next::Pause { wait: Some(_) }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(shown > 50, "{shown}");
    assert_eq!(failures, 11);
}

/// The longer of what the sink asked for and the pause of the rules; no longer than the rules let any wait be.
#[test]
fn a_message_that_gives_way_waits_for_as_long_as_its_sink_asked() {
    for (asked, expected) in
        [(SECOND, None), (SECOND * 40_000, Some(SECOND * 40_000)), (DAY * 9, Some(DAY))]
    {
        let mut sink = Sink::new(rules());
        let busy_for = |after| Sent::Retry { after: Some(after), why: "503".into() };
        while sink.target.circuit(sink.now) != Circuit::Open {
            let _ = sink.attempt(0, busy());
            sink.now += SECOND / 100;
        }
        let wait = loop {
            sink.now += SECOND * 60;
            match sink.attempt(8, busy_for(asked)) {
                Ok(Next::GiveWay { wait, .. }) => break wait,
                Err(Next::Pause { .. }) => {}
                other => panic!("{other:?}"),
            }
        };
        match expected {
            Some(expected) => assert_eq!(wait, expected),
            None => assert!(wait >= SECOND * 128, "the pause is longer: {wait:?}"),
        }
    }
}

#[test]
fn a_message_that_fails_whenever_it_is_tried_keeps_no_sink_down_for_ever() {
    let mut sink = Sink::new(rules());
    while sink.target.circuit(sink.now) != Circuit::Open {
        let _ = sink.attempt(0, busy());
    }
    // The sink is well again, but for one message that it never answers, the first of its lane.
    let (mut failures, mut due, mut delivered) = (0, sink.now, 0);
    let died = (0..10_000).any(|_| {
        sink.now += SECOND * 5;
        let next = if sink.now >= due { Some(sink.attempt(failures, unknown())) } else { None };
        let (counted, wait) = match next {
            None => (failures, due.saturating_sub(sink.now)),
            Some(Ok(Next::GiveWay { attempts, wait, .. })) => (attempts, wait),
            Some(Ok(Next::Park { wait, .. })) => (failures + 1, wait),
            Some(Err(Next::Postpone { wait, .. })) => (failures, wait),
            // The lane stops before the others.
            Some(Err(Next::Pause { .. })) => return false,
            Some(Ok(Next::Die { .. })) => return true,
            Some(other) => panic!("{other:?}"),
        };
        (failures, due) = (counted, sink.now + wait);
        delivered += u32::from(sink.attempt(0, Sent::Accepted) == Ok(Next::Delivered));
        false
    });
    assert!(died, "it failed at every attempt");
    assert!(delivered > 100, "{delivered} others were delivered meanwhile");
    assert_eq!(sink.target.circuit(sink.now), Circuit::Closed);
}
