//! Everything of a request but its body.

use super::{encoder::Encoder, media_type::MediaType, query};
use alloc::string::String;
use alloc::vec::Vec;

/// The part of a request in front of its body, as far as its meaning depends on it.
///
/// ```
/// use onceward_core::{Fingerprint, RequestHead};
///
/// let head = RequestHead::new("POST", "/charges")
///     .query(Some("expand=customer&dry_run=1"))
///     .content_type(Some(b"application/json; charset=utf-8"))
///     .header("X-Api-Version", b"2026-01-01");
/// let reordered = RequestHead::new("POST", "/charges")
///     .query(Some("dry_run=1&expand=customer"))
///     .content_type(Some(b"application/json"))
///     .header("x-api-version", b"2026-01-01");
/// assert_eq!(Fingerprint::v1(&head, b"{}"), Fingerprint::v1(&reordered, b"{}"));
/// ```
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    content_type: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    headers: Vec<(String, &'a [u8])>,
}

impl<'a> RequestHead<'a> {
    /// Begins with the method and the concrete path, without query; both count as they are given.
    ///
    /// ```
    /// use onceward_core::{Fingerprint, RequestHead};
    ///
    /// let one = RequestHead::new("POST", "/orders/1/refund");
    /// let two = RequestHead::new("POST", "/orders/2/refund");
    /// assert_ne!(Fingerprint::v1(&one, b""), Fingerprint::v1(&two, b""));
    /// ```
    #[must_use]
    pub const fn new(method: &'a str, path: &'a str) -> Self {
        Self {
            method,
            path,
            query: None,
            content_type: None,
            content_encoding: None,
            headers: Vec::new(),
        }
    }

    /// The query without its `?`; an empty one means the same as none.
    ///
    /// ```
    /// use onceward_core::{Fingerprint, RequestHead};
    ///
    /// let none = RequestHead::new("POST", "/charges");
    /// let empty = none.clone().query(Some(""));
    /// let some = none.clone().query(Some("dry_run"));
    /// assert_eq!(Fingerprint::v1(&none, b""), Fingerprint::v1(&empty, b""));
    /// assert_ne!(Fingerprint::v1(&none, b""), Fingerprint::v1(&some, b""));
    /// ```
    #[must_use]
    pub const fn query(mut self, query: Option<&'a str>) -> Self {
        self.query = query;
        self
    }

    /// The value of `Content-Type`; it also decides how the body is read.
    ///
    /// ```
    /// use onceward_core::{Fingerprinter, RequestHead};
    ///
    /// let head = RequestHead::new("POST", "/notes").content_type(Some(b"text/plain"));
    /// assert!(matches!(Fingerprinter::v1(&head), Fingerprinter::Raw(_)));
    /// ```
    #[must_use]
    pub const fn content_type(mut self, value: Option<&'a [u8]>) -> Self {
        self.content_type = value;
        self
    }

    /// The value of `Content-Encoding`; an encoded body counts byte by byte.
    ///
    /// ```
    /// use onceward_core::{Fingerprinter, RequestHead};
    ///
    /// let json = RequestHead::new("POST", "/").content_type(Some(b"application/json"));
    /// let zipped = json.clone().content_encoding(Some(b"gzip"));
    /// assert!(matches!(Fingerprinter::v1(&json), Fingerprinter::Whole(_)));
    /// assert!(matches!(Fingerprinter::v1(&zipped), Fingerprinter::Raw(_)));
    /// ```
    #[must_use]
    pub const fn content_encoding(mut self, value: Option<&'a [u8]>) -> Self {
        self.content_encoding = value;
        self
    }

    /// Adds one line of a header that is part of the meaning; call it for every line there is.
    ///
    /// Names are compared without case; the lines of one name keep their order.
    ///
    /// ```
    /// use onceward_core::{Fingerprint, RequestHead};
    ///
    /// let head = RequestHead::new("POST", "/charges");
    /// let with = head.clone().header("X-Api-Version", b"2");
    /// assert_ne!(Fingerprint::v1(&head, b""), Fingerprint::v1(&with, b""));
    /// ```
    #[must_use]
    pub fn header(mut self, name: &str, value: &'a [u8]) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value));
        self
    }

    pub(super) fn media_type(&self) -> MediaType<'a> {
        MediaType::of(self.content_type)
    }

    /// The content coding, trimmed and lower-cased; empty when the body is not encoded.
    pub(super) fn coding(&self) -> Vec<u8> {
        let coding = self.content_encoding.unwrap_or_default().trim_ascii().to_ascii_lowercase();
        if coding == b"identity" { Vec::new() } else { coding }
    }

    pub(super) fn encode(&self, encoder: &mut Encoder) {
        encoder.field(self.method.as_bytes());
        encoder.field(self.path.as_bytes());
        query::encode(self.query.unwrap_or_default(), encoder);
        self.media_type().encode(encoder);
        encoder.field(&self.coding());

        let mut headers: Vec<_> = self.headers.iter().collect();
        headers.sort_by(|(left, _), (right, _)| left.cmp(right));
        encoder.list(headers.len());
        for (name, value) in headers {
            encoder.field(name.as_bytes());
            encoder.field(value);
        }
    }
}
