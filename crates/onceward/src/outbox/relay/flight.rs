//! One attempt: a sink that hangs or panics costs this one, and nothing else.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use onceward_core::message::{Message, Sent};
use tokio::time::timeout;

use crate::{
    crashpoint,
    outbox::{Attempt, Sink},
};

/// Sends a message once, within the attempt's time.
pub(super) async fn attempt_once(sink: &dyn Sink, message: &Message, attempt: &Attempt) -> Sent {
    // The sink is called inside: also what it does before it returns its future may panic.
    let sending = async { sink.send(message, attempt).await };
    let timed = async {
        let sent = timeout(attempt.timeout, sending);
        crashpoint!("relay.send", sent.await.map_err(drop), ())
    };
    match Caught(pin!(timed)).await {
        Some(Ok(sent)) => sent,
        Some(Err(_)) => Sent::Unknown { why: format!("no answer within {:?}", attempt.timeout) },
        None => Sent::Unknown { why: "the sink panicked; it may have the message".to_owned() },
    }
}

/// A future whose panic is an answer: `None`. It is not asked again after that.
struct Caught<F>(F);

impl<F: Future + Unpin> Future for Caught<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = Pin::new(&mut self.0);
        match catch_unwind(AssertUnwindSafe(|| inner.poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    }
}
