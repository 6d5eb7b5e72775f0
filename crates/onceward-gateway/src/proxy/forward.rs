//! One request to the upstream and its answer back: what a route's layer runs, once.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as _;
use onceward::{
    BoxFuture, Meaning,
    server::{Body, Claim, Code, NotKept, Problem, Resource},
    telemetry::event,
};
use tokio::time::Instant;
use tower_service::Service;

use super::{
    headers,
    timed::Timed,
    upstream::{Failure, Lane, Upstream},
};

const EXECUTION: HeaderName = HeaderName::from_static("onceward-execution");
const ATTEMPT: HeaderName = HeaderName::from_static("onceward-attempt");
const KEY: HeaderName = HeaderName::from_static("onceward-key");
const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
const RESOURCE: HeaderName = HeaderName::from_static("onceward-resource");

/// How long a body that is passed on may pause.
const PAUSE: Duration = Duration::from_secs(60);

/// Sends keyed requests of one route to the upstream.
#[derive(Clone)]
pub(crate) struct Forward {
    upstream: Upstream,
    patience: Duration,
}

impl Forward {
    pub(crate) fn new(upstream: Upstream, patience: Duration) -> Self {
        Self { upstream, patience }
    }

    async fn run(self, mut request: Request<Body>) -> Result<Response<Body>, Failure> {
        let claim = request.extensions().get::<Claim>().cloned();
        let Some(claim) = claim else {
            return Ok(pass(&self.upstream, request, self.patience).await);
        };
        let until = Instant::now() + self.patience;
        prepare(request.headers_mut(), &claim);
        let response = match self.upstream.send(Lane::Keyed, request, self.patience).await {
            Ok(response) => response,
            Err(Failure::NotSent(_, reason)) => return Ok(not_sent(&reason)),
            Err(failure) => return Err(failure),
        };
        let mut response = response.map(|body| Body::new(Timed::whole(body, until)));
        listen(&mut response);
        headers::strip_hop_by_hop(response.headers_mut());
        headers::strip_own(response.headers_mut());
        Ok(response)
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
pub(crate) async fn pass(
    upstream: &Upstream,
    mut request: Request<Body>,
    patience: Duration,
) -> Response<Body> {
    announce_length(&mut request);
    let response = match upstream.send(Lane::Other, request, patience).await {
        Ok(response) => response,
        Err(failure) => return unanswered(&failure),
    };
    let mut response = response.map(|body| Body::new(Timed::pieces(body, PAUSE)));
    headers::strip_hop_by_hop(response.headers_mut());
    headers::strip_own(response.headers_mut());
    response
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
    let said = word(OUTCOME);
    let meaning = match said.as_deref() {
        Some("final") if response.status().is_success() || response.status().is_redirection() => {
            Some(Meaning::Succeeded)
        }
        Some("final") => Some(Meaning::FailedFinal),
        Some("retryable") => Some(Meaning::FailedRetryable),
        Some("unknown") => Some(Meaning::Unknown),
        _ => None,
    };
    let is_kept = said.as_deref() != Some("no-store");
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
    let problem = Problem::new(Code::UpstreamUnreachable, text);
    let mut response = problem.retry_after(Duration::from_secs(1)).into_response();
    response.extensions_mut().insert(Meaning::Released);
    response
}

pub(super) fn unanswered(failure: &Failure) -> Response<Body> {
    tracing::warn!(event = event::UPSTREAM_FAILED, %failure, "a request without a key has no answer");
    let problem = match failure {
        Failure::NotSent(..) => {
            let text = "the service behind this gateway cannot be reached";
            Problem::new(Code::UpstreamUnreachable, text).retry_after(Duration::from_secs(1))
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
