//! Bodies: whole ones that the layer keeps, and streams that it passes on.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

/// In a box, because few bodies have any.
pub(super) type Trailers = Option<Box<HeaderMap>>;

/// What goes wrong while a body is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer, and of a request in a service that does not use axum.
///
/// ```
/// use onceward::server::Body;
///
/// let request = http::Request::new(Body::from("{\"cents\": 500}"));
/// # let _ = request;
/// ```
pub struct Body(Kind);

enum Kind {
    Whole { bytes: Option<Bytes>, trailers: Trailers },
    Stream { first: Option<Bytes>, rest: UnsyncBoxBody<Bytes, BoxError> },
}

impl Body {
    /// Any body, passed on as it comes.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::after(Bytes::new(), body)
    }

    /// Bytes that were already read, and then the rest as it comes.
    ///
    /// ```
    /// use onceward::server::Body;
    ///
    /// let body = Body::after("{\"cents\":".into(), Body::from(" 500}"));
    /// # let _ = body;
    /// ```
    pub fn after<B>(first: Bytes, rest: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let first = Some(first).filter(|first| !first.is_empty());
        let rest = rest.map_err(Into::into).boxed_unsync();
        Self(Kind::Stream { first, rest })
    }

    /// A whole body.
    pub(super) fn whole(bytes: Bytes, trailers: Trailers) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self(Kind::Whole { bytes, trailers })
    }

    /// No bytes at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::from_whole(Bytes::new(), None)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::from_whole(bytes, None)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Whole { .. } => "whole",
            Kind::Stream { .. } => "stream",
        };
        write!(formatter, "Body({kind})")
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole { bytes, trailers, .. } => {
                let data = bytes.take().map(Frame::data);
                Poll::Ready(
                    data.or_else(|| trailers.take().map(|headers| Frame::trailers(*headers)))
                        .map(Ok),
                )
            }
            Kind::Stream { first, rest, .. } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => Pin::new(rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { bytes, trailers, .. } => bytes.is_none() && trailers.is_none(),
            Kind::Stream { first, rest, .. } => first.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            // A length in the head would leave no room for trailers in HTTP/1.1.
            Kind::Whole { trailers: Some(_), .. } => SizeHint::new(),
            Kind::Whole { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Stream { first: None, rest, .. } => rest.size_hint(),
            Kind::Stream { .. } => SizeHint::new(),
        }
    }
}

/// Bodies that can be made of bytes that were read before: what a layered service must take.
///
/// Implemented by [`Body`] and, with feature `axum`, by axum's. A plain hyper service maps its
/// requests first: `request.map(Body::new)`.
///
/// ```
/// use onceward::server::{Body, WholeBody};
///
/// let body = Body::from_whole("{}".into(), None);
/// assert_eq!(http_body::Body::size_hint(&body).exact(), Some(2));
/// ```
pub trait WholeBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {
    /// A body of these bytes, followed by trailers if there were any.
    fn from_whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self;
}

impl WholeBody for Body {
    fn from_whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::whole(bytes, trailers.map(Box::new))
    }
}

#[cfg(feature = "axum")]
impl WholeBody for axum::body::Body {
    fn from_whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        match trailers {
            None => bytes.into(),
            Some(_) => Self::new(Body::from_whole(bytes, trailers)),
        }
    }
}

/// A body that was read to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) trailers: Trailers,
}

/// How reading a body to its end failed.
pub(super) enum Unread<B> {
    /// More than the limit; what was read, and what was not.
    TooLarge(Bytes, Pin<Box<B>>),
    /// It broke off, or is not as long as was said.
    Truncated,
}

/// Reads a body to its end. `admits` is asked about each piece with the length up to there.
pub(super) async fn read_whole<B>(
    body: B,
    headers: &HeaderMap,
    mut admits: impl FnMut(usize) -> bool,
) -> Result<Whole, Unread<B>>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    let mut pieces = Pieces::default();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(Unread::Truncated) };
        match frame.into_data() {
            Ok(data) => {
                let length = pieces.len() + data.len();
                pieces.push(data);
                if !admits(length) {
                    return Err(Unread::TooLarge(pieces.join(), body));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok().map(Box::new),
        }
    }
    let bytes = pieces.join();
    match declared_length(headers) {
        Some(declared) if declared != bytes.len() as u64 => Err(Unread::Truncated),
        _ => Ok(Whole { bytes, trailers }),
    }
}

/// The length that a head promises.
pub(super) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Joins pieces, without a copy if there is only one.
#[derive(Default)]
struct Pieces {
    only: Bytes,
    joined: BytesMut,
}

impl Pieces {
    fn len(&self) -> usize {
        self.only.len() + self.joined.len()
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.only = piece;
            return;
        }
        let only = std::mem::take(&mut self.only);
        self.joined.extend_from_slice(&only);
        self.joined.extend_from_slice(&piece);
    }

    fn join(self) -> Bytes {
        match self.joined.is_empty() {
            true => self.only,
            false => self.joined.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_and_trailers_are_joined_in_order() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        let body = Body::after("ab".into(), Body::from_whole("cd".into(), Some(trailers.clone())));
        let whole = read_whole(body, &HeaderMap::new(), |_| true).await.ok().unwrap();
        assert_eq!((&whole.bytes[..], whole.trailers), (&b"abcd"[..], Some(trailers.into())));
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_given_back_unharmed() {
        let body = Body::after("ab".into(), Body::from("cd"));
        let Err(Unread::TooLarge(first, rest)) =
            read_whole(body, &HeaderMap::new(), |length| length <= 3).await
        else {
            panic!("three bytes were allowed");
        };
        let again = Body::after(first, rest).collect().await.unwrap().to_bytes();
        assert_eq!(&again[..], b"abcd");
    }

    #[tokio::test]
    async fn a_body_that_is_shorter_than_declared_is_truncated() {
        let mut headers = HeaderMap::new();
        headers.insert("content-length", "5".parse().unwrap());
        let read = read_whole(Body::from("abcd"), &headers, |_| true).await;
        assert!(matches!(read, Err(Unread::Truncated)));
    }
}
