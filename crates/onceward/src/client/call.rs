//! One call, top to bottom. Tower, reqwest and the middleware all come through here.

use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request, Response};
use onceward_core::retry::{Action, Stop, StopReason};
use tokio::time::timeout;

use super::{
    AnswerBody, BoxError, CallError, Incoming, Report, Retry, Within, answer::Ended, body::Replay,
    exchange::Exchange, follow, hedge, run::Run,
};

/// How a call ends: why it stopped, if it did not succeed, and the last answer or failure.
type End<B> = (Option<Stop>, Option<Result<Response<AnswerBody<B>>, BoxError>>);

/// Sends a request, again if that is safe and may help, and says what it did.
pub(super) async fn call<X, B>(
    retry: &Retry,
    exchange: &mut X,
    request: Request<B>,
) -> Result<Response<AnswerBody<X::Body>>, CallError>
where
    X: Exchange,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let start = retry.now();
    let (parts, body) = request.into_parts();
    let kept = Replay::of(body, retry.options().max_body);
    let body = match timeout(time(retry, &parts.extensions), kept).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(CallError::new(Report::default(), Some(error))),
        Err(_) => {
            let stop = Some(Stop::Failed(StopReason::Deadline));
            return Err(CallError::new(Report { stop, ..Report::default() }, None));
        }
    };
    let mut run = Run::new(retry, parts, body, start);
    if retry.options().remember.is_some() {
        Box::pin(run.remember()).await?;
    }
    let (stop, reply) = attempts(&mut run, exchange).await;
    run.finish(stop, reply).await
}

/// How long the whole call may take, and so also the reading of its body.
fn time(retry: &Retry, extensions: &Extensions) -> Duration {
    let incoming = extensions.get::<Incoming>().copied().or(retry.options().incoming);
    let own = extensions.get::<Within>().map(|Within(time)| *time);
    let left = incoming.and_then(|incoming| incoming.remaining());
    [own, left].into_iter().flatten().fold(retry.rules().deadline(), Duration::min)
}

async fn attempts<X: Exchange>(run: &mut Run<'_>, exchange: &mut X) -> End<X::Body> {
    let mut before = None;
    loop {
        let permit = match run.begin() {
            Ok(permit) => permit,
            Err(stop) => return (Some(stop), before),
        };
        let Ended { reply, observation, attempt, at } = hedge::attempt(run, exchange, permit).await;
        let mut action = run.decide(attempt, observation, at);
        if let Action::Poll { wait } = action {
            let status = reply.as_ref().ok();
            let status = status.and_then(|reply| follow::location(reply.headers(), &run.parts.uri));
            let status = status.expect("an answer without a status URL is not followed");
            // In a box, as everything that is rare: a call is as large as its largest step.
            action = Box::pin(follow::until_ended(run, exchange, status, wait)).await;
        }
        match action {
            Action::Succeed => return (None, Some(reply)),
            Action::Stop(stop) => return (Some(stop), Some(reply)),
            Action::Attempt { wait } => {
                // An answer that is not read would keep its connection from the next attempt. What is
                // left is why there was none, for the case that no other attempt is allowed.
                before = reply.err().map(Err);
                run.wait(wait).await;
            }
            Action::Refresh => {
                if let Err(stop) = Box::pin(run.refresh()).await {
                    return (Some(stop), Some(reply));
                }
            }
            Action::Poll { .. } => {
                unreachable!("only an answer is followed, and until it has ended")
            }
        }
    }
}
