//! JSON, reduced to what it says: without white space, escapes and the order of members.
//!
//! Written by hand because a fingerprint needs two things that parsers throw away: the text of
//! numbers (`1.0` is not `1`, and neither becomes a float) and the knowledge that a key came twice.
//! Readers disagree about which of two such members counts, so the body has no one meaning.

use alloc::vec::Vec;
use core::ops::Range;

/// Deeper nesting is taken as raw bytes; the bound also bounds the stack.
const MAX_DEPTH: usize = 128;

/// The canonical form of a JSON text, or `None` where it has no one meaning.
///
/// It is the text without white space, members sorted by the bytes of their keys. A string is `"`,
/// its length in bytes, `:` and its unescaped bytes; between a key and its value stands nothing.
/// `{ "b": [1.0, true], "a": "\u0041" }` becomes `{"1:a"1:A,"1:b[1.0,true]}`.
///
/// `None` for: anything but RFC 8259 in UTF-8, keys that are equal once unescaped, escapes of lone
/// surrogates, more than 128 levels.
pub(super) fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    core::str::from_utf8(text).ok()?;
    let mut canonicaliser = Canonicaliser {
        rest: text,
        written: Vec::with_capacity(text.len()),
        scratch: Vec::new(),
        members: Vec::new(),
    };
    canonicaliser.value(0)?;
    canonicaliser.skip_white_space();
    canonicaliser.rest.is_empty().then_some(canonicaliser.written)
}

struct Canonicaliser<'a> {
    rest: &'a [u8],
    written: Vec<u8>,
    /// Strings before their length is known, objects while they are sorted.
    scratch: Vec<u8>,
    /// The members of every open object, those of the innermost last.
    members: Vec<Member>,
}

/// Where a member stands in what is written.
struct Member {
    key: Range<usize>,
    whole: Range<usize>,
}

impl Canonicaliser<'_> {
    /// Reads white space and one value. `depth` counts the containers around it.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_white_space();
        match *self.rest.first()? {
            b'{' if depth < MAX_DEPTH => self.object(depth + 1),
            b'[' if depth < MAX_DEPTH => self.array(depth + 1),
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => None,
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.literal(b"[")?;
        self.skip_white_space();
        if !self.rest.starts_with(b"]") {
            self.value(depth)?;
            while self.accept(b',') {
                self.written.push(b',');
                self.value(depth)?;
            }
        }
        self.literal(b"]")
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.literal(b"{")?;
        self.skip_white_space();
        let first = self.members.len();
        if !self.rest.starts_with(b"}") {
            self.member(depth)?;
            while self.accept(b',') {
                self.written.push(b',');
                self.member(depth)?;
            }
        }
        self.sort_members(first)?;
        self.literal(b"}")
    }

    fn member(&mut self, depth: usize) -> Option<()> {
        self.skip_white_space();
        let start = self.written.len();
        let key = self.string()?;
        if !self.accept(b':') {
            return None;
        }
        self.value(depth)?;
        self.skip_white_space();
        self.members.push(Member { key, whole: start..self.written.len() });
        Some(())
    }

    /// Puts the members from `first` on into the order of their keys, and forgets them.
    ///
    /// A byte is moved at most once for each object around it, so at most 128 times.
    fn sort_members(&mut self, first: usize) -> Option<()> {
        let written = &mut self.written;
        let members = &mut self.members[first..];
        let key = |member: &Member| &written[member.key.clone()];
        if members.is_sorted_by(|left, right| key(left) < key(right)) {
            self.members.truncate(first);
            return Some(());
        }
        let start = members.first()?.whole.start;
        members.sort_unstable_by(|left, right| key(left).cmp(key(right)));
        if members.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
            return None;
        }
        self.scratch.clear();
        for (at, member) in members.iter().enumerate() {
            if at > 0 {
                self.scratch.push(b',');
            }
            self.scratch.extend_from_slice(&written[member.whole.clone()]);
        }
        written.truncate(start);
        written.extend_from_slice(&self.scratch);
        self.members.truncate(first);
        Some(())
    }

    /// Reads a string and tells where its unescaped bytes were written.
    fn string(&mut self) -> Option<Range<usize>> {
        self.rest = self.rest.strip_prefix(b"\"")?;
        self.scratch.clear();
        loop {
            let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
            let (plain, rest) = self.rest.split_at(self.rest.iter().position(is_special)?);
            self.scratch.extend_from_slice(plain);
            let (&special, rest) = rest.split_first()?;
            self.rest = rest;
            match special {
                b'"' => break,
                b'\\' => {
                    let unescaped = self.escape()?;
                    self.scratch.extend_from_slice(unescaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return None,
            }
        }
        self.written.push(b'"');
        push_decimal(&mut self.written, self.scratch.len());
        self.written.push(b':');
        let start = self.written.len();
        self.written.extend_from_slice(&self.scratch);
        Some(start..self.written.len())
    }

    /// Reads what stands behind a backslash.
    fn escape(&mut self) -> Option<char> {
        let (&kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return None,
        })
    }

    /// Reads four hex digits and, behind a high surrogate, the escape of the low one.
    fn unicode_escape(&mut self) -> Option<char> {
        let high = self.four_hex_digits()?;
        if !(0xD800..0xDC00).contains(&high) {
            return char::from_u32(high); // `None` for a low surrogate that stands alone
        }
        self.rest = self.rest.strip_prefix(b"\\u")?;
        let low = self.four_hex_digits()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
        char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + low)
    }

    fn four_hex_digits(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        digits
            .iter()
            .try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
    }

    fn number(&mut self) -> Option<()> {
        let length = number_length(self.rest)?;
        let (number, rest) = self.rest.split_at(length);
        self.written.extend_from_slice(number);
        self.rest = rest;
        Some(())
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        self.written.extend_from_slice(literal);
        Some(())
    }

    /// Skips white space and then, if it is there, one byte.
    fn accept(&mut self, byte: u8) -> bool {
        self.skip_white_space();
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn skip_white_space(&mut self) {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let blank = self.rest.iter().take_while(is_blank).count();
        self.rest = &self.rest[blank..];
    }
}

/// `[ "-" ] int [ "." digits ] [ ("e" / "E") [ "+" / "-" ] digits ]`
fn number_length(text: &[u8]) -> Option<usize> {
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let some_digits = |at: usize| Some(digits(at)).filter(|count| *count > 0);
    let mut at = usize::from(text.first() == Some(&b'-'));
    at += if text.get(at) == Some(&b'0') { 1 } else { some_digits(at)? };
    if text.get(at) == Some(&b'.') {
        at += 1 + some_digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        at += some_digits(at)?;
    }
    Some(at)
}

/// Appends a number in decimal digits, without a string of its own.
fn push_decimal(written: &mut Vec<u8>, mut number: usize) {
    let start = written.len();
    loop {
        written.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    written[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};

    fn text(json: &str) -> Option<String> {
        canonical(json.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn canonical_forms() {
        let table = [
            ("null", "null"),
            (" \t\r\n true \n", "true"),
            ("\"\"", "\"0:"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            ("[ 1 , [ ] , { } , \"a\" ]", "[1,[],{},\"1:a]"),
            ("{ \"b\" : [1.0, true], \"a\" : \"\\u0041\" }", "{\"1:a\"1:A,\"1:b[1.0,true]}"),
            ("{\"b\":{\"d\":1,\"c\":2},\"a\":{}}", "{\"1:a{},\"1:b{\"1:c2,\"1:d1}}"),
            ("{\"a\":1,\"B\":2,\"aa\":3,\"\":4}", "{\"0:4,\"1:B2,\"1:a1,\"2:aa3}"),
            ("{\"\\u0062\":1,\"a\":2}", "{\"1:a2,\"1:b1}"),
            ("{\"\u{10000}\":1,\"\u{ffff}\":2}", "{\"3:\u{ffff}2,\"4:\u{10000}1}"),
            ("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"8:\"\\/\u{8}\u{c}\n\r\t"),
            ("\"\\u0000\\u00e9\\uD83D\\ude00\"", "\"7:\0é😀"),
            ("[0,-0,1.50,1e5,1E+5,1e-05,-12.0E0]", "[0,-0,1.50,1e5,1E+5,1e-05,-12.0E0]"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ];
        for (json, expected) in table {
            assert_eq!(text(json).as_deref(), Some(expected), "{json}");
        }
    }

    #[test]
    fn texts_without_one_meaning() {
        let table = [
            "",
            " ",
            "nul",
            "nulll",
            "True",
            "NaN",
            "Infinity",
            "'a'",
            "//",
            "1 2",
            "{} x",
            "\u{feff}1",
            "01",
            "+1",
            "-",
            "-a",
            ".5",
            "1.",
            "1.e1",
            "1e",
            "1e+",
            "0x1",
            "--1",
            "1.5.5",
            "1e1.5",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "\"\n\"",
            "\"\0\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\ud800\"",
            "\"\\ud800a\"",
            "\"\\ud800\\n\"",
            "\"\\ud800\\u0041\"",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[,]",
            "[1 2]",
            "[1}",
            "[1]]",
            "{",
            "}",
            "{1:2}",
            "{a:1}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1]",
            "{\"a\"::1}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"b\":2,\"\\u0061\":3}",
            "[{\"c\":{\"a\":1,\"a\":2}}]",
        ];
        for json in table {
            assert_eq!(text(json), None, "{json}");
        }
        assert_eq!(canonical(b"\"\xFF\""), None);
        assert_eq!(canonical(b"\"\xED\xA0\x80\""), None);
        assert_eq!(canonical(b"\"a\"\xFF"), None);
    }

    #[test]
    fn one_key_in_two_objects_is_no_duplicate() {
        assert!(text(r#"{"a":{"a":{"a":1},"b":{"a":1}},"b":[{"a":1},{"a":1}]}"#).is_some());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |open: &str, close: &str, depth: usize| {
            text(&[open.repeat(depth), "1".into(), close.repeat(depth)].concat())
        };
        assert!(nested("[", "]", 128).is_some());
        assert!(nested("[", "]", 129).is_none());
        assert!(nested("{\"a\":", "}", 128).is_some());
        assert!(nested("{\"a\":", "}", 129).is_none());
    }

    #[test]
    fn hostile_texts_of_a_mebibyte_end_in_time() {
        const MEBIBYTE: usize = 1 << 20;
        assert_eq!(canonical(&b"[".repeat(MEBIBYTE)), None);
        assert_eq!(canonical(&b"{\"a\":".repeat(MEBIBYTE / 5)), None);
        assert_eq!(canonical(&b"\"\\\"".repeat(MEBIBYTE / 3)), None);
        assert_eq!(canonical(&b"1".repeat(MEBIBYTE)).map(|text| text.len()), Some(MEBIBYTE));

        let keys = |render: fn(usize) -> String| {
            let members: Vec<String> = (0..100_000).rev().map(render).collect();
            text(&format!("{{{}}}", members.join(","))).is_some()
        };
        assert!(keys(|key| format!("\"{key}\":0")));
        assert!(!keys(|key| format!("\"{}\":0", key % 99_999)));

        let payload = "a".repeat(MEBIBYTE);
        let unsorted =
            ["{\"b\":".repeat(128), format!("\"{payload}\""), ",\"a\":0}".repeat(128)].concat();
        assert!(text(&unsorted).is_some());
    }
}
