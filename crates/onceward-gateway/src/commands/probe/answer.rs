//! What came back, and how two answers compare.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

/// They may differ between an answer and its replay: about the message, the way or the limits.
const PASSING: [&str; 20] = [
    "age",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "retry-after",
    "server-timing",
    "set-cookie",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "vary",
    "via",
    "www-authenticate",
    "x-amzn-trace-id",
    "x-b3-traceid",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Whether it says where to ask for the end of what is running.
    pub(super) fn is_accepted(&self) -> bool {
        self.status == StatusCode::ACCEPTED && self.headers.contains_key(header::LOCATION)
    }

    /// Whether the request was refused as it is, as opposed to a failure.
    pub(super) fn is_refusal(&self) -> bool {
        self.status.is_client_error()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn is_marked(&self) -> bool {
        let marks = ["idempotent-replayed", "idempotency-replayed", "x-idempotent-replayed"];
        marks.iter().any(|name| self.header(name).is_some_and(|value| value != "false"))
    }

    pub(super) fn is_problem(&self) -> bool {
        let kind = self.header(header::CONTENT_TYPE.as_str()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let document = serde_json::from_slice::<serde_json::Value>(&self.body);
        let says = |document: serde_json::Value| {
            ["type", "title", "detail"].iter().any(|member| document[member].is_string())
        };
        kind.eq_ignore_ascii_case("application/problem+json") && document.is_ok_and(says)
    }

    /// Whether the server says that it does not know what became of the request, as a problem or as Stripe writes
    /// errors.
    pub(super) fn is_unknown(&self) -> bool {
        const CODE: &str = "outcome-unknown";
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let error = &document["error"];
        let is_stripe =
            ["idempotency_error", "api_error"].iter().any(|kind| error["type"] == *kind);
        self.is_problem() && document["code"] == CODE || is_stripe && error["code"] == CODE
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.status == other.status || self.is_success() && other.is_success())
            && self.body == other.body
            && self.headers.get(header::LOCATION) == other.headers.get(header::LOCATION)
    }

    /// Whether it says that it is a replay, in a way that says something: the first does not.
    pub(super) fn is_marked_after(&self, first: &Self) -> bool {
        self.is_marked() && !first.is_marked()
    }

    pub(super) fn lost_in(&self, replay: &Self) -> Vec<HeaderName> {
        let values = |answer: &Self, name: &HeaderName| -> Vec<Vec<u8>> {
            answer.headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
        };
        let names = self.headers.keys().filter(|name| !is_passing(name));
        names.filter(|name| values(self, name) != values(replay, name)).cloned().collect()
    }

    pub(super) fn repeated(&self) -> Vec<HeaderName> {
        let names = self.headers.keys().filter(|name| !is_passing(name));
        names.filter(|name| self.headers.get_all(*name).iter().count() > 1).cloned().collect()
    }

    pub(super) fn shown(&self) -> String {
        const MOST: usize = 120;
        let text = String::from_utf8_lossy(&self.body);
        let line: String = text
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(MOST)
            .collect();
        match line.trim() {
            "" => self.status.as_u16().to_string(),
            line => format!("{} {line}", self.status.as_u16()),
        }
    }
}

fn is_passing(name: &HeaderName) -> bool {
    let name = name.as_str();
    PASSING.contains(&name)
        || name.ends_with("request-id")
        || name.ends_with("correlation-id")
        || name.contains("ratelimit")
        || name.starts_with("access-control-")
        || name.starts_with("idempoten")
        || name.starts_with("x-idempoten")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(lines: &[(&'static str, &'static str)]) -> Answer {
        let lines = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let mut headers = HeaderMap::new();
        lines.for_each(|(name, value)| {
            headers.append(name, value);
        });
        let (status, body, took) = (StatusCode::OK, Bytes::new(), Duration::ZERO);
        Answer { status, headers, body, took }
    }

    #[test]
    fn what_is_about_the_message_may_differ() {
        let first = answer(&[("date", "1"), ("x-request-id", "a"), ("x-ratelimit-left", "3")]);
        assert!(first.lost_in(&answer(&[])).is_empty());
    }

    #[test]
    fn a_value_that_is_gone_is_missed_also_if_another_stays() {
        let first = answer(&[("link", "a"), ("link", "b"), ("x-kept", "1")]);
        let replay = answer(&[("link", "b"), ("x-kept", "1"), ("x-more", "2")]);
        assert_eq!(first.lost_in(&replay), ["link"]);
        assert_eq!(first.repeated(), ["link"]);
    }

    #[test]
    fn a_problem_is_said_by_type_and_body() {
        let mut said = answer(&[("content-type", "application/problem+json; charset=utf-8")]);
        assert!(!said.is_problem());
        said.body = Bytes::from_static(br#"{"type": "about:blank", "status": 422}"#);
        assert!(said.is_problem());
    }

    #[test]
    fn an_unknown_outcome_is_read_in_both_shapes_of_errors() {
        for (kind, body, is_unknown) in [
            ("application/problem+json", r#"{"title": "t", "code": "outcome-unknown"}"#, true),
            ("application/problem+json", r#"{"title": "t", "code": "in-progress"}"#, false),
            ("application/json", r#"{"title": "t", "code": "outcome-unknown"}"#, false),
            (
                "application/json",
                r#"{"error": {"type": "idempotency_error", "code": "outcome-unknown"}}"#,
                true,
            ),
            (
                "application/json",
                r#"{"error": {"type": "api_error", "code": "outcome-unknown"}}"#,
                true,
            ),
            (
                "application/json",
                r#"{"error": {"type": "idempotency_error", "code": "idempotency_key_in_use"}}"#,
                false,
            ),
            ("application/json", r#"{"error": {"code": "outcome-unknown"}}"#, false),
            ("application/json", "outcome-unknown", false),
        ] {
            let mut said = answer(&[("content-type", kind)]);
            said.body = Bytes::from_static(body.as_bytes());
            assert_eq!(said.is_unknown(), is_unknown, "{body}");
        }
    }
}
