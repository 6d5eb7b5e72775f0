//! A body that must not take for ever.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward::server::BoxError;
use tokio::time::{Instant, Sleep, sleep_until};

/// Fails when the whole of it, or one piece of it, takes too long.
pub(crate) struct Timed<B> {
    body: B,
    sleep: Pin<Box<Sleep>>,
    pause: Option<Duration>,
}

impl<B> Timed<B> {
    /// All of it must be there by then.
    pub(crate) fn whole(body: B, until: Instant) -> Self {
        Self { body, sleep: Box::pin(sleep_until(until)), pause: None }
    }

    /// No piece may take longer than this.
    pub(crate) fn pieces(body: B, pause: Duration) -> Self {
        let sleep = Box::pin(sleep_until(Instant::now() + pause));
        Self { body, sleep, pause: Some(pause) }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(pause) = self.pause {
                self.sleep.as_mut().reset(Instant::now() + pause);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.sleep.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err("it took too long".into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
