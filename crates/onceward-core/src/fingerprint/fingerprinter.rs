//! Fingerprinting a request whose body is still to come.

use super::{Fingerprint, RequestHead, encoder::Encoder, json, multipart};
use alloc::vec::Vec;

const DOMAIN_V1: &[u8] = b"onceward/fingerprint/v1";

const RAW: u8 = 0;
const JSON: u8 = 1;
const MULTIPART: u8 = 2;
const UNSPLIT_MULTIPART: u8 = 3;

/// Fingerprints a request from its head on, and says how the body has to be supplied.
///
/// ```
/// use onceward_core::{Fingerprint, Fingerprinter, RequestHead};
///
/// fn fingerprint(head: &RequestHead<'_>, chunks: &[&[u8]]) -> Fingerprint {
///     match Fingerprinter::v1(head) {
///         Fingerprinter::Raw(mut raw) => {
///             for chunk in chunks {
///                 raw.update(chunk);
///             }
///             raw.finish()
///         }
///         Fingerprinter::Whole(whole) => whole.finish(&chunks.concat()),
///     }
/// }
///
/// let head = RequestHead::new("POST", "/notes").content_type(Some(b"text/plain"));
/// assert_eq!(fingerprint(&head, &[b"te", b"a"]), Fingerprint::v1(&head, b"tea"));
/// ```
#[derive(Clone, Debug)]
pub enum Fingerprinter {
    /// The body counts byte by byte and may come in pieces of any size.
    Raw(RawFingerprinter),
    /// The body is JSON or multipart: its meaning shows only when it is there as a whole.
    Whole(WholeFingerprinter),
}

impl Fingerprinter {
    /// Begins a fingerprint of version 1, as the head demands it.
    ///
    /// ```
    /// use onceward_core::{Fingerprinter, RequestHead};
    ///
    /// let head = RequestHead::new("POST", "/charges").content_type(Some(b"application/json"));
    /// assert!(matches!(Fingerprinter::v1(&head), Fingerprinter::Whole(_)));
    /// ```
    #[must_use]
    pub fn v1(head: &RequestHead<'_>) -> Self {
        let mut encoder = Encoder::new(DOMAIN_V1);
        head.encode(&mut encoder);

        let media_type = head.media_type();
        let is_plain = head.coding().is_empty();
        if is_plain && media_type.is_json() {
            return Self::Whole(WholeFingerprinter { encoder, form: Form::Json });
        }
        match media_type.into_boundary() {
            Some(boundary) if is_plain && multipart::is_valid_boundary(&boundary) => {
                Self::Whole(WholeFingerprinter { encoder, form: Form::Multipart { boundary } })
            }
            boundary => Self::Raw(RawFingerprinter::new(encoder, boundary.as_deref())),
        }
    }
}

/// The fingerprint of a request whose body counts byte by byte; see [`Fingerprinter::Raw`].
///
/// ```
/// use onceward_core::{Fingerprint, Fingerprinter, RequestHead};
///
/// let head = RequestHead::new("PUT", "/files/7");
/// let Fingerprinter::Raw(mut raw) = Fingerprinter::v1(&head) else { unreachable!() };
/// raw.update(b"first ");
/// raw.update(b"second");
/// assert_eq!(raw.finish(), Fingerprint::v1(&head, b"first second"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fingerprint comes out of `finish`"]
pub struct RawFingerprinter {
    encoder: Encoder,
    length: u64,
}

impl RawFingerprinter {
    /// `boundary` is what a multipart type declares: under another, the same bytes differ in meaning.
    fn new(mut encoder: Encoder, boundary: Option<&[u8]>) -> Self {
        match boundary {
            None => encoder.tag(RAW),
            Some(boundary) => {
                encoder.tag(UNSPLIT_MULTIPART);
                encoder.field(boundary);
            }
        }
        Self { encoder, length: 0 }
    }

    /// Adds the next bytes of the body; where it is cut makes no difference.
    pub fn update(&mut self, bytes: &[u8]) {
        self.encoder.unframed(bytes);
        self.length += bytes.len() as u64;
    }

    /// Ends the body.
    #[must_use]
    pub fn finish(mut self) -> Fingerprint {
        self.encoder.number(self.length);
        v1(self.encoder)
    }
}

/// The fingerprint of a request whose body is needed whole; see [`Fingerprinter::Whole`].
///
/// ```
/// use onceward_core::{Fingerprint, Fingerprinter, RequestHead};
///
/// let head = RequestHead::new("POST", "/charges").content_type(Some(b"application/json"));
/// let Fingerprinter::Whole(whole) = Fingerprinter::v1(&head) else { unreachable!() };
/// assert_eq!(whole.finish(b"{ }"), Fingerprint::v1(&head, b"{}"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fingerprint comes out of `finish`"]
pub struct WholeFingerprinter {
    encoder: Encoder,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Json,
    Multipart { boundary: Vec<u8> },
}

impl WholeFingerprinter {
    /// Reads the whole body; one that is not what its media type says counts byte by byte.
    #[must_use]
    pub fn finish(self, body: &[u8]) -> Fingerprint {
        match self.form {
            Form::Json => json(self.encoder, body),
            Form::Multipart { boundary } => multipart(self.encoder, body, &boundary),
        }
    }
}

fn json(mut encoder: Encoder, body: &[u8]) -> Fingerprint {
    let Some(canonical) = json::canonical(body) else {
        return raw(encoder, body, None);
    };
    encoder.tag(JSON);
    encoder.field(&canonical);
    v1(encoder)
}

fn multipart(mut encoder: Encoder, body: &[u8], boundary: &[u8]) -> Fingerprint {
    let Some(parts) = multipart::split(body, boundary) else {
        return raw(encoder, body, Some(boundary));
    };
    encoder.tag(MULTIPART);
    encoder.list(parts.len());
    for part in parts {
        encoder.field(part.headers);
        encoder.field(part.content);
    }
    v1(encoder)
}

fn raw(encoder: Encoder, body: &[u8], boundary: Option<&[u8]>) -> Fingerprint {
    let mut raw = RawFingerprinter::new(encoder, boundary);
    raw.update(body);
    raw.finish()
}

fn v1(encoder: Encoder) -> Fingerprint {
    Fingerprint::from_parts(Fingerprint::V1, encoder.finish())
}
