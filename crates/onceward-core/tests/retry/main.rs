//! What the retry decision promises, over all methods, classes and times. No clock runs here.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod breaker;
mod budget;
mod gate;
mod hedge;
mod saturation;
mod settings;
mod waits;

use std::time::Duration;

use onceward_core::retry::{
    Action, Call, Class, Context, Method, Moment, Observation, Permit, Rules, Stop, Target, decide,
};

pub(crate) const METHODS: [Method; 3] = [Method::Safe, Method::Idempotent, Method::Other];

pub(crate) const CLASSES: [Class; 14] = [
    Class::Success,
    Class::NeverSent { reused: false },
    Class::NeverSent { reused: true },
    Class::Ambiguous,
    Class::Overload,
    Class::ServerFault,
    Class::InProgress,
    Class::Unknown,
    Class::Conflict,
    Class::Unauthorised,
    Class::Accepted,
    Class::Pending,
    Class::Ended,
    Class::Final,
];

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Rules of which every part but the attempts and their times is off.
pub(crate) fn bare() -> Rules {
    Rules::standard().to_builder().without_budget().without_breaker().build().unwrap()
}

/// A target, and chance that is different each time.
pub(crate) struct Bench {
    pub(crate) rules: Rules,
    pub(crate) target: Target,
    pub(crate) now: Moment,
    random: u64,
}

impl Bench {
    pub(crate) fn new(rules: Rules) -> Self {
        let target = Target::new(&rules);
        Self { rules, target, now: seconds(1_000), random: 0 }
    }

    pub(crate) fn call(&self, method: Method) -> Call {
        Call::new(&self.rules, method, self.now)
    }

    pub(crate) fn begin(&mut self, call: &mut Call) -> Result<Permit, Stop> {
        let random = self.random();
        self.context(call, |context, now| context.begin(now, random))
    }

    pub(crate) fn ended(&mut self, call: &mut Call, observation: impl Into<Observation>) -> Action {
        let (observation, random) = (observation.into(), self.random());
        let action = self.context(call, |context, now| decide(context, observation, now, random));
        self.target.landed();
        action
    }

    pub(crate) fn hedge(&mut self, call: &mut Call) -> bool {
        let now = self.now;
        Context { rules: &self.rules, call, target: &mut self.target }.hedge(now)
    }

    pub(crate) fn context<T>(
        &mut self,
        call: &mut Call,
        ask: impl FnOnce(&mut Context<'_>, Moment) -> T,
    ) -> T {
        let mut context = Context { rules: &self.rules, call, target: &mut self.target };
        ask(&mut context, self.now)
    }

    /// One call whose attempts all end so, to its end: how many were sent, and what came of it.
    pub(crate) fn run(
        &mut self,
        mut call: Call,
        observation: impl Into<Observation>,
    ) -> (u32, Action) {
        let observation = observation.into();
        for _ in 0..10_000 {
            if let Err(stop) = self.begin(&mut call) {
                return (call.attempts(), Action::Stop(stop));
            }
            match self.ended(&mut call, observation) {
                Action::Attempt { wait } => self.now += wait,
                action => return (call.attempts(), action),
            }
        }
        panic!("it is tried again for ever: {call:?}");
    }

    /// A call of one attempt, for what the target learns from it.
    pub(crate) fn attempt(&mut self, class: Class) -> Result<Action, Stop> {
        let mut call = self.call(Method::Safe);
        self.begin(&mut call)?;
        Ok(self.ended(&mut call, class))
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random += 1;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
