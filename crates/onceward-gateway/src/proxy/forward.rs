//! One request to the upstream and its answer back: what a route's layer runs, once.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use onceward::{
    BoxFuture, Cause, Meaning, Policy, Reply,
    retry::{self, Class},
    server::{
        Body, BoxError, Claim, Code, CompleteWithin, InDoubt, NoAnswer, NotKept, Problem, Resource,
    },
    telemetry::{self, RejectReason, event},
};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::{
    answers::Answer,
    classify::RetrySafety,
    deliver::{Delivered, Undelivered, UpstreamPolicy},
    headers::{self, Outcome},
    hints::{ATTEMPT, RequestHints},
    replayable::ReplayableRequest,
    state::InFlight,
    timed::Timed,
    upstream::SendFailure,
};
use crate::config::Fallback;

const EXECUTION: HeaderName = HeaderName::from_static("onceward-execution");
const KEY: HeaderName = HeaderName::from_static("onceward-key");
const FALLBACK: HeaderName = HeaderName::from_static("onceward-fallback");
const RESOURCE: HeaderName = HeaderName::from_static("onceward-resource");

/// When it makes sense to come back, and over which time those who do are spread.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_SPREAD: Duration = Duration::from_secs(2);

/// How long a body that is passed on may pause.
const ANSWER_BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends keyed requests of one route to the upstream.
#[derive(Clone)]
pub(crate) struct Forward {
    policy: Arc<UpstreamPolicy>,
    /// What the upstream's answers mean.
    meanings: Arc<Policy>,
}

impl Forward {
    pub(super) fn new(policy: Arc<UpstreamPolicy>, meanings: Policy) -> Self {
        Self { policy, meanings: Arc::new(meanings) }
    }

    async fn run(self, mut request: Request<Body>) -> Result<Response<Body>, SendFailure> {
        let policy = &*self.policy;
        let hints =
            request.extensions().get::<RequestHints>().copied().unwrap_or(RequestHints::NONE);
        let claim = request.extensions().get::<Claim>().cloned();
        if let Some(claim) = &claim {
            prepare(request.headers_mut(), claim);
        }
        let begun = Instant::now();
        let replayable = ReplayableRequest::held(request, policy.may_repeat()).await;
        let replayable = replayable.map_err(|error| SendFailure::BrokenOff(error.to_string()))?;
        let Some(claim) = claim else { return Ok(pass(policy, replayable, &hints).await) };
        let safety = RetrySafety::keyed(&claim, &self.meanings, policy.timeout);
        let delivered = match policy.deliver(replayable, &safety, &hints).await {
            Ok(delivered) => delivered,
            Err(Undelivered::Rejected(reason, hint)) => {
                return Ok(released(refusal(reason, hint)));
            }
            Err(Undelivered::Failed(SendFailure::NotSent(_, reason))) => {
                return Ok(not_sent(&reason));
            }
            Err(Undelivered::Late(pending, answer)) => {
                let cause = Cause::NoAnswer { within: policy.timeout, awaited_until: None };
                let until = claim.deadline().instant();
                let late = async move {
                    let body = |body| flying(Timed::whole(body, until), answer, None);
                    Some(received(pending.0.await?.map(body)))
                };
                return Ok(NoAnswer::new(cause).until_answered(late).into_response());
            }
            Err(Undelivered::Failed(failure)) => {
                let cause = self.cause_of(&failure);
                return Ok(unknown(&failure, cause));
            }
            Err(Undelivered::InDoubt(failure, cause)) => return Ok(unknown(&failure, cause)),
        };
        let Delivered { response, in_flight, answer, class, doubt } = delivered;
        let in_flight = in_flight.filter(|_| policy.is_limited);
        // The layer leaves what is not complete at `timeout`, or listens on.
        let until = match safety.listens() {
            true => claim.deadline().instant(),
            false => begun + policy.timeout * 2,
        };
        // What is late has no place at the upstream any more: others shall go on.
        let in_flight = in_flight.map(|in_flight| (in_flight, Some(begun + policy.timeout)));
        let mut response =
            received(response.map(|body| flying(Timed::whole(body, until), answer, in_flight)));
        response.extensions_mut().insert(CompleteWithin::since(begun, policy.timeout));
        if let Some(cause) = doubt {
            self.bind(&mut response, class, cause);
        }
        Ok(response)
    }

    fn cause_of(&self, failure: &SendFailure) -> Cause {
        match failure {
            SendFailure::TimedOut(_) => {
                Cause::NoAnswer { within: self.policy.timeout, awaited_until: None }
            }
            _ => Cause::ConnectionLost,
        }
    }

    /// An answer that would give the key free says nothing about an earlier attempt, which may have been
    /// carried out, nor does one that may mean that it is still running.
    fn bind(&self, response: &mut Response<Body>, class: Class, cause: Cause) {
        let said = response.extensions().get::<Meaning>().copied();
        let reply = Reply::Complete(response.status().as_u16());
        let no_answer = self.meanings.meaning(Reply::Incomplete);
        let is_busy = matches!(response.status(), StatusCode::CONFLICT | StatusCode::TOO_EARLY);
        let meaning = match said {
            None if is_busy && class != Class::Bound => no_answer,
            None => self.meanings.meaning_in_doubt(reply),
            Some(Meaning::Released) => no_answer,
            Some(said) => said,
        };
        if meaning != said.unwrap_or_else(|| self.meanings.meaning(reply)) {
            response.extensions_mut().insert(meaning);
            response.extensions_mut().insert(InDoubt(cause));
        }
    }
}

/// The request may have been carried out: the layer goes by the route's policy, and says why.
fn unknown(failure: &SendFailure, cause: Cause) -> Response<Body> {
    tracing::warn!(event = event::UPSTREAM_FAILED, %failure, "a request with a key has no answer");
    NoAnswer::new(cause).into_response()
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = SendFailure;
    type Future = BoxFuture<'static, Result<Response<Body>, SendFailure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().run(request))
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
    let in_flight = in_flight.map(|in_flight| (in_flight, None));
    let mut response =
        response.map(|body| flying(Timed::pieces(body, ANSWER_BODY_TIMEOUT), answer, in_flight));
    headers::strip_hop_by_hop(response.headers_mut(), &[]);
    headers::strip_own(response.headers_mut());
    response
}

/// Whether there is no good answer, and somebody still waits for one.
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
    telemetry::FALLBACKS.add(());
    let mut response = Response::new(Body::from(fallback.body.clone()));
    *response.status_mut() = fallback.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, fallback.content_type.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(FALLBACK, HeaderValue::from_static("true"));
    response
}

/// Why a request is not sent on, and when to come back: not all at the same moment.
pub(super) fn refusal(reason: RejectReason, hint: Option<Duration>) -> Problem {
    let (code, text) = match reason {
        RejectReason::Deadline => {
            let text =
                "the time that you gave was over before anything was run; try again with more";
            return Problem::new(Code::DeadlineExceeded, text);
        }
        RejectReason::RetryShare => (
            Code::RetryBudgetExhausted,
            "too many of the requests here are retries, and this one was not run; try again later",
        ),
        RejectReason::Breaker => (
            Code::Overloaded,
            "the service behind this gateway keeps failing and is left alone for a while; nothing was \
             run, try again later",
        ),
        RejectReason::Share => (
            Code::Overloaded,
            "too many requests of this kind or from your address are here, and this was not run; try \
             again later",
        ),
        RejectReason::Limit | RejectReason::Shed | RejectReason::Other => {
            (Code::Overloaded, "there is too much to do, and this was not run; try again later")
        }
    };
    let pause =
        hint.unwrap_or_default().max(RETRY_AFTER) + RETRY_AFTER_SPREAD.mul_f64(fastrand::f64());
    Problem::new(code, text).retry_after(pause)
}

/// Nothing was run: the key is free again. The layer writes the refusal, and names the operation in it.
fn released(problem: Problem) -> Response<Body> {
    let mut response = problem.clone().into_response();
    response.extensions_mut().insert(Meaning::Released);
    response.extensions_mut().insert(problem);
    response
}

/// A body that counts until it has ended. Only with a limit of its own a route also counts it as a request
/// at the upstream, until that time: clients that do not read would take the places of all others.
fn flying<B>(body: B, answer: Answer, in_flight: Option<(InFlight, Option<Instant>)>) -> Body
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    match body.is_end_stream() {
        true => Body::new(body),
        false => {
            let (in_flight, until) = in_flight.unzip();
            let over = until.flatten().map(|until| Box::pin(sleep_until(until)));
            Body::new(Flying { body, answer, has_ended: false, in_flight, over })
        }
    }
}

struct Flying<B> {
    body: B,
    answer: Answer,
    has_ended: bool,
    in_flight: Option<InFlight>,
    /// When its place at the upstream ends.
    over: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for Flying<B>
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over.as_mut().is_some_and(|over| over.as_mut().poll(context).is_ready()) {
            (self.in_flight, self.over) = (None, None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let has_more = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        self.has_ended = !has_more || self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Flying<B> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.answer.leave();
        }
    }
}

/// What the upstream is told about the execution.
fn prepare(headers: &mut HeaderMap, claim: &Claim) {
    let text = |text: String| HeaderValue::from_str(&text).expect("it is visible ASCII");
    headers.insert(EXECUTION, text(format!("{}.{}", claim.id(), claim.execution())));
    headers.insert(ATTEMPT, HeaderValue::from(claim.attempt()));
    headers.insert(KEY, text(claim.key_for("upstream").as_str().to_owned()));
    // What is stored is replayed to clients that may not know the same encodings.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// An answer as the layer takes it: what the upstream says about it is in its extensions.
fn received(mut response: Response<Body>) -> Response<Body> {
    listen(&mut response);
    headers::strip_hop_by_hop(response.headers_mut(), &[]);
    headers::strip_own(response.headers_mut());
    response
}

/// What the upstream says about its answer.
fn listen(response: &mut Response<Body>) {
    let word = |name: HeaderName| {
        let value = response.headers().get(name)?;
        Some(value.to_str().ok()?.trim().to_owned())
    };
    let said = headers::outcome(response.headers());
    let meaning = match said {
        Some(Outcome::Final)
            if response.status().is_success() || response.status().is_redirection() =>
        {
            Some(Meaning::Succeeded)
        }
        Some(Outcome::Final) => Some(Meaning::FailedFinal),
        Some(Outcome::Retryable) => Some(Meaning::FailedRetryable),
        Some(Outcome::Unknown) => Some(Meaning::Unknown),
        Some(Outcome::NoStore) | None => None,
    };
    let is_kept = said != Some(Outcome::NoStore);
    let resource = word(RESOURCE);
    let resource = resource.as_deref().and_then(|text| text.split_once('/'));
    let resource = resource.map(|(kind, id)| Resource::new(kind, id));
    let extensions = response.extensions_mut();
    if let Some(meaning) = meaning {
        extensions.insert(meaning);
    }
    if let Some(resource) = resource {
        extensions.insert(resource);
    }
    if !is_kept {
        extensions.insert(NotKept);
    }
}

/// Certainly nothing happened: the key is free again.
fn not_sent(reason: &str) -> Response<Body> {
    tracing::warn!(event = event::UPSTREAM_FAILED, reason, "the upstream cannot be reached");
    let text = "the service behind this gateway cannot be reached, and nothing was sent to it; try \
                again with the same key";
    released(Problem::new(Code::UpstreamUnreachable, text).retry_after(RETRY_AFTER))
}

/// What the client of a request without a record is told. Without a key no repeat is recognised: where
/// the upstream may have done it, only a method that may be repeated makes another attempt harmless.
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
