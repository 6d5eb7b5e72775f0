//! What an answer, or its lack, means for a message.
//!
//! The question is of whom it speaks. A 422 speaks of the message: another attempt gets the same, and the
//! message becomes a dead letter. A 401, a 404 or a redirect speaks of the URL and the credentials, which an
//! operator mends: the message waits, and when everything is answered so, the breaker stops the sink.

use std::{error::Error, sync::LazyLock};

use http::StatusCode;
use onceward_core::{
    message::Sent,
    retry::{Class, Rules},
};

pub(super) use crate::client::Head;
use crate::client::failure;

/// No status has a meaning of its own here.
static RULES: LazyLock<Rules> = LazyLock::new(Rules::patient);

/// What an answer means; `body` is all of it, if it was asked for and came.
pub(super) fn meaning(status: StatusCode, head: &Head, body: Option<&[u8]>) -> Sent {
    let observation = head.observation(body, &RULES);
    let code = body.and_then(|body| head.code(body));
    let why = match &code {
        Some(code) => format!("{status}: {code}"),
        None => status.to_string(),
    };
    let later = |why| Sent::Retry { after: head.hint, why };
    match (status.as_u16(), observation.class) {
        // Our 202: it runs, and may still fail. What another attempt gets is how it ended.
        (202, Class::Accepted) => later(format!("{why}: it is carried out, and has not ended")),
        (200..300, _) => Sent::Accepted,
        (410, class) if class != Class::Bound => Sent::Gone { why },
        (_, Class::Bound) => Sent::Refused {
            why: format!("{why}; it is stored under the message's id, for every attempt"),
        },
        (_, class) if class.is_failure() && observation.last => {
            Sent::Refused { why: format!("{why}; the server says that it must not be sent again") }
        }
        // It is there, and busy with this very message or in doubt about it.
        (_, Class::InProgress | Class::Unknown) => Sent::Failed { why },
        (500, _) => Sent::Failed { why },
        (
            300..=399 | 401 | 403 | 404 | 405 | 407 | 408 | 421 | 423 | 425 | 426 | 429 | 500..,
            _,
        ) => later(why),
        _ => Sent::Refused { why },
    }
}

/// What a failure without an answer means; `Err`: nothing was sent, on a connection that was idle for too long.
pub(super) fn of_failure(error: &(dyn Error + 'static)) -> Result<Sent, Class> {
    let why = failure::text(error);
    match failure::class(error) {
        class @ Class::NeverSent { reused: true } => Err(class),
        Class::NeverSent { reused: false } => Ok(Sent::SinkDown { after: None, why }),
        _ => Ok(Sent::Unknown { why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, Uri};
    use std::time::Duration;

    fn said(status: u16, lines: &[(&'static str, &'static str)], body: &str) -> Sent {
        let lines = lines.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        let mut headers = HeaderMap::from_iter(lines);
        headers.entry("content-type").or_insert(HeaderValue::from_static("application/json"));
        let (status, url) = (StatusCode::from_u16(status).unwrap(), Uri::from_static("http://a/b"));
        let head = Head::read(status, &headers, &url);
        meaning(status, &head, head.asks_for_body().then_some(body.as_bytes()))
    }

    fn word(sent: &Sent) -> &'static str {
        match sent {
            Sent::Accepted => "accepted",
            Sent::Refused { .. } => "refused",
            Sent::Failed { .. } => "failed",
            Sent::Retry { .. } => "retry",
            Sent::Unknown { .. } => "unknown",
            Sent::Gone { .. } => "gone",
            Sent::SinkDown { .. } => "down",
        }
    }

    #[test]
    fn every_status_has_the_meaning_of_the_table() {
        for status in 200..600 {
            let expected = match status {
                200..300 => "accepted",
                410 => "gone",
                500 => "failed",
                300..=399
                | 401
                | 403
                | 404
                | 405
                | 407
                | 408
                | 421
                | 423
                | 425
                | 426
                | 429
                | 501.. => "retry",
                _ => "refused",
            };
            assert_eq!(word(&said(status, &[], "{}")), expected, "{status}");
        }
    }

    #[test]
    fn our_own_codes_are_understood() {
        for (status, code, expected) in [
            (409, "in-progress", "failed"),
            (409, "lease-lost", "failed"),
            (409, "outcome-unknown", "failed"),
            (504, "outcome-unknown", "failed"),
            (503, "outcome-unknown", "retry"),
            (503, "store-unavailable", "retry"),
            (502, "upstream-failed", "retry"),
            (422, "key-reused", "refused"),
            (409, "result-unavailable", "refused"),
            (409, "sold-out", "refused"),
        ] {
            let body = format!("{{\"code\":\"{code}\",\"type\":\"urn:onceward:problem:{code}\"}}");
            assert_eq!(word(&said(status, &[], &body)), expected, "{status} {code}");
        }
        let Sent::Failed { why } = said(409, &[], "{\"code\":\"in-progress\"}") else { panic!() };
        assert_eq!(why, "409 Conflict: in-progress");
    }

    #[test]
    fn what_is_stored_under_the_id_is_the_answer_for_good() {
        let replayed = ("idempotent-replayed", "true");
        for status in [400, 404, 410, 422, 500, 503] {
            assert_eq!(word(&said(status, &[replayed], "{}")), "refused", "{status}");
        }
        assert_eq!(word(&said(201, &[replayed], "{}")), "accepted");
        let running = [("onceward-operation", "o"), ("location", "/operations/o")];
        assert_eq!(word(&said(202, &running, "{}")), "retry", "it may still fail");
        assert_eq!(word(&said(202, &[], "{}")), "accepted", "another server's own business");
    }

    #[test]
    fn a_hint_is_kept_and_a_prohibition_too() {
        let after = Some(Duration::from_secs(30));
        let retry = said(503, &[("retry-after", "30")], "{}");
        assert!(matches!(retry, Sent::Retry { after: hint, .. } if hint == after), "{retry:?}");
        let problem = "{\"code\":\"upstream-failed\",\"type\":\"urn:onceward:problem:upstream-failed\",\"retryable\":false}";
        assert_eq!(word(&said(502, &[], problem)), "refused");
        assert_eq!(word(&said(500, &[("stripe-should-retry", "false")], "{}")), "refused");
    }
}
