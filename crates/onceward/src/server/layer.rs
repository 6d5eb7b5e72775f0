//! The request path on one page.

use std::{
    fmt,
    future::{Future, ready},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use onceward_core::{BoxFuture, Digest, OperationId};
use tower_service::Service;

use super::{
    Body, BoxError, Code, Idempotency, Idempotent, Problem, WholeBody,
    claim::Passed,
    steps::{
        admit::{self, Admitted},
        deferred,
        execute::{self, Served},
        fingerprint, identify, respond, shed,
    },
};
use crate::telemetry::{self, Answered, Begun, Route};

impl<S, B, R> Service<Request<B>> for Idempotent<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: fmt::Debug + Send,
    B: WholeBody,
    R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    /// Always ready: a replay does not need the service. An execution waits until it is.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (idempotency, service) = (self.idempotency.clone(), self.service.clone());
        let (mut parts, body) = request.into_parts();
        let options = &idempotency.options;
        if !options.chosen.methods.contains(&parts.method) {
            return passed(service, parts, body);
        }
        shed::note(&mut parts);
        // For a handler that needs a claim and has none: its refusal is written as its route says.
        parts.extensions.insert(idempotency.options.clone());
        let counting = Counting { begun: Begun::now(), route: identify::route(options, &parts) };
        let operation = identify::operation(options, &parts).and_then(|operation| {
            // What has no key is run at once.
            if operation.is_none() {
                options.traffic.admit(shed::incoming(&parts), false)?;
            }
            Ok(operation)
        });
        let operation = match operation {
            Ok(Some(operation)) => operation,
            Ok(None) => {
                counting.route.count(Answered::Passed);
                return passed(service, parts, body);
            }
            Err(problem) => {
                let answer = Answer::refused(problem.code(), respond::refused(options, problem));
                return Box::pin(ready(counting.end(None, answer)));
            }
        };
        let id = operation.digest();
        let answer = Box::pin(idempotency.clone().answer(operation, parts, body, service));
        Box::pin(async move {
            let answer = answer.await.unwrap_or_else(|problem| {
                Answer::refused(problem.code(), respond::problem(&idempotency, id, problem))
            });
            counting.end(Some(id), answer)
        })
    }
}

impl Idempotency {
    /// One request with a key, top to bottom.
    ///
    /// Not an `async fn`, which would keep room for its arguments twice: thousands may wait here.
    #[expect(clippy::manual_async_fn, reason = "see above")]
    fn answer<S, B>(
        self,
        operation: OperationId,
        mut parts: Parts,
        body: B,
        service: S,
    ) -> impl Future<Output = Result<Answer<S::Error>, Problem>> + Send
    where
        S: Served<B>,
        B: WholeBody,
    {
        async move {
            let id = operation.digest();
            let read = Box::pin(fingerprint::read(&self, operation, &parts, body));
            let (asked, held) = read.await?;
            let mut attempt = None;
            if self.options.chosen.deferred.is_some() {
                let answer = Box::pin(deferred::answer(&self, asked, parts, held, service));
                let (answered, response) = answer.await?;
                return Ok(Answer { answered, attempt, response: Ok(response) });
            }
            let (answered, response) = match admit::admit(&self, &asked, &parts).await? {
                Admitted::Run { claim, patience, counted, slot } => {
                    attempt = Some(claim.attempt());
                    // Nothing is awaited before the execution stands on its own feet.
                    let running = execute::detached(&self, (claim, slot), parts, held, service);
                    drop(counted);
                    let (answered, response) = respond::first(&self, id, running, patience).await?;
                    (answered, Ok(response))
                }
                Admitted::Replay { recalled, answered } => {
                    (answered, Ok(respond::replay(&self, id, &parts, &recalled).await?))
                }
                Admitted::Accepted(patience) => {
                    (Answered::Accepted, Ok(respond::accepted(&self, id, patience)))
                }
                Admitted::Unprotected => {
                    parts.extensions.insert(Passed::StoreDown(id));
                    let (body, _memory) = held.open();
                    let request = Request::from_parts(parts, body);
                    let response = Box::pin(execute::call(service, request)).await;
                    let response =
                        response.map(|response| respond::unprotected(&self, id, response));
                    (Answered::Unprotected, response)
                }
            };
            Ok(Answer { answered, attempt, response })
        }
    }
}

/// A request that is not covered goes through untouched.
fn passed<S, B>(
    service: S,
    mut parts: Parts,
    body: B,
) -> BoxFuture<'static, Result<Response<Body>, S::Error>>
where
    S: Served<B>,
    B: WholeBody,
{
    parts.extensions.insert(Passed::Uncovered);
    let answer = execute::call(service, Request::from_parts(parts, body));
    Box::pin(async { Ok(answer.await?.map(Body::new)) })
}

/// What a request gets, and what there is to say about it.
struct Answer<E> {
    answered: Answered,
    attempt: Option<u32>,
    response: Result<Response<Body>, E>,
}

impl<E> Answer<E> {
    fn refused(code: Code, response: Response<Body>) -> Self {
        Self { answered: Answered::Refused(code), attempt: None, response: Ok(response) }
    }
}

/// Where and since when a request is counted.
struct Counting {
    begun: Begun,
    route: Route,
}

impl Counting {
    /// Counts and logs a request, just before it gets its answer: nowhere else.
    fn end<E>(self, id: Option<Digest>, answer: Answer<E>) -> Result<Response<Body>, E> {
        let Answer { answered, attempt, response } = answer;
        let mut response = response?;
        self.route.count_timed(answered, self.begun);
        telemetry::log_request(self.route, answered, self.begun, id, attempt, response.status());
        response.extensions_mut().insert(answered);
        Ok(response)
    }
}
