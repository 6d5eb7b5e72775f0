//! Refusals as Stripe writes them, for its SDKs: they look for `error` in the document, and take a 4xx
//! without it for a success.

use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::server::{Code, Problem};

/// What an SDK does after a refusal: it counts more than the SDK's own rules.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// The status for a key that was used for something else.
pub(crate) const MISMATCH: u16 = 400;

pub(crate) fn document(problem: &Problem) -> Value {
    let message = match &problem.cause {
        Some(cause) => format!("{} ({cause})", problem.detail),
        None => problem.detail.to_string(),
    };
    json!({ "error": {
        "type": kind(problem.status),
        "code": code(problem.code),
        "message": message,
        "doc_url": problem.code.doc_url(),
    }})
}

pub(crate) fn should_retry(retryable: bool) -> HeaderValue {
    HeaderValue::from_static(if retryable { "true" } else { "false" })
}

/// A 5xx is no mistake about a key.
fn kind(status: StatusCode) -> &'static str {
    if status.is_server_error() { "api_error" } else { "idempotency_error" }
}

/// Stripe's own word where it has one.
fn code(code: Code) -> &'static str {
    match code {
        Code::InProgress => "idempotency_key_in_use",
        other => other.as_str(),
    }
}
