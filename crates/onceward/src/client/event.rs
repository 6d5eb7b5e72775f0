//! The steps of a call, for those who observe it.

use std::time::Duration;

use onceward_core::{Key, retry::Stop};

use super::Attempt;

/// Something that a call does now: see [`Retry::observe`](super::Retry::observe).
///
/// ```
/// use onceward::client::Event;
///
/// fn line(event: &Event<'_>) -> Option<String> {
///     match event {
///         Event::Began { attempt, timeout, .. } => Some(format!("{attempt}: at most {timeout:?}")),
///         Event::Stopped { stop } => Some(stop.reason().to_string()),
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request is sent.
    Began {
        /// Its number: 1 is the first of the call.
        attempt: u32,
        /// Beside one that is late.
        hedge: bool,
        /// When it is given up.
        timeout: Duration,
        /// The key under which it is sent; its `Debug` shows only its digest.
        key: Option<&'a Key>,
    },
    /// It has ended, and shown this.
    Ended {
        /// What it has shown.
        attempt: &'a Attempt,
        /// What is left of the target's retry budget.
        budget_left: Option<u32>,
    },
    /// The call waits before it tries again.
    Waiting {
        /// How long.
        wait: Duration,
        /// What is left of the target's retry budget, with this retry paid.
        budget_left: Option<u32>,
    },
    /// The operation is carried out elsewhere; its status URL is asked after a wait.
    Following {
        /// How long the wait is.
        wait: Duration,
    },
    /// The credentials were refused, and new ones are asked for.
    Refreshing,
    /// No further attempt is made.
    Stopped {
        /// Why.
        stop: Stop,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_logged() {
        let key = Key::new("secret-key").unwrap();
        let (attempt, hedge, timeout, key) = (1, false, Duration::ZERO, Some(&key));
        let event = Event::Began { attempt, hedge, timeout, key };
        let text = format!("{event:?}");
        assert!(text.contains("attempt: 1") && !text.contains("secret-key"), "{text}");
    }
}
