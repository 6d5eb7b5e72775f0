//! What a request means, as a digest: a retry has the same one, another request another.
//!
//! A fingerprint is stored with the key. A request that carries a known key and another fingerprint
//! is refused, so two errors are possible here. Calling two *different* requests equal would answer
//! one with the reply of the other; calling two *equal* requests different only refuses a retry.
//! Wherever a rule is in doubt, version 1 therefore takes the bytes as they are.
//!
//! # Version 1
//!
//! SHA-256 over the parts below, in this order. A *number* is eight bytes, big-endian; a *field* is
//! its length as a number, then its bytes; a *list* is its length as a number, then its items. So
//! every part says where it ends, and distinct canonical requests never share an encoding.
//!
//! | part | encoding |
//! |---|---|
//! | domain | field `onceward/fingerprint/v1` |
//! | method, path | two fields, exactly as given: case counts, nothing is decoded |
//! | query | list of pairs: see below |
//! | media type | byte 0: absent; byte 1: field `type/subtype`, list of (name, value) fields; byte 2: malformed, one field with the header's bytes |
//! | content-encoding | field: trimmed, lower-cased; empty for absent and `identity` |
//! | headers | list of (lower-cased name, value) fields, stably sorted by name |
//! | body | byte 0: the bytes, then their number; byte 1: field with the canonical JSON; byte 2: list of (header block, content) fields; byte 3: field with the boundary, then as byte 0 |
//!
//! **Query.** Split at `&`, empty pieces dropped, so `/a`, `/a?` and `/a?&` are one. A piece is
//! split at its first `=`; `a` and `a=` differ: the name's field is followed by byte 0, or byte 1
//! and the value's field. Percent sequences are decoded; a malformed one is kept literally. `+` is
//! *not* a space, and neither is it `%2B`: to a form decoder these differ, as `;` and `%3B` do to
//! some, so `%2B`, `%3B` and `%25` stay escaped. Pairs are sorted by name; those of one name keep
//! their order.
//!
//! **Media type.** Names lower-cased, values unquoted and otherwise kept, sorted by name.
//! `boundary` is dropped, and so is `charset=utf-8` for JSON. A parameter given twice is malformed.
//!
//! **Body.** JSON (`application/json` or `+json`, in no other charset) is brought into the form
//! that `json.rs` describes, multipart is split as `multipart.rs` does. Content-encoded or
//! malformed, they count byte by byte, like every other type. A multipart body that is not split
//! counts together with its boundary (byte 3).
//!
//! Stored fingerprints outlive the software that made them: version 1 never changes. The vectors in
//! `tests/protocol/fingerprint/golden.rs` hold it in place, and another rule is another version.

mod encoder;
mod fingerprinter;
mod head;
mod json;
#[cfg(test)]
mod json_properties;
mod media_type;
mod multipart;
mod query;

use alloc::vec::Vec;
use core::fmt;

pub use fingerprinter::{Fingerprinter, RawFingerprinter, WholeFingerprinter};
pub use head::RequestHead;

/// The digest of one canonical request, with the version of the rules that made it.
///
/// ```
/// use onceward_core::{Fingerprint, RequestHead};
///
/// let head = RequestHead::new("POST", "/charges").content_type(Some(b"application/json"));
/// let first = Fingerprint::v1(&head, br#"{"amount": 5, "currency": "EUR"}"#);
/// let retry = Fingerprint::v1(&head, br#"{"currency":"EUR","amount":5}"#);
/// let other = Fingerprint::v1(&head, br#"{"currency":"EUR","amount":6}"#);
/// assert_eq!(first, retry);
/// assert_ne!(first, other);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version of the rules that this module describes.
    pub const V1: u8 = 1;

    /// Fingerprints a request whose whole body is at hand, whatever its media type.
    ///
    /// Gives what [`Fingerprinter::v1`] gives for the same request.
    ///
    /// ```
    /// use onceward_core::{Fingerprint, RequestHead};
    ///
    /// let head = RequestHead::new("PUT", "/notes/7").content_type(Some(b"text/plain"));
    /// assert_ne!(Fingerprint::v1(&head, b"tea"), Fingerprint::v1(&head, b"tee"));
    /// ```
    #[must_use]
    pub fn v1(head: &RequestHead<'_>, body: &[u8]) -> Self {
        match Fingerprinter::v1(head) {
            Fingerprinter::Raw(mut raw) => {
                raw.update(body);
                raw.finish()
            }
            Fingerprinter::Whole(whole) => whole.finish(body),
        }
    }

    /// Puts a stored fingerprint together again, or makes one by rules of the caller's own.
    #[must_use]
    pub const fn from_parts(version: u8, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// The version of the rules: digests of different versions say nothing about each other.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The SHA-256 digest.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// Shows the version and four bytes: enough to tell two apart in a log, not to test a guessed body.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.digest;
        write!(formatter, "Fingerprint(v{} {a:02x}{b:02x}{c:02x}{d:02x}…)", self.version)
    }
}

/// The fingerprints of one request, under every version of the rules that can be computed.
///
/// A stored fingerprint is compared under *its* version, so that an upgrade refuses no retry of a
/// request that began before it. There is always a current one: the one to store.
///
/// ```
/// use onceward_core::{Fingerprint, Fingerprints};
///
/// let newer = Fingerprint::from_parts(2, [2; 32]);
/// let older = Fingerprint::from_parts(1, [1; 32]);
/// let fingerprints = Fingerprints::from(newer).and(older);
/// assert_eq!(fingerprints.current(), newer);
/// assert_eq!(fingerprints.under(1), Some(older));
/// assert_eq!(fingerprints.under(3), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprints {
    current: Fingerprint,
    older: Vec<Fingerprint>,
}

impl Fingerprints {
    /// Adds the fingerprint under an older version; of two for one version, the first one stays.
    #[must_use]
    pub fn and(mut self, older: Fingerprint) -> Self {
        if self.under(older.version).is_none() {
            self.older.push(older);
        }
        self
    }

    /// The fingerprint to store with a new claim.
    #[must_use]
    pub const fn current(&self) -> Fingerprint {
        self.current
    }

    /// The fingerprint to compare with a stored one of this version, if it can be computed.
    #[must_use]
    pub fn under(&self, version: u8) -> Option<Fingerprint> {
        core::iter::once(&self.current)
            .chain(&self.older)
            .find(|fingerprint| fingerprint.version == version)
            .copied()
    }
}

impl From<Fingerprint> for Fingerprints {
    fn from(current: Fingerprint) -> Self {
        Self { current, older: Vec::new() }
    }
}
