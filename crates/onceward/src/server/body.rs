//! Whole bodies, which the layer keeps.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;

use crate::http::{self as own, Body, BoxError, Read};

/// In a box, because few bodies have any.
pub(super) type Trailers = Option<Box<HeaderMap>>;

/// Bodies that can be made of bytes that were read before: what a layered service must take.
///
/// Implemented by [`Body`] and, with feature `axum`, by axum's. A plain hyper service maps its
/// requests first: `request.map(Body::new)`.
///
/// ```
/// use onceward::{Body, server::WholeBody};
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

/// A body that the layer has read to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBody {
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
    admits: impl FnMut(usize) -> bool,
) -> Result<ReadBody, Unread<B>>
where
    B: http_body::Body<Data = Bytes>,
{
    match own::read(body, admits).await {
        Err(_) => Err(Unread::Truncated),
        Ok(Read::More(first, rest)) => Err(Unread::TooLarge(first, rest)),
        Ok(Read::Whole(bytes, trailers)) => match declared_length(headers) {
            Some(declared) if declared != bytes.len() as u64 => Err(Unread::Truncated),
            _ => Ok(ReadBody { bytes, trailers: trailers.map(Box::new) }),
        },
    }
}

pub(super) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_is_shorter_than_declared_is_truncated() {
        let mut headers = HeaderMap::new();
        headers.insert("content-length", "5".parse().unwrap());
        let read = read_whole(Body::from("abcd"), &headers, |_| true).await;
        assert!(matches!(read, Err(Unread::Truncated)));
    }
}
