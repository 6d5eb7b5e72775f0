//! A request with a key: the layer of its route around one request to the upstream and its answer back.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use onceward::{
    Body,
    protocol::{Cause, Meaning, Policy, Reply},
    retry::{self, Class},
    server::{
        Claim, Code, CompleteWithin, Idempotent, InDoubt, NoAnswer, NotKept, Problem, Resource,
    },
    store::BoxFuture,
    telemetry::{self, Answered, event},
};
use tokio::time::Instant;
use tower_service::Service;

use super::{
    Routes,
    ask::{self, ReadBody},
    headers::{self, Outcome},
    hints::{ATTEMPT, RequestHints},
    key,
    passthrough::{pass, unanswered},
    timed::{Floor, Timed},
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
    config::{KeyRule, KeySource, Route},
    identity::Caller,
};

pub(super) struct Covered {
    pub(super) route: Arc<Route>,
    pub(super) service: Idempotent<Forward>,
    pub(super) counted: telemetry::Route,
}

/// What the gateway found out about a request before its layer sees it.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) caller: Arc<Caller>,
    pub(super) parameters: Arc<BTreeMap<String, String>>,
    pub(super) json: Arc<BTreeMap<String, String>>,
    /// The key, where the route takes it from the body.
    pub(super) key: key::InBody,
}

impl Covered {
    /// One request that its route's layer answers.
    pub(super) async fn answer(
        &self,
        (routes, policy): (&Routes, &UpstreamPolicy),
        request: Request<Body>,
        caller: Arc<Caller>,
        parameters: BTreeMap<String, String>,
        floor: &Floor,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let origin = deliver::origin(&parts.extensions);
        let memory = routes.root.memory_of(origin.address);
        let ReadBody { json, key, body } = match ask::read(&self.route, &parts, body, &memory).await
        {
            Ok(read) => read,
            Err(problem) => {
                self.counted.count(Answered::Refused(problem.code()));
                return problem.errors(policy.errors).into_response();
            }
        };
        let source = &self.route.key_source;
        let is_in_body = matches!(source, KeySource::Json(_));
        if is_in_body && key == Ok(None) && self.route.key == KeyRule::Optional {
            self.counted.count(Answered::Passed);
            let hints = RequestHints::of(&parts.extensions);
            let request = Request::from_parts(parts, body);
            return Box::pin(routes.pass(policy, request, &hints, floor)).await;
        }
        key::tell_upstream(source, &key, &mut parts.headers);
        let (parameters, json) = (Arc::new(parameters), Arc::new(json));
        parts.extensions.insert(RequestContext { caller, parameters, json, key });
        let method = retry::Method::of(parts.method.as_str());
        let answered = self.service.clone().call(Request::from_parts(parts, body)).await;
        let response = answered.unwrap_or_else(|failure| {
            unanswered(&failure, method).errors(policy.errors).into_response()
        });
        if let (Some(Answered::Refused(_)), Some(reason)) =
            (response.extensions().get(), response.extensions().get())
        {
            policy.rejected(*reason, None);
        }
        response
    }
}

const EXECUTION: HeaderName = HeaderName::from_static("onceward-execution");

const KEY: HeaderName = HeaderName::from_static("onceward-key");

const RESOURCE: HeaderName = HeaderName::from_static("onceward-resource");

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
        let hints = RequestHints::of(request.extensions());
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
                    let body = |body| counted(Timed::whole(body, until), answer, None);
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
            received(response.map(|body| counted(Timed::whole(body, until), answer, in_flight)));
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

/// What the gateway tells the upstream about the execution.
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
    headers::strip_of_upstream(response.headers_mut());
    response
}

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

/// Nothing was run: the key is free again. The layer writes the refusal, and names the operation in it.
fn released(problem: Problem) -> Response<Body> {
    let mut response = problem.clone().into_response();
    response.extensions_mut().insert(Meaning::Released);
    response.extensions_mut().insert(problem);
    response
}
