//! The ways in which a history can be wrong, told so that a person can follow the evidence.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use crate::history::{Answer, Attempt, Digest, Effect, OperationName, Verdict};

/// An attempt, with its place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnEnded {
    /// Its index in [`History::attempts`](crate::history::History::attempts).
    pub number: usize,
    /// What was asked and heard.
    pub attempt: Attempt,
}

impl OnEnded {
    pub(super) fn answer(&self) -> &Answer {
        &self.attempt.answer
    }
}

impl Display for OnEnded {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (started, ended) = (Time(self.attempt.started), Time(self.attempt.ended));
        let Self { number, attempt } = self;
        write!(formatter, "attempt {number} ({started} to {ended}) heard {}", attempt.answer)
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the evidence, and are named for it")]
pub enum Violation {
    /// It happened more than once.
    DoubleEffect { operation: OperationName, effects: Vec<Effect> },
    /// A client was told ok, and it did not happen or was lost.
    AbsentEffect { ok: OnEnded },
    /// A client was told ok before it happened.
    LateEffect { ok: OnEnded, effect: Effect },
    /// Something else happened than what was asked for.
    ForeignEffect { effect: Effect, asked: String },
    /// A client was told that nothing happened, and it did.
    DeniedEffect { denial: OnEnded, effects: Vec<Effect> },
    /// It happened, and nobody asked for it.
    UnaskedEffect { effect: Effect },
    /// An operation has an answer, and nobody asked for it.
    UnaskedAnswer { heard: OnEnded },
    /// Two answers of the same kind that bind differ in status, headers or body.
    DivergentReplay { first: OnEnded, second: OnEnded },
    /// One client was told ok, another a failure that binds.
    OtherBoundAnswer { first: OnEnded, second: OnEnded },
    /// Two clients were told that their own request was the one that was run.
    SecondFirstAnswer { first: OnEnded, second: OnEnded },
    /// After an answer that binds a client was told that nothing happened.
    ForgottenAnswer { bound: OnEnded, denial: OnEnded },
    /// The body of an ok is not the whole one, or not that of this operation.
    WrongBody { ok: OnEnded, expected: Digest },
    /// A client was told that its key means something else, though it always asked for the same.
    Disowned { refused: OnEnded },
    /// The last word about an operation is not what the ledger says.
    UntrueVerdict { operation: OperationName, verdict: Verdict, effects: Vec<Effect> },
    /// An answer that binds is not the last word.
    LostAnswer { bound: OnEnded, verdict: Verdict },
    /// The last word is unknown, though the truth could be found or the operation run again.
    UnknownForEver { operation: OperationName, last: Option<OnEnded>, effects: Vec<Effect> },
    /// An operation never ended.
    NotEnded { operation: OperationName, last: Option<OnEnded> },
    /// An operation ended too late.
    EndedLate { operation: OperationName, at: Duration, limit: Duration },
    /// Too few operations ended well soon after the faults.
    Unavailable { ended: usize, operations: usize, floor_percent: usize, within: Duration },
    /// Not one attempt was answered with ok.
    NothingOk { attempts: usize },
}

impl Violation {
    /// The operation that it is about; `None`: about the whole system.
    #[must_use]
    pub fn operation(&self) -> Option<&OperationName> {
        match self {
            Self::DoubleEffect { operation, .. }
            | Self::UntrueVerdict { operation, .. }
            | Self::UnknownForEver { operation, .. }
            | Self::NotEnded { operation, .. }
            | Self::EndedLate { operation, .. } => Some(operation),
            Self::ForeignEffect { effect, .. } | Self::UnaskedEffect { effect } => {
                Some(&effect.operation)
            }
            Self::AbsentEffect { ok: heard }
            | Self::LateEffect { ok: heard, .. }
            | Self::DeniedEffect { denial: heard, .. }
            | Self::UnaskedAnswer { heard }
            | Self::DivergentReplay { first: heard, .. }
            | Self::OtherBoundAnswer { first: heard, .. }
            | Self::SecondFirstAnswer { first: heard, .. }
            | Self::ForgottenAnswer { bound: heard, .. }
            | Self::WrongBody { ok: heard, .. }
            | Self::Disowned { refused: heard }
            | Self::LostAnswer { bound: heard, .. } => Some(&heard.attempt.operation),
            Self::Unavailable { .. } | Self::NothingOk { .. } => None,
        }
    }

    /// A short name for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::DoubleEffect { .. } => "double effect",
            Self::AbsentEffect { .. } => "absent effect",
            Self::LateEffect { .. } => "late effect",
            Self::ForeignEffect { .. } => "foreign effect",
            Self::DeniedEffect { .. } => "denied effect",
            Self::UnaskedEffect { .. } => "unasked effect",
            Self::UnaskedAnswer { .. } => "unasked answer",
            Self::DivergentReplay { .. } => "divergent replay",
            Self::OtherBoundAnswer { .. } => "other bound answer",
            Self::SecondFirstAnswer { .. } => "second first answer",
            Self::ForgottenAnswer { .. } => "forgotten answer",
            Self::WrongBody { .. } => "wrong body",
            Self::Disowned { .. } => "disowned",
            Self::UntrueVerdict { .. } => "untrue verdict",
            Self::LostAnswer { .. } => "lost answer",
            Self::UnknownForEver { .. } => "unknown for ever",
            Self::NotEnded { .. } => "not ended",
            Self::EndedLate { .. } => "ended late",
            Self::Unavailable { .. } => "unavailable",
            Self::NothingOk { .. } => "nothing ok",
        }
    }
}

impl Display for Violation {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "{}: ", self.name())?;
        if let Some(operation) = self.operation() {
            write!(to, "operation {operation}: ")?;
        }
        match self {
            Self::DoubleEffect { effects, .. } => {
                write!(to, "it happened {} times: {}.", effects.len(), Lines(effects))
            }
            Self::AbsentEffect { ok } => write!(to, "{ok}, but the ledger has no line of it."),
            Self::LateEffect { ok, effect } => {
                write!(to, "{ok}, but it happened only at {}.", Time(effect.at))
            }
            Self::ForeignEffect { effect, asked } => {
                write!(to, "asked for was `{asked}`, but the ledger has {}.", Line(effect))
            }
            Self::DeniedEffect { denial, effects } => {
                write!(to, "{denial}, but the ledger has {}.", Lines(effects))
            }
            Self::UnaskedEffect { effect } => {
                write!(to, "nobody asked for it, but the ledger has {}.", Line(effect))
            }
            Self::UnaskedAnswer { heard } => write!(to, "nobody asked for it, but {heard}."),
            Self::DivergentReplay { first, second } => {
                write!(to, "{first}, but {second}: they should be the same.")
            }
            Self::OtherBoundAnswer { first, second } => {
                write!(to, "{first}, but {second}: both bind, and only one can be true.")
            }
            Self::SecondFirstAnswer { first, second } => {
                write!(to, "{first}, and {second}: neither is a replay, so it ran twice.")
            }
            Self::ForgottenAnswer { bound, denial } => {
                write!(to, "{bound}, but {denial}, though it asked later.")
            }
            Self::WrongBody { ok, expected } => {
                write!(to, "{ok}, but the whole body of its own answer is {expected}.")
            }
            Self::Disowned { refused } => {
                write!(to, "{refused}, though this scope always asked for the same.")
            }
            Self::UntrueVerdict { verdict, effects, .. } => {
                write!(to, "the last word is {verdict}, but the ledger has {}.", Lines(effects))
            }
            Self::LostAnswer { bound, verdict } => {
                write!(to, "{bound}, but the last word is {verdict}.")
            }
            Self::UnknownForEver { last, effects, .. } => {
                write!(to, "the last word is unknown; {}; ", Last(last))?;
                write!(to, "the ledger has {}.", Lines(effects))
            }
            Self::NotEnded { last, .. } => write!(to, "it never ended; {}.", Last(last)),
            Self::EndedLate { at, limit, .. } => {
                write!(to, "it ended at {}, but had to until {}.", Time(*at), Time(*limit))
            }
            Self::Unavailable { ended, operations, floor_percent, within } => {
                write!(to, "{ended} of {operations} operations ended ok or unknown ")?;
                write!(to, "within {} of the last fault, ", Time(*within))?;
                write!(to, "but {floor_percent} % should.")
            }
            Self::NothingOk { attempts } => write!(to, "none of {attempts} attempts heard ok."),
        }
    }
}

struct Time(Duration);

impl Display for Time {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.6} s", self.0.as_secs_f64())
    }
}

struct Line<'a>(&'a Effect);

impl Display for Line<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` at {}", self.0.payload, Time(self.0.at))
    }
}

struct Lines<'a>(&'a [Effect]);

impl Display for Lines<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|effect| Line(effect).to_string()).collect();
        match lines.is_empty() {
            true => formatter.write_str("no line of it"),
            false => formatter.write_str(&lines.join(", ")),
        }
    }
}

struct Last<'a>(&'a Option<OnEnded>);

impl Display for Last<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(heard) => write!(formatter, "at last {heard}"),
            None => formatter.write_str("there was no attempt at all"),
        }
    }
}
