//! Bodies of requests: kept up to a bound, so that they can be sent again; others are sent once.

use bytes::Bytes;
use http::HeaderMap;

use crate::http::{Body, BoxError, Read, read};

/// A request's body, for as many attempts as it is good for.
///
/// ```
/// use onceward::{Body, client::driver::ReplayableBody};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), onceward::BoxError> {
/// let mut body = ReplayableBody::of(Body::from("{\"cents\": 500}"), 64 << 10).await?;
/// assert!(body.is_kept());
/// assert!(body.next_body().is_some() && body.next_body().is_some(), "as often as it is needed");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum ReplayableBody {
    /// It can be sent again and again.
    Whole(Bytes, Option<HeaderMap>),
    /// Too large to keep, or of unknown length: it can be sent once.
    Once(Option<Body>),
}

impl ReplayableBody {
    /// Keeps a body whose length is known and within the bound.
    ///
    /// # Errors
    ///
    /// The body broke off while it was read.
    pub async fn of<B>(body: B, most: usize) -> Result<Self, BoxError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.size_hint().exact().is_none_or(|length| length > most as u64) {
            return Ok(Self::Once(Some(Body::new(body))));
        }
        Ok(match read(body, |length| length <= most).await.map_err(Into::into)? {
            Read::Whole(bytes, trailers) => Self::Whole(bytes, trailers),
            // It is longer than it said; what was read of it is not lost.
            Read::More(first, rest) => Self::Once(Some(Body::after(first, rest))),
        })
    }

    /// Whether it can be sent again.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Whole(..))
    }

    /// The body of the next attempt; nothing, if it was sent before and cannot be again.
    pub fn next_body(&mut self) -> Option<Body> {
        match self {
            Self::Whole(bytes, trailers) => {
                Some(Body::whole(bytes.clone(), trailers.clone().map(Box::new)))
            }
            Self::Once(body) => body.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use testbed::Pieces;

    use super::*;

    async fn text(body: Body) -> Bytes {
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_kept_up_to_the_bound() {
        let mut kept = ReplayableBody::of(Body::from("abc"), 3).await.unwrap();
        for _ in 0..3 {
            assert_eq!(text(kept.next_body().unwrap()).await, "abc");
        }
        let mut large = ReplayableBody::of(Body::from("abcd"), 3).await.unwrap();
        assert!(!large.is_kept());
        assert_eq!(text(large.next_body().unwrap()).await, "abcd");
        assert!(large.next_body().is_none(), "sent once");
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_sent_once() {
        let mut streamed = ReplayableBody::of(Pieces::of(["a", "b"]), 1_000).await.unwrap();
        assert!(!streamed.is_kept());
        assert_eq!(text(streamed.next_body().unwrap()).await, "ab");
        assert!(streamed.next_body().is_none());
    }

    #[tokio::test]
    async fn a_body_that_is_longer_than_it_said_is_sent_once_and_whole() {
        let mut lied =
            ReplayableBody::of(Pieces::of(["ab", "cd", "ef"]).promising(1), 3).await.unwrap();
        assert!(!lied.is_kept());
        assert_eq!(text(lied.next_body().unwrap()).await, "abcdef");
    }
}
