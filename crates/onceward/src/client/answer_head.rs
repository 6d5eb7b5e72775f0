//! What an answer says about its operation: in its head, and in a refusal of ours.

use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use onceward_core::retry::{Answer, Class, Observation, Rules};
use serde_json::{Map, Value};

use super::follow;
use crate::http::hint;

const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const OPERATION: HeaderName = HeaderName::from_static("onceward-operation");
const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const UNPROTECTED: HeaderName = HeaderName::from_static("onceward-unprotected");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// What the `type` of our problem documents begins with.
const PROBLEM: &str = "urn:onceward:problem:";

/// Where refusals of ours are explained, whatever their shape: in `doc_url` and in `Link`.
const DOCUMENTED: &str = "https://docs.rs/onceward/";

/// What the head of an answer says. It counts also when the server never sends the whole body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    status: StatusCode,
    pub(crate) hint: Option<Duration>,
    bound: bool,
    /// It names an operation and a status URL of ours.
    is_accepted: bool,
    names_operation: bool,
    unprotected: bool,
    unknown: bool,
    /// `Stripe-Should-Retry: false`.
    forbids_repeat: bool,
    /// Its `Link` explains a refusal of ours.
    is_our_refusal: bool,
    is_json: bool,
}

impl Head {
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, uri: &Uri) -> Self {
        let is = |name, word: &str| headers.get(name).is_some_and(|value| value == word);
        let names_operation = headers.contains_key(OPERATION);
        let is_ours =
            |link: &str| link.trim_start().trim_start_matches('<').starts_with(DOCUMENTED);
        let mut links = headers.get_all(header::LINK).iter().filter_map(|link| link.to_str().ok());
        Self {
            status,
            hint: hint(headers),
            bound: headers.contains_key(REPLAYED) || headers.contains_key(EXPIRES),
            is_accepted: status == StatusCode::ACCEPTED
                && names_operation
                && follow::location(headers, uri).is_some(),
            names_operation,
            unprotected: headers.contains_key(UNPROTECTED),
            unknown: is(OUTCOME, "unknown"),
            forbids_repeat: is(SHOULD_RETRY, "false"),
            is_our_refusal: links.any(is_ours),
            is_json: is_json(headers),
        }
    }

    /// Whether the body says more.
    pub(crate) fn asks_for_body(&self) -> bool {
        self.is_accepted || self.may_refuse()
    }

    fn may_refuse(&self) -> bool {
        matches!(self.status.as_u16(), 409 | 500..=504) && self.is_json
    }

    /// What the answer shows with this body, if all of it was read.
    pub(crate) fn observation(&self, body: Option<&[u8]>, rules: &Rules) -> Observation {
        let said = body.filter(|_| self.may_refuse()).map(|body| self.refusal(body));
        let said = said.unwrap_or_default();
        let code = said.code.as_deref();
        let is_nameless = !said.names_operation && !self.names_operation;
        let answer = Answer {
            status: self.status.as_u16(),
            code,
            hinted: self.hint.is_some(),
            bound: self.bound,
            ours: self.is_accepted,
            retryable: said.retryable,
            // A gateway of ours names the operation whenever it keeps the key.
            unprotected: self.unprotected
                || (said.is_ours && is_nameless && code == Some("upstream-failed")),
            unknown: self.unknown,
        };
        let observation = rules.observation(&answer, self.hint);
        Observation {
            last: observation.last || (self.forbids_repeat && observation.class.is_failure()),
            ..observation
        }
    }

    /// The observation when the body broke off, or did not come in time. A server that does not keep the
    /// key counts for more than a missing answer.
    pub(super) fn seen_without_body(&self, class: Class) -> Observation {
        Observation {
            hint: self.hint,
            unprotected: self.unprotected,
            last: self.forbids_repeat,
            ..Observation::from(class)
        }
    }

    /// The code of a refusal, if this is its body, and it is a word.
    #[cfg(feature = "relay")]
    pub(crate) fn code(&self, body: &[u8]) -> Option<String> {
        let is_word =
            |code: &String| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_graphic());
        self.refusal(body).code.filter(|code| self.may_refuse() && is_word(code))
    }

    fn refusal(&self, body: &[u8]) -> RefusalFields {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
            return RefusalFields::default();
        };
        match fields.get("error") {
            Some(Value::Object(error)) if !fields.contains_key("code") => {
                self.in_stripes_shape(error)
            }
            _ => RefusalFields::of_problem(&fields),
        }
    }

    /// Codes of others mean what others say, but for the one that we took over from Stripe.
    fn in_stripes_shape(&self, error: &Map<String, Value>) -> RefusalFields {
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let is_ours =
            self.is_our_refusal || text("doc_url").is_some_and(|url| url.starts_with(DOCUMENTED));
        let code = match text("code") {
            Some("idempotency_key_in_use") => Some("in-progress"),
            code => code.filter(|_| is_ours),
        };
        RefusalFields {
            code: code.map(str::to_owned),
            is_ours,
            retryable: (is_ours && self.forbids_repeat).then_some(false),
            names_operation: false,
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/problem+json")
        || kind.eq_ignore_ascii_case("application/json")
}

#[derive(Default)]
struct RefusalFields {
    code: Option<String>,
    is_ours: bool,
    /// Only of ours: what others mean by it is not known.
    retryable: Option<bool>,
    names_operation: bool,
}

impl RefusalFields {
    fn of_problem(fields: &Map<String, Value>) -> Self {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let is_ours = text("type").is_some_and(|kind| kind.starts_with(PROBLEM));
        Self {
            code: text("code").map(str::to_owned),
            is_ours,
            retryable: fields.get("retryable").and_then(Value::as_bool).filter(|_| is_ours),
            names_operation: text("operation").is_some(),
        }
    }
}
