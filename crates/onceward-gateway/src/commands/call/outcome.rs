//! How a call ended, for scripts.

use std::process::ExitCode;

use onceward::retry::Stop;
use serde::Serialize;

use super::sending::Ended;

/// What became of a call; the later the variant, the sooner the operator has to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ok,
    /// The server said no, and would say so again.
    Refused,
    /// No answer settles it, and the client waits for none any more.
    GaveUp,
    Unknown,
}

impl Outcome {
    pub(super) fn of(ended: &Ended) -> Self {
        match ended.report().stop {
            // An earlier attempt that was not answered may have been carried out all the same.
            None if ended.moved().is_some() && ended.report().ambiguous => Self::Unknown,
            None if ended.moved().is_some() => Self::Refused,
            None => Self::Ok,
            Some(Stop::Unknown(_)) => Self::Unknown,
            Some(Stop::Failed(reason)) if reason.is_answer() => Self::Refused,
            Some(Stop::Failed(_)) => Self::GaveUp,
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
}
