//! The remembered answer of an operation, and what of it may be stored.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;

/// What of an answer may be stored by code that does not know the rules of its route: a service that ends an
/// operation by SQL has no redaction and no key.
///
/// Who claims says it, and it stands in the record, so that it holds wherever the operation is ended.
///
/// ```
/// use onceward_core::{Effect, Keeps, Terms};
///
/// let terms = Terms::of(Effect::Transactional).keeps(Keeps::StatusAndLocation).build()?;
/// assert_eq!(terms.keeps(), Keeps::StatusAndLocation);
/// # Ok::<(), onceward_core::TermsError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// All of it.
    #[default]
    Everything,
    /// No body, and of the header lines none but `Location`.
    StatusAndLocation,
    /// Neither header lines nor a body.
    Status,
}

/// The remembered result of an operation: what a duplicate is answered with.
///
/// ```
/// use onceward_core::{StoredBody, Outcome};
///
/// let outcome = Outcome::inline(201, b"{}".to_vec()).header("content-type", b"application/json");
/// assert_eq!(outcome.body, StoredBody::Inline(b"{}".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The HTTP status, or a number with the same meaning.
    pub status: u16,
    /// Header lines in order, repeated names included, values as bytes.
    pub headers: Vec<Header>,
    /// The bytes of the answer, or where they are.
    pub body: StoredBody,
    /// Lines after the body, in order, like `headers`.
    pub trailers: Vec<Header>,
}

/// One header line: name and value.
///
/// ```
/// use onceward_core::{Header, Outcome};
///
/// let line: Header = ("location".into(), b"/charges/7"[..].into());
/// let outcome = Outcome::inline(201, Vec::new()).header("location", b"/charges/7");
/// assert_eq!(outcome.headers, [line]);
/// ```
pub type Header = (Box<str>, Box<[u8]>);

impl Outcome {
    /// An outcome whose body is kept in the record.
    #[must_use]
    pub fn inline(status: u16, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), body: StoredBody::Inline(body), trailers: Vec::new() }
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a line after the body.
    ///
    /// ```
    /// # use onceward_core::Outcome;
    /// let outcome = Outcome::inline(200, Vec::new()).trailer("grpc-status", b"0");
    /// assert_eq!(outcome.trailers, [("grpc-status".into(), b"0"[..].into())]);
    /// ```
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &[u8]) -> Self {
        self.trailers.push((name.into(), value.into()));
        self
    }
}

/// Sizes and status only: answers may hold secrets.
impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, body, trailers } = self;
        write!(formatter, "Outcome({status}, {} headers, {body:?}", headers.len())?;
        match trailers.len() {
            0 => formatter.write_str(")"),
            count => write!(formatter, ", {count} trailers)"),
        }
    }
}

/// The body of an [`Outcome`].
///
/// ```
/// use onceward_core::{StoredBody, Outcome};
///
/// let kept = StoredBody::Reference { kind: "payment".into(), id: "pay_7".into() };
/// let outcome = Outcome { body: kept, ..Outcome::inline(201, Vec::new()) };
/// assert_eq!(format!("{outcome:?}"), "Outcome(201, 0 headers, Reference(payment/pay_7))");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StoredBody {
    /// Kept in the record.
    Inline(Vec<u8>),
    /// Kept beside the record, see [`Spool`](crate::Spool).
    Spooled {
        /// Its length in bytes.
        length: u64,
        /// Its SHA-256 digest, checked at replay.
        digest: [u8; 32],
    },
    /// Rebuilt from the source of truth.
    Reference {
        /// The resource's type, like `payment`.
        kind: String,
        /// The resource's id.
        id: String,
    },
    /// Could not be kept: a duplicate gets only that, and never runs.
    Unavailable,
}

impl fmt::Debug for StoredBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(formatter, "Inline({} bytes)", bytes.len()),
            Self::Spooled { length, .. } => write!(formatter, "Spooled({length} bytes)"),
            Self::Reference { kind, id } => write!(formatter, "Reference({kind}/{id})"),
            Self::Unavailable => formatter.write_str("Unavailable"),
        }
    }
}
