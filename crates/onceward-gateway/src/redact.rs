//! Hides parts of an answer before it is stored: header lines by name, and values in JSON by pointer.
//!
//! Everything else stays as it is, byte by byte. The gateway keeps no body in which it cannot
//! find the values: it might store something that it must not.

use std::{collections::BTreeSet, fmt, ops::Range};

use http::HeaderName;
use onceward::{
    Outcome,
    protocol::{Header, StoredBody},
    server::Redaction,
};
use serde::{
    Deserialize,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

const HIDDEN: &[u8] = b"[redacted]";
const HIDDEN_JSON: &[u8] = b"\"[redacted]\"";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redact {
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) json: Vec<Pointer>,
}

/// A JSON pointer in which `*` stands for every member or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Any,
    One(String),
}

impl Pointer {
    /// `None`: it is no pointer, or points to the whole document.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let step = |part: &str| match part {
            "*" => Some(Step::Any),
            _ => {
                let escapes = part.split('~').skip(1);
                let is_right = escapes.into_iter().all(|rest| rest.starts_with(['0', '1']));
                is_right.then(|| Step::One(part.replace("~1", "/").replace("~0", "~")))
            }
        };
        let steps = text.strip_prefix('/')?.split('/').map(step).collect::<Option<_>>()?;
        Some(Self { text: text.to_owned(), steps })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Redact {
    pub(crate) fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.json.is_empty()
    }

    pub(crate) fn apply(&self, outcome: &mut Outcome) -> Redaction {
        let mut is_changed = false;
        let is_hidden = |name: &str| self.headers.iter().any(|hidden| hidden.as_str() == name);
        let lines = outcome.headers.iter_mut().chain(&mut outcome.trailers);
        for (_, value) in lines.filter(|(name, _)| is_hidden(&name.to_ascii_lowercase())) {
            *value = HIDDEN.into();
            is_changed = true;
        }
        if let StoredBody::Inline(bytes) = &mut outcome.body
            && !self.json.is_empty()
            && !bytes.is_empty()
        {
            if is_encoded(&outcome.headers) {
                return Redaction::NotKept;
            }
            let Ok(spans) = self.spans(bytes) else { return Redaction::NotKept };
            is_changed |= !spans.is_empty();
            *bytes = hidden(bytes, spans);
        }
        if is_changed { Redaction::Redacted } else { Redaction::Unchanged }
    }

    /// Where the values are that are to be hidden, in order, none inside another.
    fn spans(&self, bytes: &[u8]) -> serde_json::Result<Vec<Range<usize>>> {
        let document: &RawValue = serde_json::from_slice(bytes)?;
        let rules: Vec<&[Step]> = self.json.iter().map(|pointer| &pointer.steps[..]).collect();
        let mut spans = Vec::new();
        walk(document, &rules, &mut |found| {
            let start = found.get().as_ptr() as usize - bytes.as_ptr() as usize;
            spans.push(start..start + found.get().len());
        })?;
        Ok(spans)
    }
}

/// The same bytes with something else in these places, in one pass: there may be a million of them.
fn hidden(bytes: &[u8], spans: Vec<Range<usize>>) -> Vec<u8> {
    let mut hidden = Vec::with_capacity(bytes.len());
    let mut end = 0;
    for span in spans {
        hidden.extend_from_slice(&bytes[end..span.start]);
        hidden.extend_from_slice(HIDDEN_JSON);
        end = span.end;
    }
    hidden.extend_from_slice(&bytes[end..]);
    hidden
}

/// The gateway asks for none, but a service may send one all the same.
fn is_encoded(lines: &[Header]) -> bool {
    let is_identity = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"identity");
    lines.iter().any(|(name, value)| **name == *"content-encoding" && !is_identity(value))
}

/// Goes only where rules lead, so never deeper than the longest of them.
fn walk<'a>(
    value: &'a RawValue,
    rules: &[&[Step]],
    found: &mut impl FnMut(&'a RawValue),
) -> serde_json::Result<()> {
    let children: Vec<(String, &RawValue)> = match value.get().as_bytes().first() {
        Some(b'{') => serde_json::from_str::<Members<'_>>(value.get())?.0,
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
            elements.into_iter().enumerate().map(|(index, one)| (index.to_string(), one)).collect()
        }
        _ => return Ok(()),
    };
    for (name, child) in children {
        let rest: Vec<&[Step]> = rules
            .iter()
            .filter_map(|rule| match rule.split_first()? {
                (Step::Any, rest) => Some(rest),
                (Step::One(one), rest) => (*one == name).then_some(rest),
            })
            .collect();
        if rest.iter().any(|rule| rule.is_empty()) {
            found(child);
        } else if !rest.is_empty() {
            walk(child, &rest, found)?;
        }
    }
    Ok(())
}

/// The members of an object, as they are written. One that is there twice means one thing to some
/// readers and another to others: then it is unclear what is to be hidden.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut members, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom("a member is there twice"));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(pointers: &[&str]) -> Redact {
        let json = pointers.iter().map(|text| Pointer::parse(text).unwrap()).collect();
        Redact { headers: vec![HeaderName::from_static("x-secret")], json }
    }

    fn body(pointers: &[&str], body: &str) -> (Redaction, Option<String>) {
        let mut outcome = Outcome::inline(201, body.into());
        let done = redact(pointers).apply(&mut outcome);
        let StoredBody::Inline(bytes) = outcome.body else { panic!("it stays where it is") };
        (done, Some(String::from_utf8(bytes).unwrap()))
    }

    fn hidden(pointers: &[&str], text: &str, expected: &str) {
        assert_eq!(body(pointers, text), (Redaction::Redacted, Some(expected.to_owned())));
    }

    #[test]
    fn values_are_hidden_and_everything_else_stays_byte_by_byte() {
        let hidden_number = r#" {"card" : {"number":"[redacted]", "exp":"12/30"},"sum":1.0e2 }"#;
        for number in [r#""4242 4242""#, "4242", "null", r#"{"a":[1,2]}"#, r#"["4242"]"#] {
            let text =
                format!(r#" {{"card" : {{"number":{number}, "exp":"12/30"}},"sum":1.0e2 }}"#);
            hidden(&["/card/number"], &text, hidden_number);
        }
        let items = r#"{"items":[{"cvv":"123"},{"cvv":1,"x":2},{}],"cvv":"here it stays"}"#;
        let expected = r#"{"items":[{"cvv":"[redacted]"},{"cvv":"[redacted]","x":2},{}],"cvv":"here it stays"}"#;
        hidden(&["/items/*/cvv"], items, expected);
        hidden(&["/items/1"], r#"{"items":[1,2,3]}"#, r#"{"items":[1,"[redacted]",3]}"#);
        hidden(&["/*"], r#"{"a":1,"b":[2]}"#, r#"{"a":"[redacted]","b":"[redacted]"}"#);
        hidden(&["/*/pin"], r#"[{"pin":1}]"#, r#"[{"pin":"[redacted]"}]"#);
        hidden(&["/a~1b/m~0n"], r#"{"a/b":{"m~n":1}}"#, r#"{"a/b":{"m~n":"[redacted]"}}"#);
        hidden(&["/p\u{e4}n"], r#"{"p\u00e4n":1}"#, r#"{"p\u00e4n":"[redacted]"}"#);
        // Of two rules the outer one counts, whichever comes first.
        for rules in [["/a", "/a/b"], ["/a/b", "/a"]] {
            hidden(&rules, r#"{"a":{"b":1}}"#, r#"{"a":"[redacted]"}"#);
        }
    }

    #[test]
    fn what_has_none_of_them_is_unchanged() {
        for text in ["", "{ }", "[]", "7", "\"text\"", r#"{"card":"number","x":{"card":1}}"#] {
            let expected = (Redaction::Unchanged, Some(text.to_owned()));
            assert_eq!(body(&["/card/number"], text), expected);
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_kept() {
        for text in [
            "receipt 7",
            "{\"card\":{\"number\":1}",
            "{\"card\":{\"number\":1}} {}",
            "\u{feff}{}",
            " ",
            r#"{"card":{"number":"secret"},"card":{}}"#,
            r#"{"card":{"number":"secret","number":1}}"#,
            r#"{"card":{"number":1},"card":{"number":2}}"#,
            r#"{"\ud800":{}}"#,
        ] {
            assert_eq!(body(&["/card/number"], text).0, Redaction::NotKept, "{text}");
        }
        let mut bytes = Outcome::inline(200, b"{\"\xff\":1}".to_vec());
        assert_eq!(redact(&["/a"]).apply(&mut bytes), Redaction::NotKept);
        let encoded = Outcome::inline(200, b"{}".to_vec()).header("content-encoding", b"gzip");
        assert_eq!(redact(&["/a"]).apply(&mut encoded.clone()), Redaction::NotKept);
        let plain = Outcome::inline(200, b"{}".to_vec()).header("content-encoding", b"identity");
        assert_eq!(redact(&["/a"]).apply(&mut plain.clone()), Redaction::Unchanged);
    }

    #[test]
    fn header_lines_and_trailers_are_hidden_by_name() {
        let mut outcome = Outcome::inline(200, b"no JSON".to_vec())
            .header("x-secret", b"one")
            .header("x-other", b"two")
            .trailer("x-secret", b"three");
        assert_eq!(redact(&[]).apply(&mut outcome), Redaction::Redacted);
        let expected = Outcome::inline(200, b"no JSON".to_vec())
            .header("x-secret", HIDDEN)
            .header("x-other", b"two")
            .trailer("x-secret", HIDDEN);
        assert_eq!(outcome, expected);
    }

    #[test]
    fn pointers_are_checked() {
        for text in ["", "card", "/a~2", "/a~"] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
        assert_eq!(Pointer::parse("/a/*/b").unwrap().to_string(), "/a/*/b");
    }
}
