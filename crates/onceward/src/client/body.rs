//! Bodies of requests: kept up to a bound, so that they can be sent again; others are sent once.

use std::{
    fmt,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

use super::AnswerBody;

/// What goes wrong while a request is sent or a body is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, as the wrapped service gets it.
///
/// ```
/// use onceward::client::Body;
///
/// let request = http::Request::post("http://shop.example/charges").body(Body::from("{}"))?;
/// # let _ = request;
/// # Ok::<(), http::Error>(())
/// ```
pub struct Body(Kind);

enum Kind {
    Whole { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
    // Never locked: it makes a body that is only `Send` shareable, as some clients demand.
    Stream(Mutex<UnsyncBoxBody<Bytes, BoxError>>),
}

impl Body {
    /// Any body, sent as it comes, and once.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Stream(Mutex::new(body.map_err(Into::into).boxed_unsync())))
    }

    /// No bytes at all.
    #[must_use]
    pub fn empty() -> Self {
        Bytes::new().into()
    }

    fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(Kind::Whole { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), trailers })
    }

    #[cfg(feature = "reqwest")]
    /// All its bytes, if they are in memory, none was read, and no trailers follow.
    pub(super) fn as_bytes(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Whole { bytes, trailers: None } => Some(bytes.clone().unwrap_or_default()),
            _ => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::whole(bytes, None)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
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
            Kind::Stream(_) => "Body(stream)",
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
                Poll::Ready(data.or_else(|| trailers.take().map(Frame::trailers)).map(Ok))
            }
            Kind::Stream(body) => {
                let body = body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                Pin::new(body).poll_frame(context)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            Kind::Stream(body) => body.lock().is_ok_and(|body| body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            // A length in the head would leave no room for trailers in HTTP/1.1.
            Kind::Whole { trailers: Some(_), .. } => SizeHint::new(),
            Kind::Whole { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Stream(body) => {
                body.lock().map_or_else(|_| SizeHint::new(), |body| body.size_hint())
            }
        }
    }
}

/// A request's body, for as many attempts as it is good for.
#[derive(Debug)]
pub(super) enum Replay {
    /// It can be sent again and again.
    Whole(Bytes, Option<HeaderMap>),
    /// Too large to keep, or nobody knows how large: it can be sent once.
    Once(Option<Body>),
}

impl Replay {
    /// Keeps a body whose length is known and within the bound.
    pub(super) async fn of<B>(body: B, most: usize) -> Result<Self, BoxError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.size_hint().exact().is_none_or(|length| length > most as u64) {
            return Ok(Self::Once(Some(Body::new(body))));
        }
        Ok(match read_up_to(Box::pin(body), most).await.map_err(Into::into)? {
            Read::Whole(bytes, trailers) => Self::Whole(bytes, trailers),
            // It is longer than it said; what was read of it is not lost.
            Read::More(first, rest) => Self::Once(Some(Body::new(AnswerBody::after(first, rest)))),
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Once(_))
    }

    /// The body of the next attempt; nothing, if it was sent before and cannot be again.
    pub(super) fn next(&mut self) -> Option<Body> {
        match self {
            Self::Whole(bytes, trailers) => Some(Body::whole(bytes.clone(), trailers.clone())),
            Self::Once(body) => body.take(),
        }
    }
}

/// What reading a body up to a bound has given.
pub(super) enum Read<B> {
    Whole(Bytes, Option<HeaderMap>),
    /// It is longer; what was read, and what was not.
    More(Bytes, Pin<Box<B>>),
}

/// Reads a body to its end, or until it is longer than this.
pub(super) async fn read_up_to<B>(mut body: Pin<Box<B>>, most: usize) -> Result<Read<B>, B::Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let (mut only, mut joined, mut trailers) = (Bytes::new(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            // Most bodies come in one piece, which is not copied.
            Ok(data) if only.is_empty() && joined.is_empty() => only = data,
            Ok(data) => {
                joined.extend_from_slice(&std::mem::take(&mut only));
                joined.extend_from_slice(&data);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if only.len() + joined.len() > most {
            let first = if joined.is_empty() { only } else { joined.freeze() };
            return Ok(Read::More(first, body));
        }
    }
    let bytes = if joined.is_empty() { only } else { joined.freeze() };
    Ok(Read::Whole(bytes, trailers))
}

#[cfg(test)]
mod tests {
    use testbed::Pieces;

    use super::*;

    async fn text(body: Body) -> Bytes {
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_kept_up_to_the_bound() {
        let mut kept = Replay::of(Body::from("abc"), 3).await.unwrap();
        for _ in 0..3 {
            assert_eq!(text(kept.next().unwrap()).await, "abc");
        }
        let mut large = Replay::of(Body::from("abcd"), 3).await.unwrap();
        assert!(large.is_gone());
        assert_eq!(text(large.next().unwrap()).await, "abcd");
        assert!(large.next().is_none(), "sent once");
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_sent_once() {
        let mut streamed = Replay::of(Pieces::of(["a", "b"]), 1_000).await.unwrap();
        assert!(streamed.is_gone());
        assert_eq!(text(streamed.next().unwrap()).await, "ab");
        assert!(streamed.next().is_none());
    }

    #[tokio::test]
    async fn a_body_that_is_longer_than_it_said_is_sent_once_and_whole() {
        let mut lied = Replay::of(Pieces::of(["ab", "cd", "ef"]).promising(1), 3).await.unwrap();
        assert!(lied.is_gone());
        assert_eq!(text(lied.next().unwrap()).await, "abcdef");
    }

    #[tokio::test]
    async fn reading_stops_at_the_bound_and_loses_nothing() {
        let Read::More(first, mut rest) =
            read_up_to(Box::pin(Pieces::of(["ab", "cd", "ef"])), 3).await.unwrap()
        else {
            panic!("four bytes are more than three");
        };
        assert_eq!(first, "abcd");
        assert_eq!(rest.frame().await.unwrap().unwrap().into_data().unwrap(), "ef");
        let Read::Whole(all, _) = read_up_to(Box::pin(Pieces::of(["ab", "cd"])), 4).await.unwrap()
        else {
            panic!("four bytes are allowed");
        };
        assert_eq!(all, "abcd");
    }
}
