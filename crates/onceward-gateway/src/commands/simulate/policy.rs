//! What a client asks its policy before and after each attempt.

use onceward::retry;

use super::{agenda::Nanos, random::Random};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    /// An answer that says that it failed, as 500 or 502.
    Fault,
    TimedOut,
    /// Refused without trying, as 503 of a layer whose breaker is open.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Permit { timeout: Nanos },
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Succeed,
    GiveUp,
    Attempt { wait: Nanos },
}

/// One logical call, while it lasts.
pub(super) struct Ongoing {
    pub(super) since: Nanos,
    pub(super) attempts: u32,
    /// No attempt begins then or later.
    pub(super) until: Nanos,
    /// What the last retry cost, for policies that return it.
    pub(super) paid: f64,
    /// The last wait, for policies that grow from it.
    pub(super) waited: Nanos,
    /// The call of the shipped code; a peer has none.
    pub(super) call: Option<retry::Call>,
}

impl Ongoing {
    pub(super) fn new(since: Nanos, until: Nanos) -> Self {
        Self { since, attempts: 0, until, paid: 0.0, waited: 0, call: None }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// An outer layer says that it has sent this before.
    pub(super) nested: bool,
    pub(super) within: Nanos,
}

impl Origin {
    pub(super) const FIRST: Self = Self { nested: false, within: Nanos::MAX };
}

/// One client process: it has one target, whose health it knows from its own calls.
pub(super) trait Policy {
    fn open(&mut self, origin: Origin, now: Nanos) -> Ongoing;
    fn begin(&mut self, call: &mut Ongoing, now: Nanos, random: &mut Random) -> Start;
    fn ended(
        &mut self,
        call: &mut Ongoing,
        outcome: Outcome,
        now: Nanos,
        random: &mut Random,
    ) -> Next;
}

pub(super) type Make = Box<dyn Fn(&mut Random) -> Box<dyn Policy>>;

/// A policy by its name, from which each client process makes its own.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// The shipped code, as a whole.
    pub(super) ours: bool,
    pub(super) make: Make,
}

impl Contender {
    pub(super) fn new<P: Policy + 'static>(
        name: &'static str,
        make: impl Fn(&mut Random) -> P + 'static,
    ) -> Self {
        Self { name, ours: false, make: Box::new(move |random| Box::new(make(random))) }
    }

    pub(super) fn ours(self) -> Self {
        Self { ours: true, ..self }
    }
}
