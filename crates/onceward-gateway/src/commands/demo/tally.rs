//! What the clients count, and the stories of their taps.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::network::Loss;

/// Counted by all clients at once.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) taps: Counter,
    pub(super) requests: Counter,
    pub(super) lost: Counter,
    pub(super) unready: Counter,
    pub(super) conflicts: Counter,
    pub(super) unknown: Counter,
    pub(super) refused: Counter,
    pub(super) replays: Counter,
    pub(super) restarts: Counter,
    stories: Mutex<Stories>,
}

#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
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
        if !self.answered {
            self.tally.lost.count();
        }
    }
}

impl Tally {
    pub(super) fn send(&self) -> Underway<'_> {
        self.requests.count();
        Underway { tally: self, answered: false }
    }

    /// Remembers the most eventful stories.
    pub(super) fn tell(&self, story: Story) {
        let mut stories = self.stories.lock().unwrap_or_else(PoisonError::into_inner);
        if stories.latest.as_ref().is_none_or(|best| story.requests >= best.requests) {
            stories.latest = Some(story.clone());
        }
        if stories.unluckiest.as_ref().is_none_or(|best| story.requests > best.requests) {
            stories.unluckiest = Some(story);
        }
    }

    /// The most eventful tap since this was last asked.
    pub(super) fn latest_story(&self) -> Option<Story> {
        self.stories.lock().unwrap_or_else(PoisonError::into_inner).latest.take()
    }

    /// The tap that needed the most requests.
    pub(super) fn unluckiest_story(&self) -> Option<Story> {
        self.stories.lock().unwrap_or_else(PoisonError::into_inner).unluckiest.clone()
    }
}

#[derive(Default)]
struct Stories {
    latest: Option<Story>,
    unluckiest: Option<Story>,
}

/// What one tap went through.
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
            Self::Lost(Loss::NobodyThere) => "nobody there",
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
        assert_eq!((tally.requests.get(), tally.lost.get()), (2, 1));
    }

    #[test]
    fn the_unluckiest_tap_is_remembered_and_the_latest_told_once() {
        let tally = Tally::default();
        for requests in [2, 5, 3] {
            tally.tell(Story { requests, ..Story::default() });
        }
        assert_eq!(tally.latest_story().map(|story| story.requests), Some(5));
        assert_eq!(tally.latest_story(), None);
        assert_eq!(tally.unluckiest_story().map(|story| story.requests), Some(5));
    }
}
