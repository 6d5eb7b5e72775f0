//! What an operator asks for: parsed once, with everything that is wrong said in words.

use std::{borrow::Cow, time::Duration};

use base64ct::Encoding as _;
use http::{HeaderName, HeaderValue};
use onceward::{
    Key, OperationName, Outcome, Resolution, Scope, Status,
    protocol::StoredBody,
    store::{Cursor, Filter, Order},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::refusal::Refusal;
use crate::config;

/// The longest reason: a few sentences.
const MAX_REASON: usize = 1000;

/// The longest place in a list.
const MAX_CURSOR: usize = 200;

/// The largest answer that the gateway keeps in a record itself.
const MAX_ANSWER: usize = 64 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    pub(super) state: Option<String>,
    scope: Option<String>,
    name: Option<String>,
    older: Option<String>,
    pub(super) key: Option<String>,
    order: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

impl ListQuery {
    /// From the query of a URL, which does not take keys: URLs are logged.
    pub(super) fn of_query(query: &str) -> Result<Self, Refusal> {
        of_query(query)
    }

    pub(super) fn filter(&self) -> Result<Filter, Refusal> {
        let limit = self.limit.unwrap_or(Filter::default().limit);
        if !(1..=Filter::MAX_PAGE).contains(&limit) {
            return Err(bad_limit());
        }
        if !self.after.as_deref().is_none_or(is_cursor) {
            return Err(Refusal::malformed("`after` is what a page before called `next`"));
        }
        Ok(Filter {
            status: self.state.as_deref().map(state).transpose()?,
            scope: parsed("scope", self.scope.as_deref(), str::parse::<Scope>)?,
            operation: parsed("name", self.name.as_deref(), OperationName::new)?,
            key: parsed("key", self.key.as_deref(), Key::new)?,
            older: self.older.as_deref().map(duration).transpose()?,
            order: self.order.as_deref().map(order).transpose()?.unwrap_or_default(),
            after: self.after.clone().map(Cursor),
            limit,
        })
    }
}

/// The members of the query of a URL, each once.
pub(super) fn of_query<T: DeserializeOwned>(query: &str) -> Result<T, Refusal> {
    let mut members = serde_json::Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = match &*name {
            "key" => {
                let text = "a key does not belong into a URL: send it as JSON to \
                            /v1/operations/search";
                return Err(Refusal::malformed(text));
            }
            "limit" => value.parse::<u32>().map_err(|_| bad_limit())?.into(),
            _ => Value::from(&*value),
        };
        if members.insert(name.clone().into_owned(), value).is_some() {
            return Err(Refusal::malformed(format!("`{name}` is there twice")));
        }
    }
    read_value(members.into())
}

fn bad_limit() -> Refusal {
    Refusal::malformed(format!("`limit` is from 1 to {}", Filter::MAX_PAGE))
}

/// What a place in a list may look like; what it means is the store's own.
pub(super) fn is_cursor(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_:.,~-".contains(&byte);
    (1..=MAX_CURSOR).contains(&text.len()) && text.bytes().all(is_plain)
}

pub(super) fn parsed<'a, T, E: std::fmt::Display>(
    name: &str,
    text: Option<&'a str>,
    parse: impl FnOnce(&'a str) -> Result<T, E>,
) -> Result<Option<T>, Refusal> {
    let wrong = |error| Refusal::malformed(format!("`{name}`: {error}"));
    text.map(|text| parse(text).map_err(wrong)).transpose()
}

fn state(text: &str) -> Result<Status, Refusal> {
    let names = Status::ALL.map(Status::as_str);
    let known = Status::ALL.into_iter().find(|status| status.as_str() == text);
    known.ok_or_else(|| Refusal::malformed(format!("`state` is one of {}", names.join(", "))))
}

fn order(text: &str) -> Result<Order, Refusal> {
    match text {
        "oldest" => Ok(Order::OldestFirst),
        "newest" => Ok(Order::NewestFirst),
        _ => Err(Refusal::malformed("`order` is `oldest` or `newest`")),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, Refusal> {
    config::duration(text).map_err(|help| Refusal::malformed(format!("`older`: {help}")))
}

/// What an operator found out about an unknown outcome.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    outcome: String,
    response: Option<GivenAnswer>,
    pub(super) reason: Reason,
    #[serde(default)]
    pub(super) force: bool,
    /// Only if this is still the last execution: what an operator saw may have gone on.
    pub(super) execution: Option<String>,
}

/// The answer that duplicates shall get.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenAnswer {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_base64: Option<String>,
}

impl ResolveBody {
    pub(super) fn resolution(&self) -> Result<Resolution, Refusal> {
        match (self.outcome.as_str(), &self.response) {
            ("applied", None) => {
                let outcome = Outcome::inline(200, Vec::new());
                Ok(Resolution::Applied(Outcome { body: StoredBody::Unavailable, ..outcome }))
            }
            ("applied", Some(given)) => Ok(Resolution::Applied(given.outcome()?)),
            ("not_applied", None) => Ok(Resolution::Never),
            ("not_applied", Some(_)) => {
                Err(Refusal::malformed("what did not happen has no `response`: leave it out"))
            }
            _ => Err(Refusal::malformed("`outcome` is `applied` or `not_applied`")),
        }
    }
}

impl GivenAnswer {
    fn outcome(&self) -> Result<Outcome, Refusal> {
        if !(200..=599).contains(&self.status) {
            return Err(Refusal::malformed("`response.status` is from 200 to 599"));
        }
        let body = match (&self.body, &self.body_base64) {
            (None, None) => Vec::new(),
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(text)) => base64ct::Base64::decode_vec(text)
                .map_err(|_| Refusal::malformed("`response.body_base64` is not base64"))?,
            (Some(_), Some(_)) => {
                return Err(Refusal::malformed("`response` has two bodies: leave one out"));
            }
        };
        if body.len() > MAX_ANSWER {
            let text = "the body of `response` has more than 64 KiB; resolve without a response, and \
                        duplicates hear that it happened";
            return Err(Refusal::malformed(text));
        }
        if matches!(self.status, 204 | 205 | 304) && !body.is_empty() {
            return Err(Refusal::malformed("an answer of this `response.status` has no body"));
        }
        let mut outcome = Outcome::inline(self.status, body);
        for (name, value) in &self.headers {
            let is_right = HeaderValue::from_str(value).is_ok();
            let name = HeaderName::try_from(name.as_str()).ok().filter(|_| is_right);
            let Some(name) = name else {
                return Err(Refusal::malformed("`response.headers` has one that is none"));
            };
            outcome = outcome.header(name.as_str(), value.as_bytes());
        }
        Ok(outcome)
    }
}

/// A change that needs nothing but a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReasonBody {
    pub(super) reason: Reason,
    #[serde(default)]
    pub(super) force: bool,
    /// As in [`ResolveBody`].
    pub(super) execution: Option<String>,
}

/// A word that needs nothing but a reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustBody {
    pub(super) reason: Reason,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkResolve {
    pub(super) filter: ListQuery,
    pub(super) outcome: String,
    pub(super) reason: Reason,
    pub(super) dry_run: bool,
}

impl BulkResolve {
    /// Each of them gets the same end, so that there is no answer of its own.
    pub(super) fn found(&self) -> ResolveBody {
        let (outcome, reason) = (self.outcome.clone(), self.reason.clone());
        ResolveBody { outcome, response: None, reason, force: false, execution: None }
    }
}

/// Why an operator changes something, as it is kept in the trail.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Reason(pub(super) String);

impl TryFrom<String> for Reason {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let text = text.trim();
        let is_plain = !text.chars().any(|letter| letter.is_control() && letter != '\n');
        match (1..=MAX_REASON).contains(&text.len()) && is_plain {
            true => Ok(Self(text.to_owned())),
            false => {
                Err("`reason` says in up to 1000 bytes of plain text why; it is kept in the trail")
            }
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let value = serde_json::from_slice(body)
        .map_err(|error| Refusal::malformed(format!("this is not JSON: {error}")))?;
    read_value(value)
}

fn read_value<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    if !value.is_object() {
        return Err(Refusal::malformed("send a JSON object"));
    }
    if has_null(&value) {
        return Err(Refusal::malformed("leave out what is not said, instead of null"));
    }
    serde_json::from_value(value).map_err(|error| Refusal::malformed(Cow::from(error.to_string())))
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}
