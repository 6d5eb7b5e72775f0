//! Keys that hide stored answers, and make fingerprints that a reader of the store cannot guess at.
//!
//! A [`Keyring`] has one key that writes and any number that only read, so that keys can be changed
//! while old records are still needed. Give it to the store and to the layer:
//!
#![cfg_attr(all(feature = "sqlite", feature = "tower"), doc = "```")]
#![cfg_attr(not(all(feature = "sqlite", feature = "tower")), doc = "```ignore")]
//! use std::sync::Arc;
//! use onceward::{Scope, seal::Keyring, server::Idempotency, store::sqlite::SqliteStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("onceward.db");
//! # let secret = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
//! // `openssl rand -base64 32` makes a key; keep it where the database is not.
//! let keys = Arc::new(Keyring::parse(secret)?);
//! let store = SqliteStore::builder(path).seal(keys.clone()).open()?;
//! let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
//! let idempotency = Idempotency::builder(store, scope).fingerprint_keys(keys).build()?;
//! # let _ = idempotency;
//! # Ok(())
//! # }
//! ```
//!
//! Hidden are header lines, bodies and trailers. Statuses, scopes, operation names, times, lengths and
//! the digests of keys stay readable: the store and its operators need them.

use std::{error::Error, fmt};

use base64ct::{Base64, Encoding as _};
use chacha20poly1305::{
    Key, KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use onceward_core::{Fingerprint, Fingerprints, Seal};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The first byte of everything that is sealed.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
/// Format, name of the key, nonce.
const HEAD_BYTES: usize = 2 + NONCE_BYTES;

/// From one key of 32 bytes come a sealing key, a fingerprint key and a name, which say nothing about
/// each other.
const DOMAIN: &[u8] = b"onceward/keyring/1";

/// One key that writes and any number that only read. It is a [`Seal`], and makes [`Fingerprints`].
///
/// Answers are sealed by XChaCha20-Poly1305 with a fresh random nonce. Fingerprints become HMACs: their
/// version is the name of the key.
///
/// To change keys, give all processes the new one as a second that only reads; then let it write; and
/// remove the old one when the longest retention is over and no unknown outcome is older.
///
/// ```
/// use onceward::{seal::Keyring, protocol::Seal};
///
/// let old = Keyring::new([1; 32]);
/// let sealed = old.seal(b"paid", b"charge 7");
/// let new = Keyring::new([2; 32]).reads([1; 32])?;
/// assert_eq!(new.open(&sealed, b"charge 7").as_deref(), Some(&b"paid"[..]));
/// # Ok::<(), onceward::seal::KeyringError>(())
/// ```
pub struct Keyring {
    /// The first one writes.
    keys: Vec<OneKey>,
}

/// What is made of one key.
struct OneKey {
    /// With the highest bit set: the version of its fingerprints. Others are the core's own.
    name: u8,
    cipher: XChaCha20Poly1305,
    fingerprints: Hmac<Sha256>,
}

impl Keyring {
    /// A ring with this key only, which writes.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { keys: vec![OneKey::new(&Zeroizing::new(key))] }
    }

    /// Adds a key that only reads.
    pub fn reads(mut self, key: [u8; 32]) -> Result<Self, KeyringError> {
        let line = self.keys.len() + 1;
        self.add(&Zeroizing::new(key), line)?;
        Ok(self)
    }

    /// Reads keys from a text: one in a line, in Base64, the one that writes first; `#` begins a
    /// comment.
    ///
    /// ```
    /// use onceward::seal::{Keyring, KeyringError};
    ///
    /// let keys = Keyring::parse("
    ///     AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=   # of this year
    ///     AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=   # of last year
    /// ")?;
    /// assert_eq!(format!("{keys:?}"), "Keyring(1 writes, 1 more reads)");
    /// assert_eq!(Keyring::parse("c2hvcnQ=").unwrap_err(), KeyringError::Length { line: 1, bytes: 5 });
    /// # Ok::<(), KeyringError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut ring = Self { keys: Vec::new() };
        for (line, text) in (1..).zip(text.lines()) {
            let key = text.split('#').next().unwrap_or_default().trim();
            if key.is_empty() {
                continue;
            }
            let bytes = Base64::decode_vec(key).map_err(|_| KeyringError::NotBase64 { line })?;
            let bytes = Zeroizing::new(bytes);
            let key = <[u8; 32]>::try_from(&bytes[..])
                .map_err(|_| KeyringError::Length { line, bytes: bytes.len() })?;
            ring.add(&Zeroizing::new(key), line)?;
        }
        match ring.keys.is_empty() {
            true => Err(KeyringError::Empty),
            false => Ok(ring),
        }
    }

    fn add(&mut self, key: &Zeroizing<[u8; 32]>, line: usize) -> Result<(), KeyringError> {
        let key = OneKey::new(key);
        if let Some(other) = self.keys.iter().find(|other| other.name == key.name) {
            let is_same = other.hmac(b"") == key.hmac(b"");
            return Err(match is_same {
                true => KeyringError::Twice { line },
                false => KeyringError::SameName { line },
            });
        }
        self.keys.push(key);
        Ok(())
    }

    /// The fingerprints of a request: the one to store by the key that writes, then those of the other
    /// keys and the plain one, so that records from before are still recognised.
    ///
    /// ```
    /// use onceward::{Fingerprint, seal::Keyring, protocol::RequestHead};
    ///
    /// let plain = Fingerprint::v1(&RequestHead::new("POST", "/charges"), b"5 EUR");
    /// let fingerprints = Keyring::new([1; 32]).fingerprints(plain);
    /// assert_ne!(fingerprints.current().digest(), plain.digest());
    /// assert_eq!(fingerprints.under(Fingerprint::V1), Some(plain));
    /// ```
    #[must_use]
    pub fn fingerprints(&self, plain: Fingerprint) -> Fingerprints {
        let (first, others) = self.keys.split_first().expect("a ring has a key that writes");
        let current = Fingerprints::from(first.fingerprint(&plain));
        let older = others.iter().map(|key| key.fingerprint(&plain));
        older.chain([plain]).fold(current, Fingerprints::and)
    }
}

impl OneKey {
    fn new(key: &Zeroizing<[u8; 32]>) -> Self {
        let source = Hkdf::<Sha256>::new(Some(DOMAIN), &key[..]);
        let derived = |purpose: &[u8]| {
            let mut bytes = Zeroizing::new([0; 32]);
            source.expand(purpose, &mut bytes[..]).expect("32 bytes are not too many");
            bytes
        };
        let fingerprints = Hmac::new_from_slice(&derived(b"fingerprint")[..]);
        Self {
            name: 0x80 | derived(b"name")[0],
            cipher: XChaCha20Poly1305::new(&Key::from(*derived(b"seal"))),
            fingerprints: fingerprints.expect("an HMAC takes keys of any length"),
        }
    }

    fn fingerprint(&self, plain: &Fingerprint) -> Fingerprint {
        let mut about = [0; 33];
        about[0] = plain.version();
        about[1..].copy_from_slice(plain.digest());
        Fingerprint::from_parts(self.name, self.hmac(&about))
    }

    fn hmac(&self, bytes: &[u8]) -> [u8; 32] {
        self.fingerprints.clone().chain_update(bytes).finalize().into_bytes().into()
    }
}

impl Seal for Keyring {
    fn seal(&self, plain: &[u8], about: &[u8]) -> Vec<u8> {
        let key = self.keys.first().expect("a ring has a key that writes");
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("without randomness there are no fences either");
        let payload = Payload { msg: plain, aad: about };
        let hidden = key.cipher.encrypt(&XNonce::from(nonce), payload);
        let hidden = hidden.expect("answers are far shorter than the cipher's limit");
        [&[FORMAT, key.name], &nonce[..], &hidden].concat()
    }

    fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        let (head, hidden) = sealed.split_first_chunk::<HEAD_BYTES>()?;
        let [FORMAT, name, nonce @ ..] = head else { return None };
        let key = self.keys.iter().find(|key| key.name == *name)?;
        let payload = Payload { msg: hidden, aad: about };
        key.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

/// Says how many keys there are, and nothing about them.
impl fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = self.keys.len().saturating_sub(1);
        let verb = if reads == 1 { "reads" } else { "read" };
        write!(formatter, "Keyring(1 writes, {reads} more {verb})")
    }
}

/// Why a text is not a [`Keyring`]. The text itself is never repeated.
///
/// ```
/// use onceward::seal::{Keyring, KeyringError};
///
/// let error = Keyring::new([1; 32]).reads([1; 32]).unwrap_err();
/// assert_eq!(error, KeyringError::Twice { line: 2 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyringError {
    /// There is no key in it.
    Empty,
    /// A line is not Base64.
    NotBase64 {
        /// Counted from 1.
        line: usize,
    },
    /// A key has not 32 bytes.
    Length {
        /// Counted from 1.
        line: usize,
        /// How many it has.
        bytes: usize,
    },
    /// A key is there twice.
    Twice {
        /// The second one, counted from 1.
        line: usize,
    },
    /// Two different keys have the same name of seven bits; that happens.
    SameName {
        /// The second one, counted from 1.
        line: usize,
    },
}

impl fmt::Display for KeyringError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAKE: &str = "`openssl rand -base64 32` makes one";
        match self {
            Self::Empty => write!(formatter, "there is no key in it; {MAKE}"),
            Self::NotBase64 { line } => {
                write!(formatter, "line {line} is not a key in Base64; {MAKE}")
            }
            Self::Length { line, bytes } => {
                write!(formatter, "the key in line {line} has {bytes} bytes instead of 32; {MAKE}")
            }
            Self::Twice { line } => write!(
                formatter,
                "the key in line {line} is there already; leave one of them out, and the first line \
                 is the one that writes"
            ),
            Self::SameName { line } => write!(
                formatter,
                "the key in line {line} and one before it have the same name in records, as one pair \
                 in 128 has; make another: {MAKE}"
            ),
        }
    }
}

impl Error for KeyringError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: u8) -> u8 {
        Keyring::new([key; 32]).keys[0].name
    }

    #[test]
    fn what_is_sealed_is_opened_by_its_key_about_its_thing_only() {
        let ring = Keyring::new([1; 32]);
        let sealed = ring.seal(b"paid", b"charge 7");
        assert_ne!(sealed, ring.seal(b"paid", b"charge 7"), "a nonce is used once");
        assert_eq!(ring.open(&sealed, b"charge 7").as_deref(), Some(&b"paid"[..]));
        assert_eq!(ring.open(&sealed, b"charge 8"), None);
        assert_eq!(Keyring::new([2; 32]).open(&sealed, b"charge 7"), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(ring.open(&changed, b"charge 7"), None, "byte {place}");
            assert_eq!(ring.open(&sealed[..place], b"charge 7"), None, "cut at {place}");
        }
    }

    /// What is on disks must be readable for as long as its key is kept. Bytes, fingerprint and name
    /// were made by other code than this: Python's `hmac` and `cryptography`, and `HChaCha20` by hand.
    #[test]
    fn the_first_format_is_still_read() {
        let ring = Keyring::new([7; 32]);
        let golden = include_bytes!("seal_v1.golden");
        assert_eq!(ring.open(golden, b"about").as_deref(), Some(&b"a sealed answer"[..]));
        let current = ring.fingerprints(Fingerprint::from_parts(1, [9; 32])).current();
        let hex: String = current.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((current.version(), hex.as_str()), (GOLDEN_NAME, GOLDEN_FINGERPRINT));
    }

    const GOLDEN_NAME: u8 = 0xf1;
    const GOLDEN_FINGERPRINT: &str =
        "fc1b46d954993ec466cc2f096aa87ee767912b2a691560c01256c1f58909641b";

    #[test]
    fn two_keys_of_one_name_are_refused() {
        let twins =
            |one| (one + 1..=255).find(|other| name(*other) == name(one)).map(|two| (one, two));
        let (one, two) = (1..255).find_map(twins).expect("255 keys have 128 names");
        let refused = Keyring::new([one; 32]).reads([two; 32]).unwrap_err();
        assert_eq!(refused, KeyringError::SameName { line: 2 });
        let refused = Keyring::new([1; 32]).reads([1; 32]).unwrap_err();
        assert_eq!(refused, KeyringError::Twice { line: 2 });
    }

    #[test]
    fn errors_say_what_to_do_and_never_the_key() {
        let key = Base64::encode_string(&[1; 32]);
        let long = Base64::encode_string(&[1; 33]);
        for (text, expected) in [
            ("", KeyringError::Empty),
            ("# nothing\n\n", KeyringError::Empty),
            ("\n!secret!", KeyringError::NotBase64 { line: 2 }),
            (&long, KeyringError::Length { line: 1, bytes: 33 }),
            (&format!("{key}\n{key}"), KeyringError::Twice { line: 2 }),
        ] {
            let error = Keyring::parse(text).unwrap_err();
            assert_eq!(error, expected);
            let said = format!("{error} {error:?}");
            assert!(!said.contains("secret") && !said.contains(&long), "{said}");
        }
    }

    #[test]
    fn debug_tells_no_secret() {
        let ring = Keyring::new([1; 32]).reads([2; 32]).and_then(|ring| ring.reads([3; 32]));
        assert_eq!(format!("{:?}", ring.unwrap()), "Keyring(1 writes, 2 more read)");
    }
}
