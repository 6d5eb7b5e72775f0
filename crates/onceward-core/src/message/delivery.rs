//! What one attempt to deliver means for its message: decided by the one retry engine.

use alloc::{borrow::ToOwned as _, string::String};
use core::time::Duration;

use crate::retry::{
    Action, Call, Class, Context, Method, Moment, Observation, Permit, Rules, Stop, StopReason,
    Target, decide,
};

/// What a sink said to one attempt.
///
/// ```
/// use onceward_core::message::Sent;
///
/// let refused = Sent::Refused { why: "400 Bad Request".into() };
/// assert_ne!(refused, Sent::Accepted);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The sink has it, durably.
    Accepted,
    /// The sink will never take this message.
    Refused {
        /// What it said.
        why: String,
    },
    /// The sink did not take this message now.
    Retry {
        /// After which time it wants it again.
        after: Option<Duration>,
        /// What it said.
        why: String,
    },
    /// No answer: the sink may have it. It is sent again under the same id.
    Unknown {
        /// What happened.
        why: String,
    },
    /// The endpoint wants no more messages.
    Gone {
        /// What it said.
        why: String,
    },
    /// The sink is not there, whatever the message: nothing was sent.
    SinkDown {
        /// After which time to try again.
        after: Option<Duration>,
        /// What happened.
        why: String,
    },
}

/// What is to be done with the message, and with its lane.
///
/// ```
/// use onceward_core::message::Next;
///
/// assert_ne!(Next::Delivered, Next::Pause { wait: None });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is delivered.
    Delivered,
    /// It is tried again after this time; its aggregate waits with it.
    Park {
        /// How long to wait.
        wait: Duration,
        /// What the attempt said.
        why: String,
    },
    /// It becomes a dead letter.
    Die {
        /// Why.
        why: String,
    },
    /// It is held until an operator enables its endpoint.
    Hold {
        /// What the endpoint said.
        why: String,
    },
    /// The sink is down: the lane stops, and the message stays where it is.
    Pause {
        /// How long, if the sink or the breaker said so.
        wait: Option<Duration>,
    },
}

/// One message on its way: what is known of its earlier attempts.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{message::*, retry::{Rules, Target}};
///
/// let rules = Rules::patient();
/// let mut target = Target::new(&rules);
/// let now = Duration::ZERO;
/// let mut delivery = Delivery::new(&rules, 0, Duration::ZERO, now);
/// let permit = begin_delivery(&rules, &mut target, &mut delivery, now, 1).expect("the sink is well");
/// assert!(permit.timeout <= Duration::from_secs(30));
/// let sent = Sent::Retry { after: None, why: "503".into() };
/// let next = decide_delivery(&rules, &mut target, &mut delivery, sent, now, 2);
/// assert!(matches!(next, Next::Park { .. }));
/// ```
#[derive(Clone, Debug)]
pub struct Delivery {
    call: Call,
}

impl Delivery {
    /// After so many failed attempts, at this age. Each attempt is under the message's id, so that a repeat
    /// is the same operation.
    #[must_use]
    pub fn new(rules: &Rules, failures: u32, age: Duration, now: Moment) -> Self {
        let left = rules.deadline().saturating_sub(age);
        let call = Call::new(rules, Method::of("POST"), now).keyed().failed_before(failures);
        Self { call: call.within(left, now) }
    }
}

/// Asks for leave to make an attempt.
///
/// # Errors
///
/// The attempt is not made: what is to be done instead.
pub fn begin_delivery(
    rules: &Rules,
    target: &mut Target,
    delivery: &mut Delivery,
    now: Moment,
    random: u64,
) -> Result<Permit, Next> {
    let mut context = Context { rules, call: &mut delivery.call, target };
    context.begin(now, random).map_err(|stop| match stop.reason() {
        StopReason::Deadline => Next::Die { why: stop.reason().sentence().to_owned() },
        _ => Next::Pause { wait: delivery.call.hint() },
    })
}

/// What an attempt means, by rules that count attempts, time, budget and breaker.
pub fn decide_delivery(
    rules: &Rules,
    target: &mut Target,
    delivery: &mut Delivery,
    sent: Sent,
    now: Moment,
    random: u64,
) -> Next {
    let (class, hint, why) = match sent {
        Sent::Accepted => (Class::Success, None, String::new()),
        Sent::Refused { why } => (Class::Final, None, why),
        Sent::Gone { why } => {
            learn(rules, target, delivery, Class::Final, now, random);
            return Next::Hold { why };
        }
        Sent::Retry { after, why } => {
            let class = if after.is_some() { Class::Overload } else { Class::ServerFault };
            (class, after, why)
        }
        Sent::Unknown { why } => (Class::Ambiguous, None, why),
        Sent::SinkDown { after, .. } => {
            learn(rules, target, delivery, Class::NeverSent { reused: false }, now, random);
            return Next::Pause { wait: after };
        }
    };
    let observation = Observation { hint, ..class.into() };
    let mut context = Context { rules, call: &mut delivery.call, target };
    match decide(&mut context, observation, now, random) {
        Action::Succeed => Next::Delivered,
        Action::Attempt { wait } => Next::Park { wait, why },
        Action::Stop(stop) => stopped(rules, delivery, stop, why, random),
        // None of the classes above asks for these.
        Action::Poll { wait } => Next::Park { wait, why },
        Action::Refresh => Next::Park { wait: Duration::ZERO, why },
    }
}

/// What ends a call of a client ends a delivery only if it speaks of this message: a budget that is spent and
/// a breaker that is open pass.
fn stopped(rules: &Rules, delivery: &Delivery, stop: Stop, why: String, random: u64) -> Next {
    match stop.reason() {
        StopReason::Answered | StopReason::Conflict | StopReason::Unauthorised => Next::Die { why },
        reason @ (StopReason::Attempts | StopReason::Deadline) => {
            Next::Die { why: alloc::format!("{why} ({})", reason.sentence()) }
        }
        _ => Next::Park { wait: rules.pause(delivery.call.failures(), random), why },
    }
}

/// Lets the target learn from an attempt that does not concern the message.
fn learn(
    rules: &Rules,
    target: &mut Target,
    delivery: &mut Delivery,
    class: Class,
    now: Moment,
    random: u64,
) {
    let mut context = Context { rules, call: &mut delivery.call, target };
    let _ = decide(&mut context, class.into(), now, random);
    context.forgo();
}
