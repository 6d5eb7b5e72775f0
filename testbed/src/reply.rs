//! Answers, read to their ends.

use std::fmt::Debug;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its header lines.
    pub headers: HeaderMap,
    /// All bytes of its body.
    pub body: Bytes,
    /// The lines after its body.
    pub trailers: Option<HeaderMap>,
}

impl Reply {
    /// Reads an answer to its end.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let reply = testbed::Reply::read(http::Response::new("done".to_owned())).await;
    /// assert_eq!((reply.status.as_u16(), reply.text()), (200, "done"));
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// When its body breaks off.
    pub async fn read<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Error: Debug>,
    {
        let (head, body) = response.into_parts();
        let collected = body.collect().await.expect("the answer is whole");
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        Self { status: head.status, headers: head.headers, body, trailers }
    }

    /// Its body as text.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// Its body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a problem document, or `""`.
    ///
    /// # Panics
    ///
    /// When a problem document has no code.
    #[track_caller]
    pub fn code(&self) -> String {
        if self.header("content-type") != Some("application/problem+json") {
            return String::new();
        }
        self.json()["code"].as_str().expect("a problem has a code").to_owned()
    }

    /// The first line of a name, as text.
    ///
    /// # Panics
    ///
    /// When it is no text.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header is text"))
    }

    /// Whether it says that it was stored before.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}
