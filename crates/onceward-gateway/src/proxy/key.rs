//! The key of a request: where its route looks for it, and what the gateway tells the upstream.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use onceward::{Key, server::IdempotencyBuilder};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::RequestContext;
use crate::{
    config::{KeyHeader, KeySource, Route},
    identity::{self, Document},
};

/// Under this name every upstream gets the key.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of a body, `None` if it has none, or why it is no key.
pub(super) type InBody = Result<Option<Key>, String>;

pub(super) fn header_names(routes: &[Route]) -> Vec<HeaderName> {
    let headers = routes.iter().flat_map(|route| route.key_source.headers());
    headers.map(|header| header.name.clone()).collect()
}

/// Whether the client of a request that no route speaks of believes in its key: it sends one as some route
/// takes it. An event id is no such word.
pub(super) fn is_meant(routes: &[Route], lines: &HeaderMap) -> bool {
    let is_named = |route: &Route| match &route.key_source {
        KeySource::Headers(headers) => has_any(headers, lines),
        KeySource::EventHeader(_) | KeySource::Json(_) => false,
    };
    lines.contains_key(KEY) || routes.iter().any(is_named)
}

/// Whether a request may have a key, as far as its head tells.
pub(super) fn may_be_there(source: &KeySource, lines: &HeaderMap) -> bool {
    match source {
        KeySource::Json(_) => true,
        KeySource::Headers(_) | KeySource::EventHeader(_) => has_any(source.headers(), lines),
    }
}

fn has_any(headers: &[KeyHeader], lines: &HeaderMap) -> bool {
    headers.iter().any(|header| lines.contains_key(&header.name))
}

/// Adds where the layer finds event ids; the names of headers it has already.
pub(super) fn choose(source: &KeySource, options: IdempotencyBuilder) -> IdempotencyBuilder {
    match source {
        KeySource::Headers(_) => options,
        KeySource::EventHeader(KeyHeader { shown, name }) => {
            let name = name.clone();
            options.key_from(format!("the header {shown}"), move |parts| {
                Key::from_lines(parts.headers.get_all(&name).iter().map(HeaderValue::as_bytes))
            })
        }
        KeySource::Json(pointer) => {
            options.key_from(format!("`{pointer}` of the JSON body"), |parts| {
                match parts.extensions.get::<RequestContext>() {
                    Some(asked) => asked.key.clone(),
                    None => Err("the body was not read".to_owned()),
                }
            })
        }
    }
}

/// The event id at a pointer of a body. What is there but is none is refused: passed on, it would run
/// again with each delivery.
pub(super) fn in_body(
    pointer: &str,
    lines: &HeaderMap,
    body: &[u8],
    document: Option<&Document>,
) -> InBody {
    let is_plain = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"identity");
    if !lines.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        return Err("the body is compressed; send it without Content-Encoding".to_owned());
    }
    let Some(document) = document else {
        return match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Err("the body has two members of one name; send each once".to_owned()),
            Err(_) => Ok(None),
        };
    };
    match document.at(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(id @ (Value::String(_) | Value::Number(_))) => {
            let text = identity::plain(id).ok_or("the number is not whole, or too large")?;
            Key::new(&text).map(Some).map_err(|error| error.to_string())
        }
        Some(_) => Err("it is neither a text nor a whole number".to_owned()),
    }
}

/// Rule 14: the upstream gets the key under its usual name, whatever the client calls it. What the client
/// sent stays beside it.
pub(super) fn tell_upstream(source: &KeySource, in_body: &InBody, lines: &mut HeaderMap) {
    let value = match source {
        KeySource::Json(_) => in_body.as_ref().ok().and_then(Option::as_ref).and_then(written),
        KeySource::Headers(_) | KeySource::EventHeader(_) => {
            let mut headers = source.headers().iter();
            let first = headers.find(|header| lines.contains_key(&header.name));
            first.and_then(|header| only_key(lines, &header.name))
        }
    };
    if let Some(value) = value {
        lines.insert(KEY, value);
    }
}

/// The line of a header, if it is a key. What is none, as two lines, stays as it is: the layer refuses it,
/// by the name that its client knows.
fn only_key(lines: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let all = lines.get_all(name).iter();
    let key = Key::from_lines(all.map(HeaderValue::as_bytes)).ok().flatten();
    key.and_then(|_| lines.get(name).cloned())
}

/// A key as one line of a header, in quotes where it would mean something else without.
fn written(key: &Key) -> Option<HeaderValue> {
    let text = key.as_str();
    let line = match text.starts_with('"') || text.contains(',') {
        true => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        false => text.to_owned(),
    };
    HeaderValue::try_from(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pointer: &str, body: &str) -> Result<Option<String>, String> {
        let document = identity::document(body.as_bytes(), [pointer]);
        let key = in_body(pointer, &HeaderMap::new(), body.as_bytes(), document.as_ref())?;
        Ok(key.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn an_event_id_is_a_text_or_a_whole_number() {
        for (body, id) in [
            (r#"{"id": "evt_1"}"#, Some("evt_1")),
            (r#"{"id": "\u0065vt,1"}"#, Some("evt,1")),
            (r#"{"id": 7}"#, Some("7")),
            (r#"{"id": -7}"#, Some("-7")),
            (r#"{"id": 18446744073709551615}"#, Some("18446744073709551615")),
            (r#"{"id": null}"#, None),
            (r#"{"other": 1}"#, None),
            ("no JSON", None),
            ("", None),
        ] {
            assert_eq!(found("/id", body), Ok(id.map(str::to_owned)), "{body}");
        }
        assert_eq!(found("/a~1b/0", r#"{"a/b": ["x"]}"#), Ok(Some("x".to_owned())));
        for body in [
            r#"{"id": ""}"#,
            r#"{"id": "a b"}"#,
            r#"{"id": "schlüssel"}"#,
            r#"{"id": 7.0}"#,
            r#"{"id": 1e3}"#,
            r#"{"id": -0}"#,
            r#"{"id": 18446744073709551616}"#,
            r#"{"id": true}"#,
            r#"{"id": ["a"]}"#,
            r#"{"id": "a", "id": "b"}"#,
            r#"{"id": "a", "x": {"y": 1, "y": 2}}"#,
        ] {
            assert!(found("/id", body).is_err(), "{body}");
        }
        let mut lines = HeaderMap::new();
        lines.insert("content-encoding", HeaderValue::from_static("gzip"));
        assert!(in_body("/id", &lines, b"\x1f\x8b", None).is_err());
    }

    #[test]
    fn a_key_is_read_from_what_is_written() {
        for text in ["a", "a,b", "\"a\"", "\"", "a\"b", "a\\b", "\"a\\b,\"", "a;b", "'"] {
            let key = Key::new(text).unwrap();
            assert_eq!(Key::parse(written(&key).unwrap().as_bytes()), Ok(key), "{text}");
        }
    }
}
