//! Step 4: run the service, detached from its client, with a claim that is renewed.
//!
//! The execution runs to its end and is settled, also when its client has gone. A panic is no answer.
//! After `max_run` the layer stops to renew the claim and answers that the outcome is unknown; the
//! service runs on and may still settle late.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Parts};
use onceward_core::{Cause, Effect, Meaning, Reply};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tower_service::Service;
use tracing::Instrument as _;

use super::{
    capture::Captured,
    fingerprint::ReadRequest,
    late::{self, Listening},
    settle,
};
use crate::{
    Engine,
    engine::{Renewal, open::Slot},
    http::ByteBody,
    server::{Body, Claim, Code, Idempotency, PeerMemory, Problem, WholeBody},
    telemetry::{self, Begun, RenewalResult, event},
};

/// What the client of a running execution waits for.
pub(crate) type Running = oneshot::Receiver<Result<Response<Body>, Problem>>;

pub(crate) trait Served<B>: Send + 'static
where
    Self: Service<Request<B>, Response = Response<Self::Reply>, Future: Send>,
    Self: Service<Request<B>, Error: fmt::Debug + Send>,
{
    /// The body of its answers.
    type Reply: ByteBody;
}

impl<S, B, R> Served<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Send + 'static,
    S: Service<Request<B>, Error: fmt::Debug + Send>,
    R: ByteBody,
{
    type Reply = R;
}

/// Calls a service once, when it is ready.
pub(crate) async fn call<S, Q>(mut service: S, request: Q) -> Result<S::Response, S::Error>
where
    S: Service<Q>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

/// Starts an execution, which does not need its client any more.
pub(crate) fn detached<S, B>(
    idempotency: &Idempotency,
    (claim, slot): (Claim, Slot),
    mut parts: Parts,
    held: ReadRequest,
    service: S,
) -> Running
where
    S: Served<B>,
    B: WholeBody,
{
    parts.extensions.insert(claim.clone());
    let (body, room) = held.open();
    let request = Request::from_parts(parts, body);
    let (client, running) = oneshot::channel();
    let (idempotency, tracked) = (idempotency.clone(), idempotency.engine().track());
    // In a task of its own, so that a handler that blocks its thread stays the owner. It is started here
    // and not by the execution, whose worker it would wait for; with the set it ends.
    let mut renewals = JoinSet::new();
    renewals.spawn(renew(idempotency.engine().clone(), claim.clone()));
    let execution = async move {
        let (mut client, mut room, mut slot) = (Some(client), Some(room), Some(slot));
        let mut captured = {
            let may_begin = || !claim.time_left().is_zero();
            let run = run((&idempotency, claim.memory()), may_begin, service, request);
            let mut run = pin!(no_answer_if_it_panics(Box::pin(run)));
            match timeout_at(claim.until(), run.as_mut()).await {
                Ok(captured) => captured,
                Err(_) => {
                    tell(&mut client, Err(overdue(&idempotency)));
                    // From here on its outcome counts as unknown, and not as an open one.
                    drop((room.take(), slot.take()));
                    run.await
                }
            }
        };
        let listening = Listening::begin(&idempotency, &claim, &mut captured, room);
        let late = |problem| tell(&mut client, Err(problem));
        let answer = settle::settle(&idempotency, &claim, captured, late).await;
        // The claim is renewed until its end is stored: keeping a large answer may take a while.
        drop((renewals, tracked, slot));
        tell(&mut client, answer);
        if let Some(listening) = listening {
            listening.settle(&idempotency, &claim).await;
        }
    };
    tokio::spawn(execution.in_current_span());
    running
}

pub(crate) async fn run<S, B>(
    (idempotency, memory): (&Idempotency, &PeerMemory),
    may_begin: impl FnOnce() -> bool,
    mut service: S,
    request: Request<B>,
) -> Captured
where
    S: Served<B>,
{
    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
        tracing::warn!(
            event = event::SERVICE_FAILED,
            ?error,
            "a service was not ready and got no request"
        );
        return Captured::NotSent;
    }
    if !may_begin() {
        return Captured::NotSent;
    }
    let begun = Begun::now();
    let captured = match service.call(request).await {
        Ok(response) => late::captured(idempotency, memory, response).await,
        Err(error) => {
            tracing::warn!(
                event = event::SERVICE_FAILED,
                ?error,
                "a service failed without an answer"
            );
            Captured::nothing(Cause::ServiceFailed)
        }
    };
    telemetry::EXECUTION_DURATION.since((), begun);
    captured
}

/// When a claim is renewed.
struct Rhythm {
    /// How long after the claim, and after each renewal.
    pause: Duration,
    /// How long one renewal may take, and how long after one that failed the next is tried.
    patience: Duration,
}

impl Rhythm {
    /// A renewal writes to the record that the transaction of a transactional effect is about to end;
    /// at REPEATABLE READ and above that transaction would fail by it. So it comes late there, and the
    /// rest of the lease is for trying again.
    fn of(claim: &Claim) -> Self {
        let part = claim.terms().lease() / 3;
        match claim.effect() {
            Effect::Transactional => Self { pause: part * 2, patience: part / 3 },
            Effect::External | Effect::Repeatable { .. } => Self { pause: part, patience: part },
        }
    }
}

/// Renews the claim until `max_run` is over. A renewal that hangs is given up and tried anew.
async fn renew(engine: Engine, claim: Claim) {
    let Rhythm { pause, patience } = Rhythm::of(&claim);
    let mut next = Instant::now() + pause;
    while next < claim.until() {
        sleep_until(next).await;
        let (renewed, operation) = (timeout(patience, engine.renew(&claim)).await, claim.id());
        telemetry::RENEWALS.add(match &renewed {
            Ok(Ok(Renewal::Renewed { .. } | Renewal::Held)) => RenewalResult::Renewed,
            Ok(Ok(Renewal::Lost(_))) => RenewalResult::Lost,
            Ok(Err(_)) => RenewalResult::Failed,
            Err(_) => RenewalResult::TimedOut,
        });
        next = Instant::now() + patience;
        match renewed {
            Ok(Ok(Renewal::Renewed { .. })) => next = Instant::now() + pause,
            // Its lease was not started anew, so that this is tried again before it ends.
            Ok(Ok(Renewal::Held)) => {}
            Ok(Ok(Renewal::Lost(_))) => {
                tracing::warn!(event = event::LEASE_LOST, %operation, "another execution took over, and the answer of this one will not count");
                return claim.lose();
            }
            Ok(Err(error)) => {
                let text = "a claim was not renewed, and the renewal is tried again";
                tracing::warn!(event = event::NOT_RENEWED, %operation, %error, text);
            }
            Err(_) => {
                let text = "a renewal hangs and is tried again";
                tracing::warn!(event = event::NOT_RENEWED, %operation, text);
            }
        }
    }
}

pub(crate) async fn no_answer_if_it_panics(run: impl Future<Output = Captured>) -> Captured {
    let mut run = pin!(run);
    poll_fn(|context| {
        let poll = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        poll.unwrap_or_else(|_| Poll::Ready(Captured::nothing(Cause::ServiceFailed)))
    })
    .await
}

pub(crate) fn tell<T>(
    client: &mut Option<oneshot::Sender<Result<T, Problem>>>,
    answer: Result<T, Problem>,
) {
    if let Some(client) = client.take() {
        // The client may be gone: the record is what counts.
        let _ = client.send(answer);
    }
}

pub(crate) fn overdue(idempotency: &Idempotency) -> Problem {
    let options = idempotency.options();
    let cause = Cause::NoAnswer { within: options.terms.max_run(), awaited_until: None };
    let problem = no_answer(options.policy.meaning(Reply::Incomplete), cause);
    let says_why = problem.code() == Code::OutcomeUnknown;
    problem.because(says_why.then(|| cause.to_string()))
}

/// What the first client gets when there is no complete answer.
pub(crate) fn no_answer(meaning: Meaning, cause: Cause) -> Problem {
    if matches!(meaning, Meaning::FailedRetryable | Meaning::Released) {
        let text = "the service gave no complete answer, and another run is safe; send the same request \
                    with the same key";
        let problem = Problem::new(Code::UpstreamFailed, text);
        return match cause {
            Cause::NoAnswer { .. } => problem.status(StatusCode::GATEWAY_TIMEOUT),
            _ => problem,
        };
    }
    let text = "the service gave no complete answer, so it is not known yet whether it happened; ask with \
                the same key, never with a new one";
    Problem::new(Code::OutcomeUnknown, text).status(StatusCode::GATEWAY_TIMEOUT)
}
