//! The operation that is probed, and the attempts at it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, Method, Uri};
use serde_json::{Value, value::RawValue};

use super::{catalogue::Profile, curl};
use crate::commands::arguments::Line;

pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) url: Uri,
    pub(super) method: Method,
    pub(super) headers: Vec<Line>,
    pub(super) credentials: Vec<Line>,
    pub(super) data: Option<String>,
    pub(super) other_data: Option<String>,
    pub(super) bad_data: Option<String>,
    pub(super) profile: Profile,
}

/// One request. Its clones are attempts at the same piece of work.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) method: Method,
    pub(super) url: Uri,
    pub(super) headers: Vec<Line>,
    pub(super) credential: Option<Line>,
    /// What stands for the credential where it must not be seen.
    pub(super) alias: &'static str,
    pub(super) keys: Vec<String>,
    pub(super) body: Option<Bytes>,
    pub(super) chunked: bool,
    fresh: String,
}

impl Operation {
    pub(super) fn fresh(&self) -> Attempt {
        let fresh = new();
        let body = self.data.as_ref().map(|data| fill(data, &fresh));
        let attempt = Attempt {
            method: self.method.clone(),
            url: self.url.clone(),
            headers: self.headers.clone(),
            credential: self.credentials.first().cloned(),
            alias: "CREDENTIAL",
            keys: Vec::new(),
            body,
            chunked: false,
            fresh: fresh.clone(),
        };
        attempt.key(&self.spelled(&fresh))
    }

    /// Something to ask, that changes nothing. Another host gets no secrets.
    pub(super) fn question(&self, url: &Uri) -> Attempt {
        let attempt = self.fresh().keys(&[]);
        let is_trusted = self.trusts(url);
        let is_for_it = |(name, _): &&Line| {
            *name != http::header::CONTENT_TYPE && (is_trusted || !curl::is_secret(name))
        };
        let headers = attempt.headers.iter().filter(is_for_it).cloned().collect();
        let credential = attempt.credential.clone().filter(|_| is_trusted);
        let (url, method) = (url.clone(), Method::GET);
        Attempt { url, method, body: None, headers, credential, ..attempt }
    }

    /// Whether it is the same host, and as safe on the way.
    fn trusts(&self, url: &Uri) -> bool {
        let host = |url: &Uri| url.host().map(str::to_ascii_lowercase);
        let is_safe = |url: &Uri| url.scheme_str() == Some("https");
        host(url) == host(&self.url) && (is_safe(url) || !is_safe(&self.url))
    }

    /// A key as clients of this profile write it: the draft has it in quotes.
    pub(super) fn spelled(&self, key: &str) -> String {
        match self.profile {
            Profile::Ietf => format!("\"{key}\""),
            Profile::Stripe | Profile::Onceward => key.to_owned(),
        }
    }

    pub(super) fn is_json(&self) -> bool {
        let is_said = self.headers.iter().any(|(name, value)| {
            name == http::header::CONTENT_TYPE
                && value.to_str().is_ok_and(|value| value.contains("json"))
        });
        is_said && self.data.as_ref().is_some_and(|data| members(&fill(data, &new())).is_some())
    }

    pub(super) fn other(&self, attempt: &Attempt) -> Attempt {
        let body = match (&self.other_data, &attempt.body) {
            (Some(data), _) => fill(data, &attempt.fresh),
            (None, Some(body)) => match &self.data {
                // Another piece of work is what the API surely accepts.
                Some(data) if has_placeholder(data) => fill(data, &new()),
                _ => changed(body),
            },
            (None, None) => Bytes::from_static(b"{\"onceward_probe\": 1}"),
        };
        Attempt { body: Some(body), ..attempt.clone() }
    }

    pub(super) fn bad(&self) -> Attempt {
        let attempt = self.fresh();
        let body = match &self.bad_data {
            Some(data) => fill(data, &attempt.fresh),
            None => Bytes::from_static(b"{\"onceward_probe\": \"this is not what you expect\"}"),
        };
        Attempt { body: Some(body), ..attempt }
    }
}

impl Attempt {
    pub(super) fn key(self, key: &str) -> Self {
        self.keys(&[key])
    }

    pub(super) fn keys(mut self, keys: &[&str]) -> Self {
        self.keys = keys.iter().map(|&key| key.to_owned()).collect();
        self
    }

    /// By another caller, or without a credential.
    pub(super) fn credential(mut self, credential: Option<&Line>) -> Self {
        self.credential = credential.cloned();
        self.alias = "OTHER_CREDENTIAL";
        self
    }

    pub(super) fn in_chunks(mut self) -> Self {
        self.chunked = true;
        self
    }

    pub(super) fn query(mut self, pair: &str) -> Self {
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query = format!("{path}{joint}{pair}").parse().ok();
        self.url = Uri::from_parts(parts).unwrap_or(self.url);
        self
    }

    /// With a member more, of this length and with this end.
    pub(super) fn padded(mut self, length: usize, end: char) -> Option<Self> {
        let body = self.body.as_deref()?;
        let text = std::str::from_utf8(body).ok()?.trim_end().strip_suffix('}')?;
        let joint = if members(body)?.is_empty() { "" } else { ", " };
        let padding = "x".repeat(length);
        self.body = Some(format!("{text}{joint}\"onceward_probe\": \"{padding}{end}\"}}").into());
        Some(self)
    }

    pub(super) fn respelled(mut self) -> Option<Self> {
        let members = members(self.body.as_deref()?)?;
        let lines: Vec<String> = members
            .iter()
            .rev()
            .map(|(name, value)| format!("  {} :  {value}", Value::from(name.as_str())))
            .collect();
        let text = format!("{{\n{}\n}}", lines.join(" ,\n"));
        (text.as_bytes() != self.body.as_deref()?).then(|| {
            self.body = Some(text.into());
            self
        })
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        let keys = self.keys.iter().filter_map(|key| Some((KEY, key.parse().ok()?)));
        self.headers.iter().cloned().chain(self.credential.clone()).chain(keys).collect()
    }
}

fn new() -> String {
    let new = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes());
    new.into_uuid().to_string()
}

/// Whether data is JSON by its start, with its placeholders filled.
pub(super) fn looks_like_json(data: &str) -> bool {
    matches!(fill(data, &new()).trim_ascii_start(), [b'{' | b'[', ..])
}

fn has_placeholder(data: &str) -> bool {
    ["{{uuid}}", "{{number}}"].iter().any(|placeholder| data.contains(placeholder))
}

/// The placeholders are the same in all attempts at a piece of work.
fn fill(text: &str, fresh: &str) -> Bytes {
    let number =
        fresh.bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_000);
    text.replace("{{uuid}}", fresh).replace("{{number}}", &number.to_string()).into()
}

fn members(body: &[u8]) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_slice(body).ok()
}

fn changed(body: &Bytes) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return [body, &b"1"[..]].concat().into();
    };
    if !change(&mut value, another_number) && !change(&mut value, another_text) {
        match &mut value {
            Value::Object(members) => drop(members.insert("onceward_probe".into(), 1.into())),
            Value::Array(values) => values.push(1.into()),
            other => *other = 1.into(),
        }
    }
    value.to_string().into()
}

/// Changes the first that can be, at any depth, and says whether there was one.
fn change(value: &mut Value, another: fn(&Value) -> Option<Value>) -> bool {
    if let Some(other) = another(value) {
        *value = other;
        return true;
    }
    match value {
        Value::Object(members) => members.values_mut().any(|value| change(value, another)),
        Value::Array(values) => values.iter_mut().any(|value| change(value, another)),
        _ => false,
    }
}

fn another_number(value: &Value) -> Option<Value> {
    Some(value.as_i64()?.wrapping_add(1).into())
}

fn another_text(value: &Value) -> Option<Value> {
    Some(format!("{}x", value.as_str()?).into())
}

#[cfg(test)]
impl Operation {
    pub(super) fn example(url: &'static str, data: &str) -> Self {
        Self {
            url: Uri::from_static(url),
            method: Method::POST,
            headers: Vec::new(),
            credentials: Vec::new(),
            data: Some(data.into()),
            other_data: None,
            bad_data: None,
            profile: Profile::Onceward,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn operation(data: &str) -> Operation {
        Operation::example("http://127.0.0.1:1/pay?a=1", data)
    }

    fn text(attempt: &Attempt) -> String {
        String::from_utf8(attempt.body.clone().unwrap().into()).unwrap()
    }

    #[test]
    fn a_piece_of_work_keeps_its_placeholders_and_its_key() {
        let operation = operation(r#"{"order": "{{uuid}}", "n": {{number}}}"#);
        let (one, two) = (operation.fresh(), operation.fresh());
        assert_ne!((text(&one), &one.keys), (text(&two), &two.keys));
        let order: Value = serde_json::from_str(&text(&one)).unwrap();
        assert!(order["n"].is_u64() && one.keys[0].contains(order["order"].as_str().unwrap()));
    }

    #[test]
    fn placeholders_outside_of_quotes_are_json_when_they_are_filled() {
        let mut operation = operation(r#"{"n": {{number}}}"#);
        let json = HeaderValue::from_static("application/json");
        operation.headers.push((http::header::CONTENT_TYPE, json));
        assert!(operation.is_json());
        assert!(looks_like_json(r#" {"n": {{number}}}"#) && !looks_like_json("{{uuid}}"));
    }

    #[test]
    fn another_host_gets_no_secrets() {
        let mut operation = operation("{}");
        let secret = || HeaderValue::from_static("secret");
        operation.headers.push((http::header::AUTHORIZATION, secret()));
        operation.credentials.push((HeaderName::from_static("x-caller"), secret()));
        let sent =
            |operation: &Operation, url| operation.question(&Uri::from_static(url)).lines().len();
        assert_eq!(sent(&operation, "http://127.0.0.1:2/count"), 2);
        assert_eq!(sent(&operation, "http://127.0.0.2:1/count"), 0);
        operation.url = Uri::from_static("https://127.0.0.1/pay");
        assert_eq!(sent(&operation, "http://127.0.0.1/count"), 0);
    }

    #[test]
    fn something_else_differs_in_what_counts() {
        let other = |data: &str| {
            let operation = operation(data);
            text(&operation.other(&operation.fresh()))
        };
        assert_eq!(other(r#"{"to": "ada", "cents": 5}"#), r#"{"cents":6,"to":"ada"}"#);
        assert_eq!(other(r#"{"to": "ada"}"#), r#"{"to":"adax"}"#);
        assert_eq!(other("{}"), r#"{"onceward_probe":1}"#);
        assert_eq!(other("cents=5"), "cents=51");
        assert_eq!(other(r#"{"a": "b", "c": [{"d": 1}]}"#), r#"{"a":"b","c":[{"d":2}]}"#);
        assert_eq!(other("[true]"), "[true,1]");
    }

    #[test]
    fn something_else_with_placeholders_is_another_piece_of_work() {
        let operation = operation(r#"{"order": "{{uuid}}"}"#);
        let attempt = operation.fresh();
        let other = operation.other(&attempt);
        assert_eq!(other.keys, attempt.keys);
        assert_ne!(text(&other), text(&attempt));
        assert_eq!(text(&other).len(), text(&attempt).len());
    }

    #[test]
    fn the_same_json_can_be_written_in_another_way() {
        let operation = operation(r#"{"a": 1.0, "b": [1, 2]}"#);
        let respelled = text(&operation.fresh().respelled().unwrap());
        assert_eq!(respelled, "{\n  \"b\" :  [1, 2] ,\n  \"a\" :  1.0\n}");
    }

    #[test]
    fn a_query_is_added_to_what_is_there() {
        let url = operation("{}").fresh().query("b=2").url;
        assert_eq!(url, "http://127.0.0.1:1/pay?a=1&b=2");
    }

    #[test]
    fn a_padded_body_is_json() {
        for data in ["{}", r#"{"a": 1}"#] {
            let padded = text(&operation(data).fresh().padded(3, 'e').unwrap());
            let value: Value = serde_json::from_str(&padded).unwrap();
            assert_eq!(value["onceward_probe"], "xxxe");
        }
        assert!(operation("a=1").fresh().padded(3, 'e').is_none());
    }
}
