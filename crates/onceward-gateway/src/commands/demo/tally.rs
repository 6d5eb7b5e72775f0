//! What the clients count, and the stories of their taps.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::{ledger::Ledger, network::Loss};

/// What happened so far, as `--json` has it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Numbers {
    pub(super) taps: u64,
    pub(super) requests: u64,
    /// Requests whose answer never reached the client.
    pub(super) lost: u64,
    /// 502 and 503: the upstream was away or not ready, and did nothing.
    pub(super) unready: u64,
    pub(super) conflicts: u64,
    /// 409 and 504: the gateway did not know at that moment whether it had happened.
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) replays: u64,
    /// How often the upstream began to charge a customer.
    pub(super) executions: u64,
    pub(super) charges: u64,
    pub(super) restarts: u64,
}

impl Numbers {
    /// By the names that people and tests read.
    pub(super) fn lines(&self) -> [(&'static str, u64); 10] {
        [
            ("taps", self.taps),
            ("requests", self.requests),
            ("lost", self.lost),
            ("unready", self.unready),
            ("conflicts", self.conflicts),
            ("unknown", self.unknown),
            ("refused", self.refused),
            ("replays", self.replays),
            ("executions", self.executions),
            ("charges", self.charges),
        ]
    }
}

/// Counted by all clients at once.
#[derive(Default)]
pub(super) struct Tally(Mutex<State>);

#[derive(Default)]
struct State {
    numbers: Numbers,
    latest: Option<Story>,
    unluckiest: Option<Story>,
}

/// A request on its way: lost, unless it is answered. Dropped with its client, it is lost too.
pub(super) struct Underway<'a> {
    tally: &'a Tally,
    answered: bool,
}

impl Underway<'_> {
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.tally.count(|numbers| numbers.lost += u64::from(!self.answered));
    }
}

impl Tally {
    pub(super) fn count(&self, count: impl FnOnce(&mut Numbers)) {
        count(&mut self.state().numbers);
    }

    /// With what the upstream did.
    pub(super) fn numbers(&self, ledger: &Ledger) -> Numbers {
        let numbers = self.state().numbers.clone();
        Numbers { executions: ledger.executions(), charges: ledger.charges(), ..numbers }
    }

    pub(super) fn send(&self) -> Underway<'_> {
        self.count(|numbers| numbers.requests += 1);
        Underway { tally: self, answered: false }
    }

    pub(super) fn remember(&self, story: Story) {
        let mut state = self.state();
        if state.latest.as_ref().is_none_or(|best| story.requests >= best.requests) {
            state.latest = Some(story.clone());
        }
        if state.unluckiest.as_ref().is_none_or(|best| story.requests > best.requests) {
            state.unluckiest = Some(story);
        }
    }

    /// The most eventful tap since the last call.
    pub(super) fn latest_story(&self) -> Option<Story> {
        self.state().latest.take()
    }

    pub(super) fn unluckiest_story(&self) -> Option<Story> {
        self.state().unluckiest.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Story {
    pub(super) tap: u64,
    pub(super) key: String,
    pub(super) requests: u64,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    TappedTwice,
    Lost(Loss),
    Restarted,
    StillRunning,
    Unknown,
    Unready,
    Charged,
    Replayed,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TappedTwice => "tapped twice",
            Self::Lost(Loss::Refused) => "no server there",
            Self::Lost(Loss::CutOff) => "cut off",
            Self::Lost(Loss::AnswerLost) => "answer lost",
            Self::Lost(Loss::TimedOut) => "timed out",
            Self::Restarted => "restarted",
            Self::StillRunning => "409 still running",
            Self::Unknown => "outcome unknown",
            Self::Unready => "upstream not ready",
            Self::Charged => "201 charged",
            Self::Replayed => "201 replayed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_lost_unless_it_is_answered() {
        let tally = Tally::default();
        tally.send().answered();
        drop(tally.send());
        let numbers = tally.numbers(&Ledger::default());
        assert_eq!((numbers.requests, numbers.lost), (2, 1));
    }

    #[test]
    fn the_unluckiest_tap_is_remembered_and_the_latest_shown_once() {
        let tally = Tally::default();
        for requests in [2, 5, 3] {
            tally.remember(Story { requests, ..Story::default() });
        }
        assert_eq!(tally.latest_story().map(|story| story.requests), Some(5));
        assert_eq!(tally.latest_story(), None);
        assert_eq!(tally.unluckiest_story().map(|story| story.requests), Some(5));
    }
}
