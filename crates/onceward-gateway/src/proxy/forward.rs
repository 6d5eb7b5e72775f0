//! One request to the upstream and its answer back: what a route's layer runs, once.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use onceward::{
    BoxFuture, Meaning, Policy, Reply,
    retry::{self, Class},
    server::{Body, BoxError, Claim, Code, NotKept, Problem, Resource},
    telemetry::{self, TurnedAway, event},
};
use tokio::time::Instant;
use tower_service::Service;

use super::{
    deliver::{Delivered, Undelivered, Way},
    headers::{self, Outcome},
    judge::Stakes,
    parcel::Parcel,
    place::Place,
    room::Flight,
    timed::Timed,
    upstream::Failure,
    wishes::{ATTEMPT, Wishes},
};
use crate::config::Fallback;

const EXECUTION: HeaderName = HeaderName::from_static("onceward-execution");
const KEY: HeaderName = HeaderName::from_static("onceward-key");
const FALLBACK: HeaderName = HeaderName::from_static("onceward-fallback");
const RESOURCE: HeaderName = HeaderName::from_static("onceward-resource");

/// When it makes sense to come back, and over which time those who do are spread.
const SOON: Duration = Duration::from_secs(1);
const SPREAD: Duration = Duration::from_secs(2);

/// How long a body that is passed on may pause.
const PAUSE: Duration = Duration::from_secs(60);

/// Sends keyed requests of one route to the upstream.
#[derive(Clone)]
pub(crate) struct Forward {
    way: Arc<Way>,
    /// What the upstream's answers mean.
    policy: Arc<Policy>,
}

impl Forward {
    pub(super) fn new(way: Arc<Way>, policy: Policy) -> Self {
        Self { way, policy: Arc::new(policy) }
    }

    async fn run(self, mut request: Request<Body>) -> Result<Response<Body>, Failure> {
        let way = &*self.way;
        let wishes = request.extensions().get::<Wishes>().copied().unwrap_or(Wishes::NONE);
        let claim = request.extensions().get::<Claim>().cloned();
        let Some(claim) = claim else {
            return Ok(pass(way, request, &wishes).await);
        };
        let until = Instant::now() + way.timeout;
        prepare(request.headers_mut(), &claim);
        let parcel = Parcel::held(request, way.may_repeat()).await;
        let parcel = parcel.map_err(|error| Failure::BrokenOff(error.to_string()))?;
        let stakes = Stakes::keyed(&claim, &self.policy, way.timeout);
        let delivered = match way.deliver(parcel, &stakes, &wishes).await {
            Ok(delivered) => delivered,
            Err(Undelivered::TurnedAway(why, hint)) => return Ok(released(refusal(why, hint))),
            Err(Undelivered::Failed(Failure::NotSent(_, reason))) => return Ok(not_sent(&reason)),
            Err(Undelivered::Failed(failure)) => return Err(failure),
        };
        let Delivered { response, flight, class, is_doubtful } = delivered;
        let flight = flight.filter(|_| way.is_limited);
        let mut response = response.map(|body| flying(Timed::whole(body, until), flight));
        listen(&mut response);
        if is_doubtful {
            self.bind(&mut response, class);
        }
        headers::strip_hop_by_hop(response.headers_mut());
        headers::strip_own(response.headers_mut());
        Ok(response)
    }

    /// An answer that would give the key free says nothing about an earlier attempt, which may have been
    /// carried out, nor does one that may mean that it is still running.
    fn bind(&self, response: &mut Response<Body>, class: Class) {
        let said = response.extensions().get::<Meaning>().copied();
        let by_policy = || self.policy.meaning(Reply::Complete(response.status().as_u16()));
        let meaning = said.unwrap_or_else(by_policy);
        let is_busy = matches!(response.status(), StatusCode::CONFLICT | StatusCode::TOO_EARLY);
        let may_run = is_busy && said.is_none() && class != Class::Bound;
        if meaning == Meaning::Released || may_run {
            let no_answer = self.policy.meaning(Reply::Incomplete);
            response.extensions_mut().insert(no_answer);
        }
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Response<Body>, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().run(request))
    }
}

/// Passes a request on that has no key, and its answer back, both as they come.
pub(super) async fn pass(way: &Way, mut request: Request<Body>, wishes: &Wishes) -> Response<Body> {
    announce_length(&mut request);
    let stakes = Stakes::Unkeyed(retry::Method::of(request.method().as_str()));
    let parcel = match Parcel::passing(request, way.may_repeat()).await {
        Ok(parcel) => parcel,
        Err(error) => return unanswered(&Failure::BrokenOff(error.to_string())),
    };
    let delivered = way.deliver(parcel, &stakes, wishes).await;
    if let Some(fallback) = way.fallback.as_ref().filter(|_| calls_for_fallback(&delivered)) {
        return instead(fallback);
    }
    let Delivered { response, flight, .. } = match delivered {
        Ok(delivered) => delivered,
        Err(Undelivered::TurnedAway(why, hint)) => return refusal(why, hint).into_response(),
        Err(Undelivered::Failed(failure)) => return unanswered(&failure),
    };
    let flight = flight.filter(|_| way.is_limited);
    let mut response = response.map(|body| flying(Timed::pieces(body, PAUSE), flight));
    headers::strip_hop_by_hop(response.headers_mut());
    headers::strip_own(response.headers_mut());
    response
}

/// Whether there is no good answer, and somebody still waits for one.
fn calls_for_fallback(delivered: &Result<Delivered, Undelivered>) -> bool {
    match delivered {
        Ok(delivered) => delivered.class.is_failure(),
        Err(Undelivered::TurnedAway(TurnedAway::Deadline | TurnedAway::RetryShare, _)) => false,
        Err(Undelivered::Failed(Failure::BrokenOff(_))) => false,
        Err(_) => true,
    }
}

/// What the route says instead of the upstream.
fn instead(fallback: &Fallback) -> Response<Body> {
    telemetry::FALLBACKS.add(());
    let mut response = Response::new(Body::from(fallback.body.clone()));
    *response.status_mut() = fallback.status;
    let lines = response.headers_mut();
    lines.insert(header::CONTENT_TYPE, fallback.content_type.clone());
    lines.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    lines.insert(FALLBACK, HeaderValue::from_static("true"));
    response
}

/// Why a request is not sent on, and when to come back: not all at the same moment.
pub(super) fn refusal(why: TurnedAway, hint: Option<Duration>) -> Problem {
    let (code, text) = match why {
        TurnedAway::Deadline => {
            let text =
                "the time that you gave was over before anything was run; try again with more";
            return Problem::new(Code::DeadlineExceeded, text);
        }
        TurnedAway::RetryShare => (
            Code::RetryBudgetExhausted,
            "too many of the requests here are retries, and this one was not run; try again later",
        ),
        TurnedAway::Breaker => (
            Code::Overloaded,
            "the service behind this gateway keeps failing and is left alone for a while; nothing was \
             run, try again later",
        ),
        TurnedAway::Limit | TurnedAway::Shed | TurnedAway::Other => {
            (Code::Overloaded, "there is too much to do, and this was not run; try again later")
        }
    };
    let pause = hint.unwrap_or_default().max(SOON) + SPREAD.mul_f64(fastrand::f64());
    Problem::new(code, text).retry_after(pause)
}

/// Nothing was run: the key is free again.
fn released(problem: Problem) -> Response<Body> {
    let mut response = problem.into_response();
    response.extensions_mut().insert(Meaning::Released);
    response
}

/// A body that is at the upstream until it has ended. Without a limit of its own a route does not count
/// it: clients that do not read would take the places of all others.
fn flying<B>(body: B, flight: Option<Flight>) -> Body
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    let Some(flight) = flight.filter(|_| !body.is_end_stream()) else { return Body::new(body) };
    let place = Place::new(flight, PAUSE);
    Body::new(body.map_frame(move |frame| {
        place.used();
        frame
    }))
}

/// hyper leaves out the body of a GET whose length nobody has said.
fn announce_length(request: &mut Request<Body>) {
    let is_known = request.headers().contains_key(header::CONTENT_LENGTH)
        || request.body().size_hint().exact().is_some();
    if !is_known && !request.body().is_end_stream() {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}

/// What the upstream is told about the execution.
fn prepare(lines: &mut HeaderMap, claim: &Claim) {
    let text = |text: String| HeaderValue::from_str(&text).expect("it is visible ASCII");
    lines.insert(EXECUTION, text(format!("{}.{}", claim.id(), claim.execution())));
    lines.insert(ATTEMPT, HeaderValue::from(claim.attempt()));
    lines.insert(KEY, text(claim.key_for("upstream").as_str().to_owned()));
    // What is stored is replayed to clients that may not know the same encodings.
    lines.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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
    released(Problem::new(Code::UpstreamUnreachable, text).retry_after(SOON))
}

pub(super) fn unanswered(failure: &Failure) -> Response<Body> {
    tracing::warn!(event = event::UPSTREAM_FAILED, %failure, "a request without a key has no answer");
    let problem = match failure {
        Failure::NotSent(..) => {
            let text = "the service behind this gateway cannot be reached";
            Problem::new(Code::UpstreamUnreachable, text).retry_after(SOON)
        }
        Failure::BrokenOff(_) => {
            let text = "your request broke off while it was sent on";
            Problem::new(Code::RequestMalformed, text)
        }
        Failure::MaybeSent(_) => {
            let text = "the service behind this gateway gave no complete answer";
            Problem::new(Code::UpstreamFailed, text)
        }
        Failure::TimedOut => {
            let text = "the service behind this gateway took too long";
            Problem::new(Code::UpstreamFailed, text).status(StatusCode::GATEWAY_TIMEOUT)
        }
    };
    problem.into_response()
}
