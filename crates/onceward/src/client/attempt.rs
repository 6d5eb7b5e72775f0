//! One attempt: sent, given its time, and understood.

use std::time::Duration;

use http::{Response, Uri};
use onceward_core::retry::Observation;
use tokio::time::timeout;

use super::{
    AnswerBody, Attempt, BoxError, Retry,
    adapters::exchange::Sent,
    answer_head::Head,
    driver::{Ended, Environment as _, InFlightPermit, Launch},
    failure::{self, CutShort, TimedOut},
};
use crate::{
    http::{ByteBody, read},
    telemetry::{self, SentAs},
};

/// Up to this length the body of an answer is read for what it says about trying again.
const MAX_READ: usize = 64 << 10;

/// What an attempt gives to its caller, and to the report.
pub(super) struct Replied<B> {
    pub(super) answer: Result<Response<AnswerBody<B>>, BoxError>,
    /// Until the report has it.
    pub(super) attempt: Option<Attempt>,
}

/// What is known of an attempt before it is sent.
pub(super) struct AttemptPlan {
    pub(super) launch: Launch,
    pub(super) started: Duration,
    pub(super) retry: Retry,
    pub(super) uri: Uri,
}

/// Sends one request and waits for its answer, no longer than its time.
pub(super) async fn one<B: ByteBody>(
    answer: impl Future<Output = Result<Response<B>, BoxError>> + Send,
    sent: Sent,
    plan: AttemptPlan,
) -> Ended<Replied<B>> {
    let AttemptPlan { launch, started, retry, uri } = plan;
    let Launch { number, sent_as, timeout: time, at: begun, permit } = launch;
    let mut head = None;
    let understood = async { understand(answer.await?, (&uri, &retry), permit, &mut head).await };
    let answer = match timeout(time, understood).await {
        Ok(answer) => answer,
        Err(_) => {
            let late = TimedOut { after: time, unsent: !sent.is_raised() };
            if !late.unsent {
                telemetry::CLIENT_LATE.add(());
            }
            Err(late.into())
        }
    };
    let (answer, observation) = match answer {
        Ok((response, observation)) => (Ok(response), observation),
        Err(error) => {
            let known = retry.options().classify.as_ref().and_then(|known| known(&*error));
            let class = known.unwrap_or_else(|| failure::class(&*error));
            let observation = head.map_or(class.into(), |head| head.seen_without_body(class));
            (Err(error), observation)
        }
    };
    let at = retry.now();
    let attempt = Attempt {
        number,
        hedge: sent_as == SentAs::Hedge,
        started,
        took: at.saturating_sub(begun),
        class: observation.class,
        status: answer.as_ref().ok().map(Response::status),
        failure: answer.as_ref().err().map(|error| failure::text(&**error)),
        hint: observation.hint,
        wait: None,
    };
    let reply = Replied { answer, attempt: Some(attempt) };
    Ended { reply, observation, at, is_last: false }
}

/// What an answer says; its body is read only where that says more. `seen` has the head at once.
async fn understand<B: ByteBody>(
    response: Response<B>,
    (uri, retry): (&Uri, &Retry),
    permit: InFlightPermit,
    seen: &mut Option<Head>,
) -> Result<(Response<AnswerBody<B>>, Observation), BoxError> {
    let (parts, body) = response.into_parts();
    let head = Head::read(parts.status, &parts.headers, uri);
    *seen = Some(head);
    let whole = retry.options().whole_answers;
    let body = if let Some(most) = whole.or_else(|| head.asks_for_body().then_some(MAX_READ)) {
        let read = read(body, |length| length <= most).await;
        AnswerBody::read(read.map_err(|error| CutShort(error.into()))?, permit)
    } else {
        AnswerBody::streamed(body, permit)
    };
    let observation = head.observation(body.whole(), retry.rules());
    Ok((Response::from_parts(parts, body), observation))
}
