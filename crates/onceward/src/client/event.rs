//! What a call does, told while it does it.

use std::{fmt, time::Duration};

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
#[derive(Clone, Copy)]
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
        /// The key under which it is sent.
        key: Option<&'a str>,
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

impl fmt::Debug for Event<'_> {
    /// Everything but the key: what may be logged of it is its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { attempt, hedge, timeout, key } => {
                let digest = key.and_then(|key| Key::new(key).ok()).map(|key| key.digest());
                f.debug_struct("Began")
                    .field("attempt", attempt)
                    .field("hedge", hedge)
                    .field("timeout", timeout)
                    .field("key", &digest)
                    .finish()
            }
            Self::Ended { attempt, budget_left } => f
                .debug_struct("Ended")
                .field("attempt", attempt)
                .field("budget_left", budget_left)
                .finish(),
            Self::Waiting { wait, budget_left } => f
                .debug_struct("Waiting")
                .field("wait", wait)
                .field("budget_left", budget_left)
                .finish(),
            Self::Following { wait } => f.debug_struct("Following").field("wait", wait).finish(),
            Self::Refreshing => f.write_str("Refreshing"),
            Self::Stopped { stop } => f.debug_struct("Stopped").field("stop", stop).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_logged() {
        let key = Some("secret-key");
        let event = Event::Began { attempt: 1, hedge: false, timeout: Duration::ZERO, key };
        let text = format!("{event:?}");
        assert!(text.contains("attempt: 1") && !text.contains("secret-key"), "{text}");
    }
}
