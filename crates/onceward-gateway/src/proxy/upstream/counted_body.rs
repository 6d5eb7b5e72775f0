//! The body of an answer, counted until its client has taken it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use onceward::{Body, BoxError};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{answers::Answer, state::InFlight};

/// A body that counts until it has ended. Only with a limit of its own a route also counts it as a request
/// at the upstream, until that time: clients that do not read would take the places of all others.
pub(crate) fn counted<B>(
    body: B,
    answer: Answer,
    in_flight: Option<(InFlight, Option<Instant>)>,
) -> Body
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    match body.is_end_stream() {
        true => Body::new(body),
        false => {
            let (in_flight, until) = in_flight.unzip();
            let over = until.flatten().map(|until| Box::pin(sleep_until(until)));
            Body::new(CountedBody { body, answer, has_ended: false, in_flight, over })
        }
    }
}

struct CountedBody<B> {
    body: B,
    answer: Answer,
    has_ended: bool,
    in_flight: Option<InFlight>,
    /// When its place at the upstream ends.
    over: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for CountedBody<B>
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over.as_mut().is_some_and(|over| over.as_mut().poll(context).is_ready()) {
            (self.in_flight, self.over) = (None, None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let has_more = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        self.has_ended = !has_more || self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for CountedBody<B> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.answer.leave();
        }
    }
}
