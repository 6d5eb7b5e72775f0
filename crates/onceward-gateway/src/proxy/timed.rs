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
    pause: Option<Duration>,
    until: Option<Instant>,
    /// Made when something has to be waited for; many bodies are there at once.
    sleep: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<B> Timed<B> {
    /// All of it must be there by then.
    pub(crate) fn whole(body: B, until: Instant) -> Self {
        Self { body, pause: None, until: Some(until), sleep: None, is_waiting: false }
    }

    /// No piece may take longer than this.
    pub(crate) fn pieces(body: B, pause: Duration) -> Self {
        Self { body, pause: Some(pause), until: None, sleep: None, is_waiting: false }
    }

    /// When the piece that is waited for comes too late.
    fn too_late(&self) -> Option<Instant> {
        let pause = self.pause.map(|pause| Instant::now() + pause);
        pause.into_iter().chain(self.until).min()
    }

    fn start_waiting(&mut self) {
        self.is_waiting = true;
        match (self.too_late(), &mut self.sleep) {
            (None, _) => {}
            (Some(then), Some(sleep)) => sleep.as_mut().reset(then),
            (Some(then), empty) => *empty = Some(Box::pin(sleep_until(then))),
        }
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
            self.is_waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if !self.is_waiting {
            self.start_waiting();
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        let too_late = "it took too long";
        sleep.as_mut().poll(context).map(|()| Some(Err(too_late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
