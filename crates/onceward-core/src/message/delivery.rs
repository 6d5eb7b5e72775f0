//! What one attempt to deliver means for its message: decided by the one retry engine.

use alloc::{borrow::ToOwned as _, string::String};
use core::time::Duration;

use crate::retry::{
    Action, Call, Circuit, Class, Context, Method, Moment, Observation, Permit, Rules, StopReason,
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
    /// The sink is there and failed at this message: a complete 500, say.
    Failed {
        /// What it said.
        why: String,
    },
    /// The sink takes nothing now, or says that it will later: a 429, 502, 503 or 504, say.
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
    /// No attempt was made: it is tried after this time, and its aggregate waits with it.
    Postpone {
        /// How long to wait.
        wait: Duration,
        /// Why none was made.
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
    /// The attempt showed that the sink is down: the lane stops, and this message waits so long that another
    /// one shows next time how the sink is.
    GiveWay {
        /// How many attempts count as failed: never all.
        attempts: u32,
        /// How long to wait.
        wait: Duration,
        /// What the attempt said.
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
/// It dies when the attempts of the rules are used up, however long that takes: a sink that is down, a breaker
/// that is open and a budget that is spent kill nothing. Nor does the attempt that shows that a breaker must stay
/// open: it counts, for the wait, but is never the last. The deadline of the rules is the longest wait before
/// another attempt.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{message::*, retry::{Rules, Target}};
///
/// let rules = Rules::patient();
/// let mut target = Target::new(&rules);
/// let now = Duration::ZERO;
/// let mut delivery = Delivery::new(&rules, 0, now);
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
    /// The next attempt after so many failed ones. Each is under the message's id, so that a repeat is the same
    /// operation.
    #[must_use]
    pub fn new(rules: &Rules, failures: u32, now: Moment) -> Self {
        let post = Method::of("POST");
        Self { call: Call::new(rules, post, now).keyed().failed_before(failures) }
    }
}

/// Asks for leave to make an attempt.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{message::*, retry::{Rules, Target}};
///
/// let rules = Rules::patient();
/// let (mut target, now) = (Target::new(&rules), Duration::ZERO);
/// let mut delivery = Delivery::new(&rules, 0, now);
/// match begin_delivery(&rules, &mut target, &mut delivery, now, 1) {
///     Ok(permit) => assert_eq!(permit.timeout, Duration::from_secs(30)), // send it
///     Err(instead) => unreachable!("the sink is well: {instead:?}"),     // tell `LaneWork::sent`
/// }
/// ```
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
    let failures = delivery.call.failures();
    // First tries go on and show how the sink is: a message that failed before waits for them.
    if failures > 0 && target.circuit(now) == Circuit::Guarded {
        let why = StopReason::Breaker.sentence().to_owned();
        return Err(Next::Postpone { wait: rules.pause(failures, random), why });
    }
    let mut context = Context { rules, call: &mut delivery.call, target };
    context.begin(now, random).map_err(|_| Next::Pause { wait: delivery.call.hint() })
}

/// What an attempt means, by rules that count attempts, budget and breaker.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{message::*, retry::{Rules, Target}};
///
/// let rules = Rules::patient();
/// let (mut target, now) = (Target::new(&rules), Duration::ZERO);
/// let mut delivery = Delivery::new(&rules, 7, now);
/// begin_delivery(&rules, &mut target, &mut delivery, now, 1).expect("the sink is well");
/// let sent = Sent::Failed { why: "500".into() };
/// let next = decide_delivery(&rules, &mut target, &mut delivery, sent, now, 2);
/// assert!(matches!(next, Next::Die { .. }), "it was the last of eight attempts");
/// ```
pub fn decide_delivery(
    rules: &Rules,
    target: &mut Target,
    delivery: &mut Delivery,
    sent: Sent,
    now: Moment,
    random: u64,
) -> Next {
    let mut context = Context { rules, call: &mut delivery.call, target };
    let (observation, why) = match sent {
        Sent::Accepted => (Class::Success.into(), String::new()),
        Sent::Refused { why } => (Class::Final.into(), why),
        Sent::Failed { why } => (Observation { alive: true, ..Class::ServerFault.into() }, why),
        Sent::Retry { after: None, why } => (Class::ServerFault.into(), why),
        Sent::Retry { after, why } => (Observation { hint: after, ..Class::Overload.into() }, why),
        Sent::Unknown { why } => (Class::Ambiguous.into(), why),
        Sent::Gone { why } => {
            learn(&mut context, Class::Final, now, random);
            return Next::Hold { why };
        }
        Sent::SinkDown { after, .. } => {
            learn(&mut context, Class::NeverSent { reused: false }, now, random);
            return Next::Pause { wait: after };
        }
    };
    let is_of_message = observation.alive || !observation.class.is_failure();
    let action = decide(&mut context, observation, now, random);
    if !is_of_message && context.target.circuit(now) == Circuit::Open {
        context.forgo();
        let attempts = delivery.call.failures().min(rules.attempts().saturating_sub(1));
        // What the sink asked for counts as far as the rules let any wait be.
        let asked = delivery.call.hint().unwrap_or_default().min(rules.deadline());
        return Next::GiveWay { attempts, wait: rules.pause(attempts, random).max(asked), why };
    }
    match action {
        Action::Succeed => Next::Delivered,
        Action::Attempt { wait } => Next::Park { wait, why },
        Action::Stop(stop) => stopped(rules, delivery, stop.reason(), why, random),
        // No observation above leads to these.
        Action::Poll { wait } => Next::Park { wait, why },
        Action::Refresh => Next::Park { wait: Duration::ZERO, why },
    }
}

/// What ends a call of a client ends a delivery only if it speaks of this message.
fn stopped(
    rules: &Rules,
    delivery: &Delivery,
    reason: StopReason,
    why: String,
    random: u64,
) -> Next {
    match reason {
        StopReason::Answered => Next::Die { why },
        StopReason::Attempts => Next::Die { why: alloc::format!("{why} ({})", reason.sentence()) },
        StopReason::Deadline => Next::Park { wait: rules.deadline(), why },
        _ => Next::Park { wait: rules.pause(delivery.call.failures(), random), why },
    }
}

/// Lets the target learn from an attempt that does not concern the message.
fn learn(context: &mut Context<'_>, class: Class, now: Moment, random: u64) {
    let _ = decide(context, class.into(), now, random);
    context.forgo();
}
