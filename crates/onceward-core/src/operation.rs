//! The identity of an operation: who asks (scope), for what (name), under which key.

use alloc::{boxed::Box, vec::Vec};
use core::{error::Error, fmt};

use base64ct::{Base64UrlUnpadded, Encoding};
use sha2::{Digest as _, Sha256};

use crate::{Key, Scope};

/// What is asked for: method and route (`POST /charges/{id}`), or a chosen name (`charge.create`).
///
/// ```
/// # use onceward_core::OperationName;
/// assert_eq!(OperationName::new("POST /charges")?.as_str(), "POST /charges");
/// assert!(OperationName::new("").is_err());
/// # Ok::<(), onceward_core::OperationNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationName(Box<str>);

impl OperationName {
    /// The longest name in bytes: the longest path that common servers accept by default.
    pub const MAX_BYTES: usize = 8192;

    /// Takes 1–8192 bytes without control characters.
    pub fn new(name: &str) -> Result<Self, OperationNameError> {
        let fits = !name.is_empty() && name.len() <= Self::MAX_BYTES;
        match fits && !name.chars().any(char::is_control) {
            true => Ok(Self(name.into())),
            false => Err(OperationNameError),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text is not an [`OperationName`].
///
/// ```
/// use onceward_core::{OperationName, OperationNameError};
///
/// assert_eq!(OperationName::new("POST\n/charges"), Err(OperationNameError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationNameError;

impl fmt::Display for OperationNameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "an operation name has 1 to 8192 bytes and no control characters, like `charge.create`",
        )
    }
}

impl Error for OperationNameError {}

/// What the caller wants done once: scope, operation name and key.
///
/// ```
/// use onceward_core::{Key, OperationId, OperationName, Scope};
///
/// let of = |tenant| {
///     let scope = Scope::of("tenant", tenant).unwrap();
///     OperationId::new(scope, OperationName::new("pay").unwrap(), Key::new("k").unwrap())
/// };
/// // The same key under another tenant is another operation, also for providers further down.
/// assert_ne!(of("a").digest(), of("b").digest());
/// assert_ne!(of("a").key_for("stripe.charge"), of("b").key_for("stripe.charge"));
/// assert_eq!(of("a").key_for("stripe.charge").as_str().len(), 36);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperationId {
    scope: Scope,
    name: OperationName,
    key: Key,
    digest: Digest,
}

impl OperationId {
    /// Joins the three parts; the digest is computed here, once.
    #[must_use]
    pub fn new(scope: Scope, name: OperationName, key: Key) -> Self {
        let digest = Digest(hash_operation(b"onceward/operation/v1", &scope, &name, &key, None));
        Self { scope, name, key, digest }
    }

    /// To whom the operation belongs.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What is asked for.
    #[must_use]
    pub fn name(&self) -> &OperationName {
        &self.name
    }

    /// The caller's name for it.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The 32 bytes under which the record is stored.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The key that a downstream provider gets for the effect of this name: a UUID (version 8).
    ///
    /// It depends on the operation and the effect's name only: no fence, no secret, so that it is
    /// the same on every attempt, after a take-over and after a restart.
    #[must_use]
    pub fn key_for(&self, effect: &str) -> Key {
        let hash = hash_operation(
            b"onceward/derived-key/v1",
            &self.scope,
            &self.name,
            &self.key,
            Some(effect),
        );
        let bytes = hash.first_chunk::<16>().expect("a SHA-256 digest has 32 bytes");
        let uuid = uuid::Builder::from_custom_bytes(*bytes).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid.hyphenated().encode_lower(&mut text);
        Key::new(text).expect("a UUID is 36 visible characters")
    }
}

/// The SHA-256 digest of an operation's identity; its text form is the operation's *reference*.
///
/// The encoding under the hash is injective: no two (scope, name, key) share their input.
///
/// ```
/// use onceward_core::Digest;
///
/// let digest = Digest([7; 32]);
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_base64(&self.0, formatter)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl core::str::FromStr for Digest {
    type Err = DigestError;

    fn from_str(reference: &str) -> Result<Self, DigestError> {
        let mut bytes = [0; 32];
        match Base64UrlUnpadded::decode(reference, &mut bytes).map(<[u8]>::len) {
            Ok(32) => Ok(Self(bytes)),
            _ => Err(DigestError),
        }
    }
}

/// A text is not the reference of an operation.
///
/// ```
/// use onceward_core::{Digest, DigestError};
///
/// assert_eq!("8e03978e".parse::<Digest>(), Err(DigestError), "that is a key, not a reference");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestError;

impl fmt::Display for DigestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "not an operation reference: expected 43 characters as in `Onceward-Operation`",
        )
    }
}

impl Error for DigestError {}

pub(crate) fn fmt_base64(bytes: &[u8; 32], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0; 43];
    let text = Base64UrlUnpadded::encode(bytes, &mut text).map_err(|_| fmt::Error)?;
    formatter.write_str(text)
}

fn hash_operation(
    domain: &[u8],
    scope: &Scope,
    name: &OperationName,
    key: &Key,
    effect: Option<&str>,
) -> [u8; 32] {
    // The number of fields tells how many of them are the scope's, because the others are fixed.
    let scope = scope.parts().flat_map(|(name, value)| [name, value]);
    let fields = scope.chain([name.as_str(), key.as_str()]).chain(effect);
    hash_fields(domain, fields.map(str::as_bytes).collect::<Vec<_>>())
}

/// SHA-256 over the domain, the number of fields and each field with its length before it.
pub(crate) fn hash_fields<'a, I>(domain: &[u8], fields: I) -> [u8; 32]
where
    I: IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
{
    let fields = fields.into_iter();
    let mut hash = Sha256::new();
    hash.update((domain.len() as u64).to_be_bytes());
    hash.update(domain);
    hash.update((fields.len() as u64).to_be_bytes());
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};

    #[test]
    fn identity_and_derived_keys_never_change() {
        // Computed by another program, from the encoding as documented.
        let id = id(&[("tenant", "acme"), ("user", "7")], "POST /charges", "8e03978e");
        assert_eq!(id.digest().to_string(), "UaqgmZLN-ewU2HwZAqWjftndSrWo72tqSBq5mRr3Hbc");
        assert_eq!(id.key().digest().to_string(), "RWod3mYe4Rd9Tl1PfY39ah2Yk1rpAjGlWgEIhP7mqmU");
        assert_eq!(id.key_for("stripe.charge").as_str(), "99d8497f-f51e-821b-bc73-4f32d0e2e9f4");
    }

    #[test]
    fn references_are_parsed_strictly() {
        for text in ["", "AAAA", &"A".repeat(42), &"A".repeat(44), &"!".repeat(43)] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError), "{text}");
        }
    }

    fn id(parts: &[(&str, &str)], name: &str, key: &str) -> OperationId {
        let scope = match parts {
            [] => Scope::global(),
            _ => Scope::new(parts.iter().copied()).unwrap(),
        };
        OperationId::new(scope, OperationName::new(name).unwrap(), Key::new(key).unwrap())
    }

    proptest! {
        /// Texts are taken from few characters, so that moved borders would meet.
        #[test]
        fn distinct_operations_have_distinct_digests(
            a in ("[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}"),
            b in ("[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}"),
            parts in 0..3usize, others in 0..3usize,
        ) {
            let of = |texts: &(String, String, String, String), parts| match parts {
                0 => id(&[], &texts.2, &texts.3),
                1 => id(&[(&texts.0, &texts.1)], &texts.2, &texts.3),
                _ => id(&[(&texts.0, &texts.1), ("z", &texts.2)], &texts.2, &texts.3),
            };
            let (first, second) = (of(&a, parts), of(&b, others));
            prop_assert_eq!(first == second, first.digest() == second.digest());
            prop_assert_eq!(first == second, first.key_for("x") == second.key_for("x"));
            prop_assert_ne!(first.key_for("x"), first.key_for("y"));
        }
    }
}
