//! How a call ended, for scripts.

use std::process::ExitCode;

use onceward::retry::Stop;

use super::sending::Ended;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is done.
    Ok,
    /// The server said no, and would say so again.
    Refused,
    /// It may have happened.
    Unknown,
    /// There was no answer that settles it, and none is waited for any more.
    GaveUp,
}

impl Outcome {
    pub(super) fn of(ended: &Ended) -> Self {
        match ended.report().stop() {
            // An earlier attempt that was not answered may have been carried out all the same.
            None if ended.moved().is_some() && ended.report().is_ambiguous() => Self::Unknown,
            None if ended.moved().is_some() => Self::Refused,
            None => Self::Ok,
            Some(Stop::Unknown(_)) => Self::Unknown,
            Some(Stop::Failed(reason)) if reason.is_answer() => Self::Refused,
            Some(Stop::Failed(_)) => Self::GaveUp,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::GaveUp => "gave_up",
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Refused => 3,
            Self::Unknown => 4,
            Self::GaveUp => 5,
        }
    }

    pub(super) fn exit_code(self) -> ExitCode {
        self.code().into()
    }

    /// Of several, the one that somebody has to look at first.
    pub(super) fn worse(self, other: Self) -> Self {
        let rank = |outcome| match outcome {
            Self::Ok => 0,
            Self::Refused => 1,
            Self::GaveUp => 2,
            Self::Unknown => 3,
        };
        if rank(self) >= rank(other) { self } else { other }
    }
}
