//! Bodies of answers: as they come, with the place in flight that they take until they end.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::driver::InFlightPermit;
use crate::http::{BoxError, Read};

/// The body of an answer. The call counts as in flight until it was read to the end, or dropped.
///
/// ```
/// use http_body_util::BodyExt as _;
/// use onceward::client::AnswerBody;
///
/// # async fn example(body: AnswerBody<http_body_util::Full<bytes::Bytes>>) -> Result<(), onceward::BoxError> {
/// let bytes = body.collect().await?.to_bytes();
/// # let _ = bytes;
/// # Ok(())
/// # }
/// ```
pub struct AnswerBody<B> {
    first: Option<Bytes>,
    rest: Option<Pin<Box<B>>>,
    trailers: Option<HeaderMap>,
    permit: Option<InFlightPermit>,
}

impl<B: http_body::Body<Data = Bytes>> AnswerBody<B> {
    pub(super) fn streamed(body: B, permit: InFlightPermit) -> Self {
        Self::read(Read::More(Bytes::new(), Box::pin(body)), permit)
    }

    /// A body of which a part was read, or all of it: then the call has landed.
    pub(super) fn read(read: Read<B>, permit: InFlightPermit) -> Self {
        let (first, rest, trailers) = match read {
            Read::Whole(bytes, trailers) => (bytes, None, trailers),
            Read::More(first, rest) => (first, Some(rest), None),
        };
        let first = Some(first).filter(|first| !first.is_empty());
        let mut body = Self { first, rest, trailers, permit: Some(permit) };
        body.land();
        body
    }

    /// All of it, if the client has read it to the end.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        match &self.rest {
            None => Some(self.first.as_deref().unwrap_or_default()),
            Some(_) => None,
        }
    }

    fn rest_has_ended(&self) -> bool {
        self.rest.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn land(&mut self) {
        if self.rest_has_ended() {
            self.permit = None;
        }
    }
}

impl<B> From<Bytes> for AnswerBody<B> {
    fn from(bytes: Bytes) -> Self {
        let first = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { first, rest: None, trailers: None, permit: None }
    }
}

impl<B> http_body::Body for AnswerBody<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = &mut *self;
        if let Some(first) = body.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(rest) = &mut body.rest else {
            return Poll::Ready(body.trailers.take().map(|lines| Ok(Frame::trailers(lines))));
        };
        let frame = std::task::ready!(rest.as_mut().poll_frame(context));
        match &frame {
            Some(Ok(_)) => body.land(),
            None | Some(Err(_)) => body.permit = None,
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.trailers.is_none() && self.rest_has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |first| first.len() as u64);
        let Some(rest) = &self.rest else { return SizeHint::with_exact(first) };
        let of_rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(of_rest.lower().saturating_add(first));
        if let Some(upper) = of_rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}

impl<B> fmt::Debug for AnswerBody<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.rest.is_some() { "stream" } else { "whole" };
        write!(formatter, "AnswerBody({kind})")
    }
}
