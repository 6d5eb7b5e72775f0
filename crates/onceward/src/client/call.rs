//! One call, top to bottom. Tower, reqwest and the middleware all come through here.

use std::time::Duration;

use http::{Extensions, Request, Response};
use onceward_core::retry::{Stop, StopReason};
use tokio::time::timeout;

use super::{
    AnswerBody, CallError, Incoming, Report, Retry, Within,
    adapters::exchange::Exchange,
    driver::{Attempts, Environment as _, ReplayableBody, drive},
    run::Run,
};
use crate::http::ByteBody;

/// Sends a request, again if that is safe and may help, and says what it did.
pub(super) async fn call<X: Exchange>(
    retry: &Retry,
    exchange: &mut X,
    request: Request<impl ByteBody>,
) -> Result<Response<AnswerBody<X::Body>>, CallError> {
    let start = retry.now();
    let (parts, body) = request.into_parts();
    let kept = ReplayableBody::of(body, retry.options().max_body);
    let body = match timeout(time(retry, &parts.extensions), kept).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(CallError::new(Report::default(), Some(error))),
        Err(_) => {
            let stop = Some(Stop::Failed(StopReason::Deadline));
            return Err(CallError::new(Report { stop, ..Report::default() }, None));
        }
    };
    let (mut run, call) = Run::new(retry, exchange, (parts, body), start);
    let target = retry.known(&run.parts.uri, &run.parts.headers, retry.now());
    let mut attempts = Attempts::new(retry, retry.rules(), &target, call);
    if retry.options().remember.is_some() {
        Box::pin(run.remember(&mut attempts)).await?;
    }
    let end = drive(&mut attempts, &mut run).await;
    run.finish(&attempts, end).await
}

/// How long the whole call may take, and so also the reading of its body.
fn time(retry: &Retry, extensions: &Extensions) -> Duration {
    let incoming = extensions.get::<Incoming>().copied().or(retry.options().incoming);
    let own = extensions.get::<Within>().map(|Within(time)| *time);
    let left = incoming.and_then(|incoming| incoming.remaining());
    [own, left].into_iter().flatten().fold(retry.rules().deadline(), Duration::min)
}
