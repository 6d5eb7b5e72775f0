//! `Content-Type`, as far as it says what the body means.

use super::encoder::Encoder;
use alloc::string::String;
use alloc::vec::Vec;

/// A parsed `Content-Type`; one that breaks RFC 9110's grammar counts by its bytes.
#[derive(Debug)]
pub(super) enum MediaType<'a> {
    Absent,
    WellFormed(WellFormed),
    Malformed(&'a [u8]),
}

#[derive(Debug)]
pub(super) struct WellFormed {
    /// `type/subtype`, lower-cased.
    essence: String,
    /// Without `boundary`, and for JSON without `charset=utf-8`; sorted by name.
    parameters: Vec<(String, Vec<u8>)>,
    boundary: Option<Vec<u8>>,
}

impl<'a> MediaType<'a> {
    pub(super) fn of(content_type: Option<&'a [u8]>) -> Self {
        let Some(bytes) = content_type else { return Self::Absent };
        WellFormed::parse(bytes).map_or(Self::Malformed(bytes), Self::WellFormed)
    }

    /// JSON that is UTF-8: another charset would give the same bytes another meaning.
    pub(super) fn is_json(&self) -> bool {
        match self {
            Self::WellFormed(media_type) => {
                media_type.is_json() && !media_type.parameters.iter().any(|(n, _)| n == "charset")
            }
            Self::Absent | Self::Malformed(_) => false,
        }
    }

    /// The boundary that a multipart type declares, valid or not.
    pub(super) fn into_boundary(self) -> Option<Vec<u8>> {
        match self {
            Self::WellFormed(media_type) if media_type.essence.starts_with("multipart/") => {
                media_type.boundary
            }
            _ => None,
        }
    }

    pub(super) fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Absent => encoder.tag(0),
            Self::WellFormed(media_type) => {
                encoder.tag(1);
                encoder.field(media_type.essence.as_bytes());
                encoder.list(media_type.parameters.len());
                for (name, value) in &media_type.parameters {
                    encoder.field(name.as_bytes());
                    encoder.field(value);
                }
            }
            Self::Malformed(bytes) => {
                encoder.tag(2);
                encoder.field(bytes);
            }
        }
    }
}

impl WellFormed {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = token(trim_start(bytes))?;
        let (subtype, rest) = token(rest.strip_prefix(b"/")?)?;
        let mut media_type = Self {
            essence: [kind.as_str(), "/", subtype.as_str()].concat(),
            parameters: parameters(rest)?,
            boundary: None,
        };
        // Which of two values for one name counts is each parser's own choice.
        if media_type.parameters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        media_type.take_out_what_does_not_count();
        Some(media_type)
    }

    fn take_out_what_does_not_count(&mut self) {
        if let Some(at) = self.parameters.iter().position(|(name, _)| name == "boundary") {
            self.boundary = Some(self.parameters.remove(at).1);
        }
        if self.is_json() {
            self.parameters.retain(|(name, value)| {
                !(name == "charset" && value.eq_ignore_ascii_case(b"utf-8"))
            });
        }
    }

    fn is_json(&self) -> bool {
        self.essence == "application/json" || self.essence.ends_with("+json")
    }
}

/// `*( OWS ";" OWS [ name "=" value ] )`, sorted by name.
fn parameters(mut rest: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut parameters = Vec::new();
    loop {
        rest = trim_start(rest);
        if rest.is_empty() {
            break;
        }
        rest = trim_start(rest.strip_prefix(b";")?);
        if rest.is_empty() || rest.starts_with(b";") {
            continue;
        }
        let (name, behind) = token(rest)?;
        let (value, behind) = parameter_value(behind.strip_prefix(b"=")?)?;
        parameters.push((name, value));
        rest = behind;
    }
    parameters.sort();
    Some(parameters)
}

/// A token as it is written, or a quoted string without its quotes and escapes.
fn parameter_value(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = bytes.strip_prefix(b"\"") else {
        let end = token_length(bytes)?;
        return Some((bytes[..end].to_vec(), &bytes[end..]));
    };
    let mut value = Vec::new();
    loop {
        let (&first, behind) = rest.split_first()?;
        let (byte, behind) = match first {
            b'"' => return Some((value, behind)),
            b'\\' => behind.split_first().map(|(&escaped, behind)| (escaped, behind))?,
            _ => (first, behind),
        };
        if byte.is_ascii_control() && byte != b'\t' {
            return None;
        }
        value.push(byte);
        rest = behind;
    }
}

/// A token, lower-cased, and what is behind it.
fn token(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (token, rest) = bytes.split_at(token_length(bytes)?);
    Some((String::from_utf8(token.to_ascii_lowercase()).ok()?, rest))
}

fn token_length(bytes: &[u8]) -> Option<usize> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let length = bytes.iter().position(|byte| !is_token(byte)).unwrap_or(bytes.len());
    (length > 0).then_some(length)
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &bytes[blank..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(content_type: Option<&[u8]>) -> [u8; 32] {
        let mut encoder = Encoder::new(b"test");
        MediaType::of(content_type).encode(&mut encoder);
        encoder.finish()
    }

    fn same(left: &str, right: &str) -> bool {
        digest(Some(left.as_bytes())) == digest(Some(right.as_bytes()))
    }

    #[test]
    fn media_types_of_one_meaning() {
        let table = [
            ("text/plain", " Text/PLAIN\t"),
            ("text/plain", "text/plain;"),
            ("text/plain;a=1;b=2", "text/plain ; B=2 ;; a=\"1\" ;"),
            ("text/plain;a=\"x\\\"y\"", "text/plain;a=\"\\x\\\"\\y\""),
            ("application/json", "application/json;charset=utf-8"),
            ("application/json", "application/json; Charset=\"UTF-8\""),
            ("application/a+json", "application/a+JSON;charset=utf-8"),
            ("multipart/form-data;boundary=a", "multipart/form-data; boundary=\"b c\""),
        ];
        for (left, right) in table {
            assert!(same(left, right), "{left} {right}");
        }
    }

    #[test]
    fn media_types_of_different_meaning() {
        let table = [
            ("text/plain", "text/html"),
            ("text/plain", "text/plain;charset=utf-8"),
            ("text/plain;a=x", "text/plain;a=X"),
            ("text/plain;a=1", "text/plain;b=1"),
            ("text/plain;a=\"b;c=d\"", "text/plain;a=b;c=d"),
            ("application/json", "application/json;charset=latin1"),
            ("application/json", "application/json;version=2"),
            ("application/json", "application/json garbage"),
            ("", "text/plain"),
            ("text", "TEXT"),
        ];
        for (left, right) in table {
            assert!(!same(left, right), "{left} {right}");
        }
        assert_ne!(digest(None), digest(Some(b"")));
    }

    #[test]
    fn malformed_types_count_by_their_bytes() {
        let table = [
            "",
            "text",
            "text/",
            "/plain",
            "text /plain",
            "text/plain x",
            "text/plain;a",
            "a/b;=",
            "text/plain;a=",
            "text/plain;a =1",
            "text/plain;a=\"",
            "text/plain;a=\"\\",
            "a/b;a=1 2",
            "text/plain;a=1;A=1",
            "text/plain;a=é",
            "text/plain;a=\"\n\"",
            "a/b, c/d",
        ];
        for text in table {
            let parsed = MediaType::of(Some(text.as_bytes()));
            assert!(
                matches!(parsed, MediaType::Malformed(bytes) if bytes == text.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn json_is_told_by_its_type_and_charset() {
        let is_json = |text: &'static str| MediaType::of(Some(text.as_bytes())).is_json();
        assert!(is_json("application/json"));
        assert!(is_json("APPLICATION/JSON; charset=UTF-8; v=1"));
        assert!(is_json("application/merge-patch+json"));
        assert!(!is_json("application/json; charset=utf-16"));
        assert!(!is_json("application/json-seq"));
        assert!(!is_json("application/jsonx"));
        assert!(!is_json("application/json; v"));
        assert!(!MediaType::of(None).is_json());
    }

    #[test]
    fn only_multipart_has_a_boundary() {
        let boundary = |text: &'static str| MediaType::of(Some(text.as_bytes())).into_boundary();
        assert_eq!(boundary("Multipart/Mixed; Boundary=\"aB c\"").as_deref(), Some(&b"aB c"[..]));
        assert_eq!(boundary("multipart/mixed"), None);
        assert_eq!(boundary("text/plain; boundary=a"), None);
        assert_eq!(boundary("multipart/mixed; boundary=a; boundary=b"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
            digest(Some(&bytes));
        }

        #[test]
        fn text_near_the_grammar_never_panics(
            text in "[ab]/[ab] ?(; ?[ab]?=?\"?[ab\\\\]?\"?){0,4}",
        ) {
            digest(Some(text.as_bytes()));
        }

        #[test]
        fn a_quoted_value_is_kept_exactly(left in "[ -~]{0,6}", right in "[ -~]{0,6}") {
            let quoted = |value: &str| {
                let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                digest(Some(["a/b;c=\"", &escaped, "\""].concat().as_bytes()))
            };
            prop_assert_eq!(left == right, quoted(&left) == quoted(&right));
        }
    }
}
