//! Messages whose body is JSON.

use std::{error::Error, fmt};

use serde::Serialize;

use crate::message::{MessageError, NewMessage};

/// Makes a message whose body is this value as JSON, with the header `content-type`.
///
/// ```
/// use onceward::outbox::{JsonError, json};
///
/// let message = json("order.placed", &[1, 2])?;
/// assert_eq!(message.body, b"[1,2]");
/// # Ok::<(), JsonError>(())
/// ```
pub fn json<T: Serialize + ?Sized>(topic: &str, value: &T) -> Result<NewMessage, JsonError> {
    let body = serde_json::to_vec(value).map_err(|error| JsonError::Value(error.to_string()))?;
    let message = NewMessage::new(topic, body).map_err(JsonError::Message)?;
    Ok(message.header("content-type", "application/json"))
}

/// Why a value cannot be a message. Nothing was enqueued.
///
/// ```
/// use std::collections::BTreeMap;
/// use onceward::outbox::{JsonError, json};
///
/// let pairs = BTreeMap::from([((1, 2), 3)]);
/// assert!(matches!(json("pairs", &pairs), Err(JsonError::Value(_))), "JSON has no such keys");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// It has no form in JSON.
    Value(String),
    /// The topic cannot be one.
    Message(MessageError),
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(why) => write!(
                formatter,
                "the value cannot be written as JSON ({why}); nothing was enqueued: change its type, or make \
                 the body yourself"
            ),
            Self::Message(error) => error.fmt(formatter),
        }
    }
}

impl Error for JsonError {}
