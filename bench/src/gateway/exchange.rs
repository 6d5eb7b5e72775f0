//! What is asked and what is answered, as bytes on a connection of HTTP/1.1.

use std::{net::SocketAddr, ops::Range};

/// How long every answer is.
pub(crate) const ANSWER_BYTES: usize = 500;

/// How long a key is.
const KEY_BYTES: usize = 32;

/// What a `POST` carries.
const DOCUMENT: &str = r#"{"customer": "cus_8e03978e", "currency": "eur", "cents": 1999, "memo": "an anvil, two rocket skates"}"#;

/// The text in the answer's document that makes it as long as it is.
pub(crate) fn memo() -> String {
    "m".repeat(ANSWER_BYTES - r#"{"id":"ch_42","memo":""}"#.len())
}

/// The document of every answer.
pub(crate) fn answer() -> Vec<u8> {
    format!(r#"{{"id":"ch_42","memo":"{}"}}"#, memo()).into_bytes()
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `GET`.
    Get,
    /// A `POST` without a key.
    Post,
    /// A `POST` with a new key.
    First,
    /// A `POST` with the key of a stored answer.
    Replay,
}

impl Kind {
    /// As it is called in a report.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST without a key",
            Self::First => "POST, a new key",
            Self::Replay => "POST, a known key",
        }
    }

    fn has_key(self) -> bool {
        matches!(self, Self::First | Self::Replay)
    }
}

/// A request as it is sent, with the place of its key.
#[derive(Clone)]
pub(crate) struct Rendered {
    bytes: Vec<u8>,
    key: Option<Range<usize>>,
}

impl Rendered {
    /// A request of this kind to a host.
    pub(crate) fn new(kind: Kind, host: SocketAddr, path: &str) -> Self {
        let method = if kind == Kind::Get { "GET" } else { "POST" };
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\nx-api-key: a-key-of-this-benchmark\r\n"
        );
        let key = kind.has_key().then(|| {
            text.push_str("idempotency-key: ");
            let start = text.len();
            text.push_str(&"0".repeat(KEY_BYTES));
            text.push_str("\r\n");
            start..start + KEY_BYTES
        });
        if kind == Kind::Get {
            text.push_str("\r\n");
        } else {
            text.push_str(&format!(
                "content-type: application/json\r\ncontent-length: {}\r\n\r\n{DOCUMENT}",
                DOCUMENT.len()
            ));
        }
        Self { bytes: text.into_bytes(), key }
    }

    /// The bytes with the key of the operation with this number.
    pub(crate) fn with_key(&mut self, number: u128) -> &[u8] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        if let Some(key) = &self.key {
            for (index, place) in self.bytes[key.clone()].iter_mut().rev().enumerate() {
                *place = DIGITS[(number >> (4 * index)) as usize & 0xf];
            }
        }
        &self.bytes
    }
}

/// One whole message: how long its head is and how long it is in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) head: usize,
    pub(crate) whole: usize,
}

impl Extent {
    /// Where the message ends that these bytes begin with; `None` until its head is there.
    ///
    /// A message without `Content-Length` has no body. Chunks are not read: nobody here sends them, and
    /// if somebody does, what follows is not what was expected.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let mut length = 0;
        let mut line_start = 0;
        while let Some(line_length) = bytes[line_start..].iter().position(|&byte| byte == b'\n') {
            let line = &bytes[line_start..line_start + line_length];
            line_start += line_length + 1;
            if line == b"\r" {
                return Some(Self { head: line_start, whole: line_start + length });
            }
            const NAME: &[u8] = b"content-length:";
            if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
                let value = std::str::from_utf8(&line[NAME.len()..]).ok();
                length = value.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_length_and_is_what_a_script_makes_of_it() {
        assert_eq!(answer().len(), ANSWER_BYTES);
        assert!(answer().starts_with(br#"{"id":"ch_42","memo":"mmm"#));
    }

    #[test]
    fn keys_are_written_in_place() {
        let host = SocketAddr::from(([127, 0, 0, 1], 80));
        let mut request = Rendered::new(Kind::First, host, "/x");
        let text = String::from_utf8(request.with_key(0xabc).to_vec()).unwrap();
        let line = format!("\r\nidempotency-key: {:032x}\r\n", 0xabc);
        assert!(text.starts_with("POST /x HTTP/1.1\r\n") && text.contains(&line), "{text}");
        let extent = Extent::of(text.as_bytes()).unwrap();
        assert_eq!((extent.whole, extent.whole - extent.head), (text.len(), DOCUMENT.len()));
        assert!(!Rendered::new(Kind::Post, host, "/x").bytes.is_empty());
    }

    #[test]
    fn a_message_ends_where_its_length_says() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length:  3\r\nx: y\r\n\r\nabc";
        let extent = Extent { head: whole.len() - 3, whole: whole.len() };
        assert_eq!(Extent::of(whole), Some(extent));
        assert_eq!(Extent::of(&whole[..whole.len() - 3]), Some(extent));
        assert_eq!(Extent::of(&whole[..whole.len() - 4]), None);
        let without = b"GET / HTTP/1.1\r\n\r\n";
        assert_eq!(Extent::of(without), Some(Extent { head: 18, whole: 18 }));
    }
}
