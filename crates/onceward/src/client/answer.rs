//! One attempt: sent, given its time, and understood.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, Uri};
use onceward_core::retry::{Class, Moment, Observation};
use tokio::time::timeout;

use super::{
    AnswerBody, Attempt, BoxError, Retry,
    body::read_up_to,
    exchange::Sent,
    failure::{self, CutShort, TimedOut},
    said::Head,
    target::InFlightPermit,
};
use crate::telemetry;

/// Up to this length the body of an answer is read for what it says about trying again.
const MAX_READ: usize = 64 << 10;

/// How an attempt has ended.
pub(super) struct Ended<B> {
    pub(super) reply: Result<Response<AnswerBody<B>>, BoxError>,
    pub(super) observation: Observation,
    pub(super) attempt: Attempt,
    /// When it ended.
    pub(super) at: Moment,
}

/// Sends one request and waits for its answer, no longer than its time.
pub(super) async fn one<B>(
    answer: impl Future<Output = Result<Response<B>, BoxError>> + Send,
    sent: Sent,
    about: About,
) -> Ended<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send,
{
    let About { number, hedge, started, begun, timeout: time, flight, retry, uri } = about;
    let mut head = None;
    let understood = async { understand(answer.await?, (&uri, &retry), flight, &mut head).await };
    let reply = match timeout(time, understood).await {
        Ok(reply) => reply,
        Err(_) => {
            let late = TimedOut { after: time, unsent: !sent.is_raised() };
            if !late.unsent {
                telemetry::CLIENT_LATE.add(());
            }
            Err(late.into())
        }
    };
    let (reply, observation) = match reply {
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
        hedge,
        started,
        took: at.saturating_sub(begun),
        class: observation.class,
        status: reply.as_ref().ok().map(Response::status),
        failure: reply.as_ref().err().map(|error| failure::text(&**error)),
        hint: observation.hint,
        wait: None,
    };
    Ended { reply, observation, attempt, at }
}

/// What is known of an attempt before it is sent.
pub(super) struct About {
    pub(super) number: u32,
    pub(super) hedge: bool,
    pub(super) started: Duration,
    pub(super) begun: Moment,
    pub(super) timeout: Duration,
    pub(super) flight: InFlightPermit,
    pub(super) retry: Retry,
    pub(super) uri: Uri,
}

/// What an answer says; its body is read only where that says more. What its head says is told at once.
async fn understand<B>(
    response: Response<B>,
    (uri, retry): (&Uri, &Retry),
    flight: InFlightPermit,
    told: &mut Option<Head>,
) -> Result<(Response<AnswerBody<B>>, Observation), BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (parts, body) = response.into_parts();
    let head = Head::read(parts.status, &parts.headers, uri);
    *told = Some(head);
    let whole = retry.options().whole_answers;
    let body = if let Some(most) = whole.or_else(|| head.asks_for_body().then_some(MAX_READ)) {
        let read = read_up_to(Box::pin(body), most).await;
        AnswerBody::read(read.map_err(|error| CutShort(error.into()))?, flight)
    } else {
        AnswerBody::streamed(body, flight)
    };
    let observation = head.observation(body.whole(), retry.rules());
    Ok((Response::from_parts(parts, body), observation))
}

/// Whether the answer to one of two requests may be taken for the answer of the call.
///
/// The other one may have been carried out already, so an answer that this alone could explain
/// (a 404 to the second DELETE, a 412, a busy key) is not taken while the other one runs.
pub(super) fn is_acceptable(class: Class, safe: bool) -> bool {
    match class {
        Class::Success | Class::Accepted | Class::Bound => true,
        Class::Final => safe,
        _ => false,
    }
}
