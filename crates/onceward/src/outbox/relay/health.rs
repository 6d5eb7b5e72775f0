//! When a sink is left alone: it is down, or its breaker is open.
//!
//! All lanes of a sink rest together. When the rest is over, one message is sent, and only if the sink takes a
//! stand on it the others follow: a sink that is down costs one connection now and then, and parks nothing.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use onceward_core::retry::{Backoff, Moment};

/// The wait before a sink that is down is tried again. Short, because one message is tried.
const REST: Backoff =
    Backoff::Equal { base: Duration::from_millis(100), cap: Duration::from_secs(10) };

#[derive(Default)]
pub(super) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    /// Rests since the sink last took a stand on a message.
    rests: u32,
    until: Moment,
}

impl Health {
    /// The sink is to rest, for as long as it asked for. Gives whether that is news.
    pub(super) fn rest(&self, asked: Option<Duration>, now: Moment, random: u64) -> bool {
        let mut state = self.state();
        let is_resting = now < state.until;
        // What else was under way when it went down says the same once more.
        if !is_resting {
            state.rests = state.rests.saturating_add(1);
            state.until = now + REST.wait(state.rests, Duration::ZERO, random);
        }
        state.until = state.until.max(now.saturating_add(asked.unwrap_or_default()));
        !is_resting && state.rests == 1
    }

    /// The sink took a stand on a message. Gives whether that is news.
    pub(super) fn recover(&self) -> bool {
        let mut state = self.state();
        let is_news = state.rests > 0;
        *state = State::default();
        is_news
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.state().rests > 0
    }

    /// Until when it rests; a moment that has passed: it does not.
    pub(super) fn until(&self) -> Moment {
        self.state().until
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_ten_seconds_and_end_with_the_first_stand() {
        let health = Health::default();
        let mut now = Duration::from_secs(1);
        for number in 0..20 {
            assert_eq!(health.rest(None, now, number), number == 0, "{number}");
            assert!(!health.rest(None, now, number), "another message says the same");
            let rest = health.until() - now;
            assert!((Duration::from_millis(50)..=Duration::from_secs(10)).contains(&rest));
            now = health.until();
        }
        let last = Duration::from_secs(5)..=Duration::from_secs(10);
        assert!(!health.rest(None, now, 7) && last.contains(&(health.until() - now)));
        assert!(health.recover() && !health.is_suspect() && !health.recover());
    }

    #[test]
    fn a_sink_that_asks_for_more_gets_it() {
        let (health, now) = (Health::default(), Duration::from_secs(1));
        health.rest(Some(Duration::from_secs(60)), now, 1);
        assert_eq!(health.until() - now, Duration::from_secs(60));
        health.rest(Some(Duration::from_secs(90)), now, 1);
        assert_eq!(health.until() - now, Duration::from_secs(90));
    }
}
