//! Messages that leave with a commit: the outbox, and the relay that delivers what is in it.
//!
//! A producer puts a [`NewMessage`] into the outbox inside its own transaction. A [`Relay`] delivers it to a
//! [`Sink`]: at least once if the transaction commits, never if it does not, and in order per aggregate. On the
//! other side an inbox makes that once. `docs/messages.md` in the repository says what is promised.

#[cfg(feature = "relay")]
mod http_sink;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "relay")]
mod sink;
#[cfg(feature = "relay")]
mod spans;

#[cfg(feature = "relay")]
pub use http_sink::{HttpSink, HttpSinkError};
pub use onceward_core::message::{
    Aggregate, DeadLetters, Enqueue, InspectQueue, Lane, Message, MessageError, MessageId,
    NewMessage, Queue, Sent, SinkName, StartFrom, Topic,
};
#[cfg(feature = "relay")]
pub use relay::{
    OtherTopics, Relay, RelayBuildError, RelayBuilder, RelayError, SinkOptions, Waker,
};
#[cfg(feature = "relay")]
pub use sink::{Attempt, Sink};
#[cfg(feature = "relay")]
pub use spans::DeliverySpan;
