//! How long an inbox must remember.

use std::{error::Error, fmt, time::Duration};

use super::Inbox;

/// Collects how long messages may come again, so that an inbox is refused that forgets them before.
///
/// ```
/// use std::time::Duration;
/// use onceward::inbox::{Inbox, InboxError};
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// # let store = ();
///
/// // The outbox keeps a message for a week, and the relay rests for at most an hour.
/// let inbox = Inbox::builder(store).messages_retain(7 * DAY).longest_backoff(DAY / 24);
/// assert!(matches!(inbox.clone().retain(3 * DAY).build(), Err(InboxError::TooShort { .. })));
/// assert!(inbox.retain(8 * DAY).build().is_ok());
/// ```
#[must_use = "nothing is made before `build` is called"]
#[derive(Clone, Debug)]
pub struct InboxBuilder<S> {
    store: S,
    retain: Duration,
    messages_retain: Duration,
    longest_backoff: Duration,
    redelivery: Duration,
}

impl<S> InboxBuilder<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            retain: Inbox::<S>::RETAIN,
            messages_retain: Duration::ZERO,
            longest_backoff: Duration::ZERO,
            redelivery: Duration::ZERO,
        }
    }

    /// How long a message is remembered; seven days if not said.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    /// How long the outbox keeps messages that were delivered: the `retain` of its sweep.
    pub fn messages_retain(mut self, retain: Duration) -> Self {
        self.messages_retain = retain;
        self
    }

    /// The longest pause between two attempts of the relay.
    pub fn longest_backoff(mut self, pause: Duration) -> Self {
        self.longest_backoff = pause;
        self
    }

    /// How long a broker or a sender in between may still deliver a message that it has got.
    pub fn redelivery(mut self, longest: Duration) -> Self {
        self.redelivery = longest;
        self
    }

    /// Makes the inbox, if it remembers a message for as long as that may come again.
    pub fn build(self) -> Result<Inbox<S>, InboxError> {
        let Self { store, retain, messages_retain, longest_backoff, redelivery } = self;
        let needed = messages_retain.saturating_add(longest_backoff).saturating_add(redelivery);
        if retain.is_zero() {
            return Err(InboxError::Nothing);
        }
        match retain < needed {
            true => Err(InboxError::TooShort { retain, needed }),
            false => Ok(Inbox { store, retain }),
        }
    }
}

/// Why an inbox would not do what it is for. Nothing was made.
///
/// ```
/// use std::time::Duration;
/// use onceward::inbox::Inbox;
///
/// let inbox = Inbox::builder(()).retain(Duration::from_secs(60)).redelivery(Duration::from_secs(90));
/// assert!(inbox.build().unwrap_err().to_string().contains("at least 90 s"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboxError {
    /// It would remember nothing.
    Nothing,
    /// A message may come again when it is forgotten.
    TooShort {
        /// How long it would be remembered.
        retain: Duration,
        /// How long it may come again.
        needed: Duration,
    },
}

impl fmt::Display for InboxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter
                .write_str("an inbox that retains nothing applies every repeat; say `retain`"),
            Self::TooShort { retain, needed } => write!(
                formatter,
                "the inbox forgets a message after {} s, and it may come again until {} s after its first \
                 delivery: such a repeat would be applied twice; retain for at least {} s, or keep messages \
                 for a shorter time",
                retain.as_secs(),
                needed.as_secs(),
                needed.as_secs()
            ),
        }
    }
}

impl Error for InboxError {}
