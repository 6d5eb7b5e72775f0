//! The body of a message: whole, so that it can be sent again, or a stream that is passed on as it comes.

use std::{
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

/// What goes wrong while a request is sent or a body is read.
///
/// ```
/// use onceward::{Body, BoxError};
///
/// let broken: Result<Body, BoxError> = Err("the connection was reset".into());
/// assert_eq!(broken.err().unwrap().to_string(), "the connection was reset");
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body of bytes that the layer or the client can read and send.
pub(crate) trait ByteBody:
    http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static
{
}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> ByteBody for B {}

/// The body of a request or of an answer.
///
/// ```
/// use onceward::Body;
///
/// let request = http::Request::new(Body::from("{\"cents\": 500}"));
/// # let _ = request;
/// ```
pub struct Body(Kind);

enum Kind {
    // The trailers are in a box, because few bodies have any.
    Whole { bytes: Option<Bytes>, trailers: Option<Box<HeaderMap>> },
    Stream { first: Option<Bytes>, rest: Shareable },
}

/// A stream that is only `Send`, made `Sync`, which reqwest demands of a body.
struct Shareable(Mutex<UnsyncBoxBody<Bytes, BoxError>>);

impl Shareable {
    fn stream(&mut self) -> &mut UnsyncBoxBody<Bytes, BoxError> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(&self, look: impl FnOnce(&UnsyncBoxBody<Bytes, BoxError>) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
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
    /// use onceward::Body;
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
        let rest = Shareable(Mutex::new(rest.map_err(Into::into).boxed_unsync()));
        Self(Kind::Stream { first, rest })
    }

    pub(crate) fn whole(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self(Kind::Whole { bytes, trailers })
    }

    /// No bytes at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::whole(Bytes::new(), None)
    }

    #[cfg(feature = "reqwest")]
    /// All its bytes, if they are in memory, none was read, and no trailers follow.
    pub(crate) fn as_bytes(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Whole { bytes, trailers: None } => Some(bytes.clone().unwrap_or_default()),
            _ => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::whole(bytes.into(), None)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match &self.0 {
            Kind::Whole { .. } => "Body(whole)",
            Kind::Stream { .. } => "Body(stream)",
        })
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
            Kind::Whole { bytes, trailers } => {
                let data = bytes.take().map(Frame::data);
                let next = data.or_else(|| trailers.take().map(|lines| Frame::trailers(*lines)));
                Poll::Ready(next.map(Ok))
            }
            Kind::Stream { first, rest } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => Pin::new(rest.stream()).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            Kind::Stream { first, rest } => {
                first.is_none() && rest.look(http_body::Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            // A length in the head would leave no room for trailers in HTTP/1.1.
            Kind::Whole { trailers: Some(_), .. } => SizeHint::new(),
            Kind::Whole { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Stream { first: None, rest } => rest.look(http_body::Body::size_hint),
            Kind::Stream { .. } => SizeHint::new(),
        }
    }
}

/// What reading a body up to a bound has given.
pub(crate) enum Read<B> {
    Whole(Bytes, Option<HeaderMap>),
    /// It is longer; what was read, and what was not.
    More(Bytes, Pin<Box<B>>),
}

/// Reads a body to its end. `admits` gets the length up to each piece; when it refuses, the caller gets
/// what was read, and the rest.
pub(crate) async fn read<B>(
    body: B,
    mut admits: impl FnMut(usize) -> bool,
) -> Result<Read<B>, B::Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    let (mut pieces, mut trailers) = (Pieces::default(), None);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                pieces.push(data);
                if !admits(pieces.len()) {
                    return Ok(Read::More(pieces.join(), body));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Read::Whole(pieces.join(), trailers))
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
        let end = Body::whole("cd".into(), Some(Box::new(trailers.clone())));
        let Ok(Read::Whole(bytes, read)) = read(Body::after("ab".into(), end), |_| true).await
        else {
            panic!("it has an end");
        };
        assert_eq!((&bytes[..], read), (&b"abcd"[..], Some(trailers)));
    }

    #[tokio::test]
    async fn a_body_over_the_bound_is_given_back_unharmed() {
        let body = Body::after("ab".into(), Body::from("cd"));
        let Ok(Read::More(first, rest)) = read(body, |length| length <= 3).await else {
            panic!("three bytes were allowed");
        };
        let again = Body::after(first, rest).collect().await.unwrap().to_bytes();
        assert_eq!(&again[..], b"abcd");
        let read = read(Body::from("abcd"), |length| length <= 4).await;
        assert!(matches!(read, Ok(Read::Whole(bytes, None)) if bytes == "abcd"));
    }
}
