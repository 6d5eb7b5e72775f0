//! Step 7: send what was stored. Rules 9, 16 and 17 of the contract.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};
use onceward_core::{Digest, Meaning, Timestamp};
use tokio::time::timeout;

use super::{
    capture,
    execute::Running,
    recall::{Recalled, RecalledBody},
};
use crate::{
    http::ByteBody,
    server::{
        Body, Code, Idempotency, Problem, body, headers, memory,
        options::checked::Options,
        prefer::{AfterWait, Patience},
    },
    telemetry::{Answered, event},
};

/// A refusal before anything was claimed. It frees the key of a layer around this one, if any.
pub(crate) fn refused(options: &Options, problem: Problem) -> Response<Body> {
    let mut response = problem.errors(options.errors).into_response();
    response.extensions_mut().insert(Meaning::Released);
    response
}

/// A refusal of an operation; if its outcome is unknown, with the URL of its status.
pub(crate) fn problem(idempotency: &Idempotency, id: Digest, problem: Problem) -> Response<Body> {
    let problem = match problem.code() {
        Code::OutcomeUnknown => problem.location(Some(status_url(idempotency, id))),
        _ => problem,
    };
    problem.of(id).errors(idempotency.options().errors).into_response()
}

/// The answer of the execution that this request started, or 202 if it would rather not wait.
pub(crate) async fn first(
    idempotency: &Idempotency,
    id: Digest,
    running: Running,
    patience: Patience,
) -> Result<(Answered, Response<Body>), Problem> {
    let answer = match patience.after {
        AfterWait::Conflict | AfterWait::Accepted => running.await,
        AfterWait::Async => match timeout(patience.wait, running).await {
            Ok(answer) => answer,
            Err(_) => return Ok((Answered::Accepted, accepted(idempotency, id, patience))),
        },
    };
    let answer = answer.unwrap_or_else(|_| Err(shutting_down()));
    Ok((Answered::First, answer?))
}

/// The runtime dropped the execution.
pub(crate) fn shutting_down() -> Problem {
    let text = "this process is shutting down, so that it is not known yet whether it happened; ask with the \
                same key, never with a new one";
    Problem::new(Code::OutcomeUnknown, text).status(StatusCode::GATEWAY_TIMEOUT)
}

/// The stored answer, if this caller may see it.
pub(crate) async fn replay(
    idempotency: &Idempotency,
    id: Digest,
    parts: &Parts,
    answer: &Recalled,
) -> Result<Response<Body>, Problem> {
    if let Some(authorize) = &idempotency.options().chosen.authorize {
        let said = in_time(authorize(parts)).await.unwrap_or_else(|| Err(String::new()));
        said.map_err(|reason| replay_forbidden(&reason))?;
    }
    let mut response = recalled(idempotency, id, answer).await?;
    response.headers_mut().insert(headers::REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

fn replay_forbidden(reason: &str) -> Problem {
    let text = "you may not see the answer of this operation any more";
    match reason {
        "" => Problem::new(Code::ReplayForbidden, text),
        reason => Problem::new(Code::ReplayForbidden, format!("{text}: {reason}")),
    }
}

/// What a hook of a replay answers; `None`: it took too long.
async fn in_time<T>(asked: impl Future<Output = T>) -> Option<T> {
    let answer = timeout(Idempotency::MAX_ASKING, asked).await.ok();
    if answer.is_none() {
        tracing::warn!(
            "a hook did not answer within {:?}, and its replay was refused",
            Idempotency::MAX_ASKING
        );
    }
    answer
}

/// A stored answer, verbatim; it says so if something was hidden in it.
pub(crate) async fn recalled(
    idempotency: &Idempotency,
    id: Digest,
    answer: &Recalled,
) -> Result<Response<Body>, Problem> {
    let mut headers = answer.headers.clone();
    let unavailable = |headers: &HeaderMap| unavailable(answer.status, headers);
    let body = match &answer.body {
        RecalledBody::Bytes { bytes, trailers } => {
            let declared = body::declared_length(&headers);
            // A wrong length, as a resolver may have given it, would mix up a connection.
            if declared != Some(bytes.len() as u64) && !capture::has_no_body(answer.status) {
                headers.remove(header::CONTENT_LENGTH);
            }
            Body::whole(bytes.clone(), trailers.clone())
        }
        RecalledBody::Resource(resource) => {
            let rebuilt = match &idempotency.options().chosen.rebuild {
                Some(rebuild) => in_time(rebuild(resource.clone())).await.unwrap_or(Ok(None)),
                None => Ok(None),
            };
            match rebuilt {
                Ok(Some(rebuilt)) => {
                    let bytes = rebuilt_content(&mut headers, rebuilt);
                    answer.memory.hold(bytes).ok_or_else(memory::full)?.into()
                }
                Ok(None) => return Err(unavailable(&headers)),
                Err(error) => {
                    tracing::warn!(event = event::ANSWER_NOT_READ, %error, "an answer could not be rebuilt");
                    return Err(unavailable(&headers));
                }
            }
        }
        RecalledBody::Unavailable => return Err(unavailable(&headers)),
    };
    stamp(&mut headers, id, Some((answer.completed_at, answer.expires_at)));
    if answer.is_redacted {
        headers.insert(headers::REDACTED, HeaderValue::from_static("true"));
    }
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// The content headers of what was rebuilt replace the stored ones; its status does not.
fn rebuilt_content(headers: &mut HeaderMap, rebuilt: Response<Bytes>) -> Bytes {
    let (head, bytes) = rebuilt.into_parts();
    let is_content =
        |name: &HeaderName| name.as_str().starts_with("content-") || name.as_str() == "repr-digest";
    let stored: Vec<_> = headers.keys().filter(|name| is_content(name)).cloned().collect();
    for name in stored {
        headers.remove(name);
    }
    let is_kept = |name: &HeaderName| is_content(name) && name != header::CONTENT_LENGTH;
    for name in head.headers.keys().filter(|name| is_kept(name)) {
        for value in head.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    bytes
}

/// 202: the operation runs, and its status URL shows what becomes of it.
pub(crate) fn accepted(
    idempotency: &Idempotency,
    id: Digest,
    patience: Patience,
) -> Response<Body> {
    let url = status_url(idempotency, id);
    let document = serde_json::json!({
        "operation": id.to_string(),
        "state": "in_progress",
        "detail": "the operation is running; ask at the status URL, then send the same request with the same key",
    });
    let mut response = json(StatusCode::ACCEPTED, &document);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, whole_seconds(Duration::from_secs(1)));
    if patience.is_preferred {
        headers.insert(headers::PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    headers.insert(header::LOCATION, url);
    name_operation(headers, id);
    response
}

/// The answer of a request that ran while the store was down. A refusal in it names the operation.
pub(crate) fn unprotected(
    idempotency: &Idempotency,
    id: Digest,
    response: Response<impl ByteBody>,
) -> Response<Body> {
    let mut response = match response.extensions().get::<Problem>() {
        Some(refusal) => problem(idempotency, id, refusal.clone()),
        None => {
            let mut response = response.map(Body::new);
            headers::strip_own(response.headers_mut());
            response
        }
    };
    let reason = HeaderValue::from_static("store-unavailable");
    response.headers_mut().insert(headers::UNPROTECTED, reason);
    name_operation(response.headers_mut(), id);
    response
}

/// What every keyed answer carries; `ended`: when it was completed, and until when it is kept.
pub(crate) fn stamp(
    headers: &mut HeaderMap,
    id: Digest,
    ended: Option<(Timestamp, Option<Timestamp>)>,
) {
    name_operation(headers, id);
    if let Some((completed_at, expires_at)) = ended {
        insert_date(headers, headers::COMPLETED, Some(completed_at));
        insert_date(headers, headers::EXPIRES, expires_at);
    }
}

pub(crate) fn name_operation(headers: &mut HeaderMap, id: Digest) {
    headers.insert(headers::OPERATION, text(&id.to_string()));
}

/// Where the operation can be asked for.
pub(crate) fn status_url(idempotency: &Idempotency, id: Digest) -> HeaderValue {
    text(&format!("{}/operations/{id}", idempotency.options().chosen.status_path))
}

/// Rounded up, and at least one: no client shall come back too early.
pub(crate) fn whole_seconds(pause: Duration) -> HeaderValue {
    let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// A document that no cache keeps, with an end of line for people who read it in a terminal.
pub(crate) fn json(status: StatusCode, document: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{document}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn insert_date(headers: &mut HeaderMap, name: HeaderName, time: Option<Timestamp>) {
    let time = time.and_then(|time| jiff::Timestamp::from_microsecond(time.unix_micros()).ok());
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    if let Some(date) = time.and_then(|time| printer.timestamp_to_rfc9110_string(&time).ok()) {
        headers.insert(name, text(&date));
    }
}

fn text(ascii: &str) -> HeaderValue {
    HeaderValue::from_str(ascii).expect("dates, references and checked paths are visible ASCII")
}

fn unavailable(status: StatusCode, headers: &HeaderMap) -> Problem {
    let text = format!(
        "the operation ended with status {}, but its answer could not be kept; it will not run again: \
         look the result up instead",
        status.as_u16()
    );
    Problem::new(Code::ResultUnavailable, text).location(headers.get(header::LOCATION).cloned())
}
