//! A 202 of ours: its status URL is asked until the operation has ended.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use onceward_core::retry::{Action, Class, Observation};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    BoxError, Event, Retry,
    adapters::exchange::{Exchange, Sent},
    driver::Attempts,
    key,
    run::Run,
};
use crate::http::{Body, Read, hint, read};

/// No status document is longer.
const MAX_READ: usize = 64 << 10;

/// Asks until the decision is something else than to ask again.
pub(super) async fn until_ended<X: Exchange>(
    run: &mut Run<'_, X>,
    attempts: &mut Attempts<'_, Retry>,
    status: Uri,
    mut wait: Duration,
) -> Action {
    loop {
        run.retry.tell(Event::Following { wait });
        tokio::time::sleep(wait).await;
        attempts.tick();
        let time = attempts.remaining().min(attempts.rules().attempt_timeout());
        let request = question(&run.parts.headers, &status);
        let asked = timeout(time, ask(run.exchange, request)).await;
        // No answer is no news.
        let observation = asked.ok().and_then(Result::ok).unwrap_or(Class::Pending.into());
        attempts.tick();
        run.report.polls += 1;
        match attempts.learn(observation) {
            Action::Poll { wait: next } => wait = next,
            action => return action,
        }
    }
}

async fn ask<X: Exchange>(
    exchange: &mut X,
    request: Request<Body>,
) -> Result<Observation, BoxError> {
    let response = exchange.send(request, Sent::default()).await?;
    let (parts, body) = response.into_parts();
    let hint = hint(&parts.headers);
    let class = match parts.status {
        StatusCode::OK => {
            match read(body, |length| length <= MAX_READ).await.map_err(Into::into)? {
                Read::Whole(bytes, _) => class(&bytes),
                Read::More(..) => Class::Pending,
            }
        }
        // Nothing is remembered of it any more: its key says what comes next.
        StatusCode::NOT_FOUND | StatusCode::GONE => Class::Ended,
        _ => Class::Pending,
    };
    Ok(Observation { hint, ..class.into() })
}

/// What a status document says.
fn class(document: &[u8]) -> Class {
    let document: Value = serde_json::from_slice(document).unwrap_or_default();
    match document.get("state").and_then(Value::as_str) {
        // Also where the clock is suspect it has ended: its key is answered as soon as that is settled.
        Some(
            "succeeded" | "failed_final" | "failed_retryable" | "interrupted" | "released"
            | "clock_suspect",
        ) => Class::Ended,
        Some("unknown") => Class::Unknown,
        _ => Class::Pending,
    }
}

/// The same caller asks, without what belongs to the write.
fn question(headers: &HeaderMap, status: &Uri) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = status.clone();
    let own = |name: &str| {
        !name.starts_with("content-")
            && !name.starts_with("if-")
            && !name.starts_with("onceward-")
            && !["expect", "prefer", "te", "trailer", "transfer-encoding"].contains(&name)
            && name != key::KEY.as_str()
    };
    for (name, line) in headers.iter().filter(|(name, _)| own(name.as_str())) {
        request.headers_mut().append(name, line.clone());
    }
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    request
}

/// Where an answer to `of` points to, if that is at the same target: credentials go nowhere else.
pub(super) fn location(headers: &HeaderMap, of: &Uri) -> Option<Uri> {
    let text = headers.get(header::LOCATION)?.to_str().ok()?;
    if text.starts_with("//") {
        return None;
    }
    let is_absolute = text.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
    if is_absolute {
        let uri: Uri = text.parse().ok()?;
        let same = uri.scheme() == of.scheme() && uri.authority() == of.authority();
        return same.then_some(uri);
    }
    let path = match text.starts_with('/') {
        true => text.to_owned(),
        false => format!("{}/{text}", of.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    let mut parts = of.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_followed_at_the_same_target_only() {
        let of: Uri = "http://shop.example:81/v1/charges?x=1".parse().unwrap();
        let to = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(text))]);
            location(&headers, &of).map(|uri| uri.to_string())
        };
        let there = Some("http://shop.example:81/o/7?a=b".to_owned());
        assert_eq!(to("/o/7?a=b"), there);
        assert_eq!(to("http://shop.example:81/o/7?a=b"), there);
        assert_eq!(to("o/7"), Some("http://shop.example:81/v1/o/7".to_owned()));
        for elsewhere in [
            "//evil.example/o",
            "http://evil.example:81/o",
            "https://shop.example:81/o",
            "http://shop.example/o",
            "javascript:x",
            ":",
            "http://",
        ] {
            assert_eq!(to(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn every_state_has_its_class() {
        for (state, expected) in [
            ("in_progress", Class::Pending),
            ("succeeded", Class::Ended),
            ("failed_final", Class::Ended),
            ("failed_retryable", Class::Ended),
            ("interrupted", Class::Ended),
            ("released", Class::Ended),
            ("clock_suspect", Class::Ended),
            ("unknown", Class::Unknown),
            ("something new", Class::Pending),
        ] {
            assert_eq!(class(format!("{{\"state\":\"{state}\"}}").as_bytes()), expected, "{state}");
        }
        assert_eq!(class(b"<html>"), Class::Pending);
    }
}
