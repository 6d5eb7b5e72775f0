//! One attempt: sent, given its time, and understood.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode, Uri, header};
use onceward_core::retry::{Answer, Class, Moment, Seen};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    AnswerBody, Attempt, BoxError, Retry,
    body::read_up_to,
    exchange::Sent,
    failure::{self, CutShort, TimedOut},
    follow, retry_after,
    target::Flight,
};
use crate::telemetry;

/// Up to this length the body of an answer is read for what it says about trying again.
const MAX_READ: usize = 64 << 10;

const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const OPERATION: HeaderName = HeaderName::from_static("onceward-operation");
const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const UNPROTECTED: HeaderName = HeaderName::from_static("onceward-unprotected");

/// What the `type` of our problem documents begins with.
const PROBLEM: &str = "urn:onceward:problem:";

/// How an attempt has ended.
pub(super) struct Ended<B> {
    pub(super) reply: Result<Response<AnswerBody<B>>, BoxError>,
    pub(super) seen: Seen,
    pub(super) attempt: Attempt,
    /// When it ended.
    pub(super) at: Moment,
}

/// Sends one request and waits for its answer, no longer than its time.
pub(super) async fn one<B>(
    answer: impl Future<Output = Result<Response<B>, BoxError>> + Send,
    sent: Sent,
    about: About,
) -> Ended<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send,
{
    let About { number, hedge, started, begun, timeout: time, flight, retry, uri } = about;
    let understood = async { understand(answer.await?, &uri, &retry, flight).await };
    let reply = match timeout(time, understood).await {
        Ok(reply) => reply,
        Err(_) => {
            let late = TimedOut { after: time, unsent: !sent.is_raised() };
            if !late.unsent {
                telemetry::CLIENT_LATE.add(());
            }
            Err(late.into())
        }
    };
    let (reply, seen) = match reply {
        Ok((response, seen)) => (Ok(response), seen),
        Err(error) => {
            let known = retry.options().classify.as_ref().and_then(|known| known(&*error));
            let class = known.unwrap_or_else(|| failure::class(&*error));
            (Err(error), class.into())
        }
    };
    let at = retry.now();
    let attempt = Attempt {
        number,
        hedge,
        started,
        took: at.saturating_sub(begun),
        class: seen.class,
        status: reply.as_ref().ok().map(Response::status),
        failure: reply.as_ref().err().map(|error| failure::text(&**error)),
        hint: seen.hint,
        wait: None,
    };
    Ended { reply, seen, attempt, at }
}

/// What is known of an attempt before it is sent.
pub(super) struct About {
    pub(super) number: u32,
    pub(super) hedge: bool,
    pub(super) started: Duration,
    pub(super) begun: Moment,
    pub(super) timeout: Duration,
    pub(super) flight: Flight,
    pub(super) retry: Retry,
    pub(super) uri: Uri,
}

/// What an answer says; its body is read only where that says more.
async fn understand<B>(
    response: Response<B>,
    uri: &Uri,
    retry: &Retry,
    flight: Flight,
) -> Result<(Response<AnswerBody<B>>, Seen), BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (parts, body) = response.into_parts();
    let headers = &parts.headers;
    let ours = parts.status == StatusCode::ACCEPTED
        && headers.contains_key(OPERATION)
        && follow::location(headers, uri).is_some();
    let telling = ours || (matches!(parts.status.as_u16(), 409 | 500..=504) && is_json(headers));
    let whole = retry.options().whole_answers;
    let body = if let Some(most) = whole.or_else(|| telling.then_some(MAX_READ)) {
        let read = read_up_to(Box::pin(body), most).await;
        AnswerBody::read(read.map_err(|error| CutShort(error.into()))?, flight)
    } else {
        AnswerBody::streamed(body, flight)
    };
    let hint = retry_after::hint(headers);
    let problem = body.whole().filter(|_| telling && !ours).map(Said::read).unwrap_or_default();
    let code = problem.code.as_deref();
    let is_nameless = !problem.names_operation && !headers.contains_key(OPERATION);
    let answer = Answer {
        status: parts.status.as_u16(),
        code,
        hinted: hint.is_some(),
        bound: headers.contains_key(REPLAYED) || headers.contains_key(EXPIRES),
        ours,
        retryable: problem.retryable,
        // A gateway of ours names the operation whenever it keeps the key.
        unprotected: headers.contains_key(UNPROTECTED)
            || (problem.is_ours && is_nameless && code == Some("upstream-failed")),
        unknown: headers.get(OUTCOME).is_some_and(|outcome| outcome == "unknown"),
    };
    let seen = retry.rules().seen(&answer, hint);
    Ok((Response::from_parts(parts, body), seen))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/problem+json")
        || kind.eq_ignore_ascii_case("application/json")
}

/// What a problem document says.
#[derive(Default)]
struct Said {
    code: Option<String>,
    is_ours: bool,
    /// Only of ours: what others mean by it is not known.
    retryable: Option<bool>,
    names_operation: bool,
}

impl Said {
    fn read(body: &[u8]) -> Self {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
            return Self::default();
        };
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

/// Whether the answer to one of two requests may be taken for the answer of the call.
///
/// The other one may have been carried out already, so an answer that this alone could explain
/// (a 404 to the second DELETE, a 412, a busy key) is not taken while the other one runs.
pub(super) fn is_acceptable(class: Class, safe: bool) -> bool {
    match class {
        Class::Success | Class::Accepted | Class::Bound => true,
        Class::Final => safe,
        _ => false,
    }
}
