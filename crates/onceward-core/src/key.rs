//! The caller's name for one operation, as it arrives in the `Idempotency-Key` header.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{error::Error, fmt};

use crate::operation::{fmt_base64, hash_fields};

/// The caller's name for one operation: 1–255 visible ASCII characters.
///
/// It arrives in the `Idempotency-Key` header, as a structured-field string or bare: `"a"` and `a`
/// are one key, `A` is another. A key never shows in `Debug` output and is never stored; only its
/// [`KeyDigest`] is.
///
/// ```
/// use onceward_core::{Key, KeyError};
///
/// assert_eq!(Key::parse(b"\"8e03978e\"")?, Key::parse(b" 8e03978e ")?);
/// assert_ne!(Key::parse(b"a")?, Key::parse(b"A")?);
/// assert_eq!(Key::parse(b"a, b"), Err(KeyError::List));
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

impl Key {
    /// The longest key in bytes: enough for every scheme seen, small enough to hash without thought.
    pub const MAX_BYTES: usize = 255;

    /// Takes the characters of a key as they are, without header syntax.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        match text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.into())),
            false => Err(KeyError::Character),
        }
    }

    /// Reads the value of one `Idempotency-Key` header line.
    ///
    /// Parameters after a quoted key are ignored; a comma outside quotes makes a list, which is
    /// refused because one request is one operation.
    ///
    /// ```
    /// # use onceward_core::Key;
    /// assert_eq!(Key::parse(b"\"a,\\\"b\\\"\"; v=1")?.as_str(), "a,\"b\"");
    /// # Ok::<(), onceward_core::KeyError>(())
    /// ```
    pub fn parse(value: &[u8]) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        match value.first() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::new(&unquote(value)?),
            Some(_) if value.contains(&b',') => Err(KeyError::List),
            Some(_) => Self::new(core::str::from_utf8(value).map_err(|_| KeyError::Character)?),
        }
    }

    /// Reads all `Idempotency-Key` lines of a request; more than one line is an error.
    ///
    /// `None`: the request has no key.
    ///
    /// ```
    /// # use onceward_core::{Key, KeyError};
    /// assert_eq!(Key::from_lines([]), Ok(None));
    /// assert_eq!(Key::from_lines([&b"a"[..], b"a"]), Err(KeyError::Repeated));
    /// ```
    pub fn from_lines<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<Self>, KeyError> {
        let mut lines = lines.into_iter();
        let Some(first) = lines.next() else { return Ok(None) };
        match lines.next() {
            None => Self::parse(first).map(Some),
            Some(_) => Err(KeyError::Repeated),
        }
    }

    /// The characters of the key. Do not log them: the key lets its holder ask for the answer.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest under which a key is stored, listed and logged.
    #[must_use]
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(hash_fields(b"onceward/key/v1", [self.0.as_bytes()]))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({})", self.digest())
    }
}

/// Reads a structured-field string (RFC 8941) and checks that only parameters follow it.
fn unquote(value: &[u8]) -> Result<String, KeyError> {
    let mut text = String::new();
    let mut bytes = value.iter().copied().skip(1);
    loop {
        match bytes.next().ok_or(KeyError::Quoting)? {
            b'"' => break,
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => text.push(char::from(escaped)),
                _ => return Err(KeyError::Quoting),
            },
            byte @ 0x20..=0x7e => text.push(char::from(byte)),
            _ => return Err(KeyError::Character),
        }
    }
    let rest: Vec<u8> = bytes.collect();
    match rest.trim_ascii_start().first() {
        None | Some(b';') if !has_unquoted_comma(&rest) => Ok(text),
        Some(b',' | b';') => Err(KeyError::List),
        _ => Err(KeyError::Quoting),
    }
}

fn has_unquoted_comma(parameters: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    parameters.iter().any(|&byte| {
        let was_escaped = escaped;
        escaped = quoted && !was_escaped && byte == b'\\';
        quoted ^= byte == b'"' && !was_escaped;
        byte == b',' && !quoted
    })
}

/// Why the text of an `Idempotency-Key` header is not a key.
///
/// ```
/// use onceward_core::{Key, KeyError};
///
/// assert_eq!(Key::new(""), Err(KeyError::Empty));
/// assert!(KeyError::List.to_string().contains("send one key"), "a message for the client");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There are no characters in it.
    Empty,
    /// It has more than [`Key::MAX_BYTES`] bytes.
    TooLong,
    /// A byte is not visible ASCII.
    Character,
    /// A quoted key does not end, or something other than parameters follows it.
    Quoting,
    /// A comma outside quotes: a list of keys.
    List,
    /// The header stands on more than one line.
    Repeated,
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "the idempotency key is empty; send a new UUID for each operation",
            Self::TooLong => "the idempotency key is longer than 255 bytes; send a UUID",
            Self::Character => {
                "the idempotency key has a character that is not visible ASCII; send a UUID"
            }
            Self::Quoting => {
                "the quoted idempotency key is malformed; write \"…\" with \\\" and \\\\ escaped"
            }
            Self::List => "the idempotency key is a list; send one key, quoted if it has a comma",
            Self::Repeated => "the idempotency key stands on several lines; send exactly one",
        })
    }
}

impl Error for KeyError {}

/// A SHA-256 digest that stands for a [`Key`] wherever people look: records, lists, logs.
///
/// ```
/// # use onceward_core::Key;
/// assert_eq!(Key::new("k")?.digest().to_string().len(), 43);
/// # Ok::<(), onceward_core::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest(pub [u8; 32]);

impl fmt::Display for KeyDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_base64(&self.0, formatter)
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyDigest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;

    #[test]
    fn keys_are_read_quoted_or_bare() {
        for (value, key) in [
            (&b"abc"[..], "abc"),
            (b"  abc\t", "abc"),
            (b"\"abc\"", "abc"),
            (b"\"abc\" ", "abc"),
            (b"\"abc\"; ttl=3", "abc"),
            (b"\"abc\";note=\"x,y\"", "abc"),
            (b"\"a,b\"", "a,b"),
            (b"\"a\\\\b\\\"c\"", "a\\b\"c"),
            (b"a;b", "a;b"),
            (b"a\"b", "a\"b"),
        ] {
            assert_eq!(Key::parse(value).unwrap().as_str(), key, "{value:?}");
        }
    }

    #[test]
    fn malformed_keys_are_refused_with_a_reason() {
        let long = [b'k'; 256];
        for (value, error) in [
            (&b""[..], KeyError::Empty),
            (b"  ", KeyError::Empty),
            (b"\"\"", KeyError::Empty),
            (&long, KeyError::TooLong),
            (b"a b", KeyError::Character),
            (b"\"a b\"", KeyError::Character),
            (b"a\0", KeyError::Character),
            (b"a\xff", KeyError::Character),
            ("schlüssel".as_bytes(), KeyError::Character),
            (b"\"a", KeyError::Quoting),
            (b"\"a\\", KeyError::Quoting),
            (b"\"a\\b\"", KeyError::Quoting),
            (b"\"a\"b", KeyError::Quoting),
            (b"a,b", KeyError::List),
            (b"\"a\", \"b\"", KeyError::List),
            (b"\"a\";x, \"b\"", KeyError::List),
        ] {
            assert_eq!(Key::parse(value), Err(error), "{value:?}");
        }
        assert!(Key::parse(&long[..255]).is_ok());
        assert_eq!(Key::from_lines([&b"a"[..], b"a"]), Err(KeyError::Repeated));
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = Key::new("secret-key").unwrap();
        assert!(!format!("{key:?}").contains("secret-key"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_an_error(value: Vec<u8>) {
            if let Ok(key) = Key::parse(&value) {
                let quoted = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
                prop_assert_eq!(Key::parse(format!("\"{quoted}\"").as_bytes()), Ok(key));
            }
        }
    }
}
