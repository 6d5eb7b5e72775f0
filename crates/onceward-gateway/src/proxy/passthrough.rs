//! A request without a key: passed on, and its answer back, both as they come.

use std::time::Duration;

use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts,
};
use onceward::{
    Body, retry,
    server::{Code, Problem},
    telemetry::{RejectReason, event},
};

use super::{
    Routes, headers,
    hints::RequestHints,
    key,
    timed::{Floor, Timed},
    upgrade,
    upstream::{
        SendFailure,
        classify::RetrySafety,
        counted_body::counted,
        deliver::{self, Delivered, Undelivered, UpstreamPolicy},
        refusal::{RETRY_AFTER, refusal},
        replayable::ReplayableRequest,
    },
};
use crate::{
    config::{Fallback, Route},
    observe::metrics,
};

const SWITCHED: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

const FALLBACK: HeaderName = HeaderName::from_static("onceward-fallback");

/// How long a body that is passed on may pause.
const ANSWER_BODY_TIMEOUT: Duration = Duration::from_secs(60);

impl Routes {
    pub(super) async fn pass(
        &self,
        policy: &UpstreamPolicy,
        request: Request<Body>,
        hints: &RequestHints,
        floor: &Floor,
    ) -> Response<Body> {
        metrics::PASSED.add(());
        let memory = self.root.memory_of(deliver::origin(request.extensions()).address);
        let response = match ReplayableRequest::passing(request, policy.may_repeat(), &memory).await
        {
            Ok(replayable) => pass(policy, replayable, hints).await,
            Err(unread) => unread.into_problem().errors(policy.errors).into_response(),
        };
        floor.lift();
        response
    }
}

/// Passes a request on that has no key, and its answer back, both as they come.
pub(super) async fn pass(
    policy: &UpstreamPolicy,
    replayable: ReplayableRequest,
    hints: &RequestHints,
) -> Response<Body> {
    let method = retry::Method::of(replayable.method().as_str());
    let safety = RetrySafety::Unkeyed(method);
    let upgrade = replayable.upgrade();
    let delivered = policy.deliver(replayable, &safety, hints).await;
    if let Some(fallback) = policy.fallback.as_ref().filter(|_| calls_for_fallback(&delivered)) {
        return instead(fallback);
    }
    let Delivered { response, in_flight, answer, .. } = match delivered {
        Ok(delivered) => delivered,
        Err(undelivered) => {
            let problem = match undelivered {
                Undelivered::Rejected(reason, hint) => refusal(reason, hint),
                Undelivered::Failed(failure) | Undelivered::InDoubt(failure, _) => {
                    unanswered(&failure, method)
                }
                Undelivered::Late(..) => unanswered(&SendFailure::TimedOut(None), method),
            };
            let mut response = problem.clone().errors(policy.errors).into_response();
            // While the store is down, the layer writes it, and names the operation in it.
            response.extensions_mut().insert(problem);
            return response;
        }
    };
    let in_flight = in_flight.filter(|_| policy.is_limited);
    let wanted = upgrade.as_ref().and_then(|_| upgrade::wanted(&response));
    if let Some(upgrade) = upgrade.filter(|_| response.status() == SWITCHED) {
        return upgrade.switched(response, answer, in_flight);
    }
    let in_flight = in_flight.map(|in_flight| (in_flight, None));
    let mut response =
        response.map(|body| counted(Timed::pieces(body, ANSWER_BODY_TIMEOUT), answer, in_flight));
    headers::strip_of_upstream(response.headers_mut());
    if let Some(protocols) = wanted {
        upgrade::tell(response.headers_mut(), protocols);
    }
    response
}

/// Whether there is no good answer, and the client still waits for one.
fn calls_for_fallback(delivered: &Result<Delivered, Undelivered>) -> bool {
    match delivered {
        Ok(delivered) => delivered.class.is_failure(),
        Err(Undelivered::Rejected(
            RejectReason::Deadline | RejectReason::RetryShare | RejectReason::Share,
            _,
        )) => false,
        Err(Undelivered::Failed(SendFailure::BrokenOff(_))) => false,
        Err(_) => true,
    }
}

/// What the route says instead of the upstream.
fn instead(fallback: &Fallback) -> Response<Body> {
    metrics::FALLBACKS.add(());
    let mut response = Response::new(Body::from(fallback.body.clone()));
    *response.status_mut() = fallback.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, fallback.content_type.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(FALLBACK, HeaderValue::from_static("true"));
    response
}

/// The answer to a request without a record. Without a key the upstream recognises no repeat: where it may
/// have done it, only a repeatable method makes another attempt harmless.
pub(super) fn unanswered(failure: &SendFailure, method: retry::Method) -> Problem {
    tracing::warn!(event = event::UPSTREAM_FAILED, %failure, "a request without a key has no answer");
    let problem = match failure {
        SendFailure::NotSent(..) => {
            let text = "the service behind this gateway cannot be reached, and nothing was sent to it; \
                        try again";
            return Problem::new(Code::UpstreamUnreachable, text).retry_after(RETRY_AFTER);
        }
        SendFailure::BrokenOff(_) => {
            let text = "your request broke off while it was sent on, and the service behind this \
                        gateway may have seen a part of it";
            return Problem::new(Code::RequestMalformed, text).not_retryable();
        }
        SendFailure::MaybeSent(_) => Problem::new(Code::UpstreamFailed, no_answer(method)),
        SendFailure::TimedOut(_) => Problem::new(Code::UpstreamFailed, no_answer(method))
            .status(StatusCode::GATEWAY_TIMEOUT),
    };
    match method {
        retry::Method::Safe | retry::Method::Idempotent => problem,
        retry::Method::Other => problem.not_retryable(),
    }
}

fn no_answer(method: retry::Method) -> &'static str {
    match method {
        retry::Method::Safe | retry::Method::Idempotent => {
            "the service behind this gateway gave no complete answer in time; the method allows to \
             send the same request again"
        }
        retry::Method::Other => {
            "the service behind this gateway gave no complete answer in time and may have carried the \
             request out; the gateway has no record of it, so that a repeat may double it: find out \
             first, and send a key with the next one"
        }
    }
}

/// Whether its client believes that it may be repeated.
pub(super) fn is_keyed_write(routes: &[Route], parts: &Parts) -> bool {
    let writes = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    writes.contains(&parts.method) && key::is_meant(routes, &parts.headers)
}

pub(super) fn route_missing() -> Problem {
    let text = "no route takes keys for this method and path, and nothing was run; check the path, also \
                its case and the slash at its end, or leave the key out";
    Problem::new(Code::RouteMissing, text)
}
