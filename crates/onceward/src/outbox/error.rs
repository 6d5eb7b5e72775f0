//! Why a message is not in the outbox.

use std::fmt;

use crate::{
    StoreError,
    message::{MessageError, MessageId, NewMessage},
};

/// Why a message is not in the outbox. The transaction must be rolled back.
///
/// ```
/// use onceward::outbox::{EnqueueError, NewMessage};
///
/// let error = EnqueueError::from(NewMessage::new("", "7").unwrap_err());
/// assert!(error.to_string().contains("nothing was enqueued"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnqueueError {
    /// It cannot be sent as it is.
    Message(MessageError),
    /// A message of this id is in the outbox already.
    Repeated(MessageId),
    /// The store did not take it.
    Store(StoreError),
}

impl EnqueueError {
    pub(crate) fn of(error: StoreError, message: &NewMessage) -> Self {
        match (error, message.id) {
            (StoreError::Repeated(_), Some(id)) => Self::Repeated(id),
            (error, _) => Self::Store(error),
        }
    }
}

impl fmt::Display for EnqueueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(error) => error.fmt(formatter),
            Self::Repeated(id) => write!(
                formatter,
                "a message with the id {id} is in the outbox already, and keeps its body; roll back: \
                 the transaction that enqueued it was committed, or give this message an id of its own"
            ),
            Self::Store(error) => {
                write!(formatter, "the message was not enqueued, roll back: {error}")
            }
        }
    }
}

impl std::error::Error for EnqueueError {}

impl From<MessageError> for EnqueueError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}
