//! How the attempts of a relay get into traces.

use std::{fmt, sync::Arc};

use onceward_core::message::{Message, Sent};

use super::Attempt;

/// Begins the span of an attempt: see [`RelayBuilder::spans`](super::RelayBuilder::spans).
pub(super) type BeginSpan = Arc<dyn Fn(&Message, &Attempt) -> DeliverySpan + Send + Sync>;

/// The span of one attempt, in the traces of the service.
///
/// ```
/// use onceward::outbox::{DeliverySpan, Sent};
///
/// let span = DeliverySpan::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", |sent: &Sent| {
///     println!("ended: {sent:?}");
/// });
/// # let _ = span;
/// ```
#[must_use = "the span ends when the relay ends it"]
pub struct DeliverySpan {
    traceparent: String,
    end: Box<dyn FnOnce(&Sent) + Send>,
}

impl DeliverySpan {
    /// A span of this `traceparent`, which the sink passes on; the relay calls `end` with what became of the
    /// attempt. If the relay gives the attempt up, `end` is dropped.
    pub fn new(traceparent: impl Into<String>, end: impl FnOnce(&Sent) + Send + 'static) -> Self {
        Self { traceparent: traceparent.into(), end: Box::new(end) }
    }

    pub(super) fn traceparent(&self) -> &str {
        &self.traceparent
    }

    pub(super) fn end(self, sent: &Sent) {
        (self.end)(sent);
    }
}

impl fmt::Debug for DeliverySpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DeliverySpan({})", self.traceparent)
    }
}
