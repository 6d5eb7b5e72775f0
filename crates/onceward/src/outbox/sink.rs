//! Where messages go.

use std::{sync::Arc, time::Duration};

use onceward_core::{
    BoxFuture,
    message::{Message, Sent, SinkName, Topic},
};

/// Where a relay sends messages: an HTTP endpoint, a broker, another database.
///
/// A relay sends messages of different aggregates side by side, and of one aggregate one at a time. It sends
/// a message again, under the same id, until the sink has said what became of it.
///
/// ```
/// use onceward::{outbox::{Attempt, Message, Sent, Sink, Topic}, store::BoxFuture};
///
/// /// Writes orders to standard output.
/// struct Printer;
///
/// impl Sink for Printer {
///     fn takes(&self, topic: &Topic) -> bool {
///         topic.as_str().starts_with("order.")
///     }
///
///     fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
///         Box::pin(async move {
///             println!("{} ({}), attempt {}", message.topic, message.id, attempt.number);
///             Sent::Accepted
///         })
///     }
/// }
/// ```
pub trait Sink: Send + Sync + 'static {
    /// Whether messages of this topic are for it. The answer must not change while the relay runs.
    fn takes(&self, topic: &Topic) -> bool;

    /// Sends one message, and says what became of it.
    ///
    /// The relay drops the future when the time of the attempt is over, and then takes it that the sink may
    /// have the message.
    fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent>;
}

impl<S: Sink + ?Sized> Sink for Arc<S> {
    fn takes(&self, topic: &Topic) -> bool {
        (**self).takes(topic)
    }

    fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        (**self).send(message, attempt)
    }
}

/// One attempt to deliver a message.
///
/// ```
/// use onceward::outbox::Attempt;
///
/// fn is_repeat(attempt: &Attempt) -> bool {
///     attempt.number > 1
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// To which sink.
    pub sink: SinkName,
    /// Counted from 1. Attempts whose outcome was not written down, because their relay died, are not counted.
    pub number: u32,
    /// The relay waits no longer for it.
    pub timeout: Duration,
    /// The trace that it belongs to: the span of this attempt, or else the producer's.
    pub traceparent: Option<String>,
}
