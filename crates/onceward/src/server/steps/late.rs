//! Answers that come after their time: rule 12 of the contract.
//!
//! A service that gave no answer in time may still be working. The layer tells the client at once that the
//! outcome is unknown. The execution goes on listening without a lease until `max_run` is over, and a
//! complete answer settles the unknown outcome.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use onceward_core::{BoxFuture, Cause, Effect, Found, Meaning, Reply, State, Stored};
use tokio::time::{Instant, interval, sleep_until, timeout_at};

use super::{
    capture::{self, Captured, Unanswered},
    settle,
};
use crate::{
    Engine,
    http::ByteBody,
    server::{Body, Claim, Idempotency, PeerMemory, Reservation, common::ListeningPlace},
    telemetry::event,
};

/// How often a listening execution looks whether an operator has resolved the outcome.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Put into a response's extensions: there is no answer, for this cause.
///
/// For services inside of the layer that send requests on. The layer ignores everything else in that
/// response.
///
/// ```
/// use onceward::{server::NoAnswer, protocol::Cause};
///
/// async fn forward() -> http::Response<onceward::Body> {
///     // The connection broke before the answer was there.
///     NoAnswer::new(Cause::ConnectionLost).into_response()
/// }
/// ```
#[derive(Clone)]
pub struct NoAnswer {
    cause: Cause,
    /// In an `Arc`, because extensions are cloned; it is taken once.
    late: Option<Arc<Mutex<Option<LateResponse>>>>,
}

type LateResponse = BoxFuture<'static, Option<Response<Body>>>;

impl NoAnswer {
    /// Nothing came, and nothing will.
    #[must_use]
    pub fn new(cause: Cause) -> Self {
        Self { cause, late: None }
    }

    /// The answer may still come. An external effect is settled by it if it is there before `max_run`
    /// is over; the layer drops the future when it does not wait for it any more.
    #[must_use]
    pub fn until_answered<F>(self, answer: F) -> Self
    where
        F: Future<Output = Option<Response<Body>>> + Send + 'static,
    {
        let answer: LateResponse = Box::pin(answer);
        Self { late: Some(Arc::new(Mutex::new(Some(answer)))), ..self }
    }

    /// What a service returns instead of an answer.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::new()));
        response.extensions_mut().insert(self);
        response
    }

    fn take(&self) -> Option<LateResponse> {
        self.late.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for NoAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NoAnswer({})", self.cause)
    }
}

/// Put into a response's extensions: its body has to be complete by then.
///
/// A later one counts as no answer in time.
///
/// ```
/// use std::time::Duration;
/// use onceward::server::CompleteWithin;
/// use tokio::time::Instant;
///
/// let mut response = http::Response::new("slow");
/// let within = CompleteWithin::since(Instant::now(), Duration::from_secs(30));
/// response.extensions_mut().insert(within);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CompleteWithin {
    within: Duration,
    until: Instant,
}

impl CompleteWithin {
    /// So long from when the request was begun.
    #[must_use]
    pub fn since(begun: Instant, within: Duration) -> Self {
        Self { within, until: begun + within }
    }
}

/// In a response's extensions: the outcome of an earlier attempt is unknown, for this cause.
///
/// Put it beside [`Meaning::Unknown`], if the answer says nothing about that attempt.
///
/// ```
/// use onceward::{server::InDoubt, protocol::{Cause, Meaning}};
///
/// // The service could not be reached again after a first attempt broke off.
/// let mut response = http::Response::new("try later");
/// response.extensions_mut().insert(Meaning::Unknown);
/// response.extensions_mut().insert(InDoubt(Cause::ConnectionLost));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InDoubt(pub Cause);

/// An answer that is captured when it comes.
pub(crate) type LateAnswer = BoxFuture<'static, Captured>;

/// What came back from a service: an answer, or why there is none yet.
pub(crate) async fn captured(
    idempotency: &Idempotency,
    memory: &PeerMemory,
    mut response: Response<impl ByteBody>,
) -> Captured {
    let owned = (idempotency.clone(), memory.clone());
    if let Some(no_answer) = response.extensions_mut().remove::<NoAnswer>() {
        let capture = |late| -> LateAnswer { Box::pin(capture_late(owned, late)) };
        let late = no_answer.take().map(capture);
        return Captured::Nothing(Unanswered { cause: no_answer.cause, late });
    }
    let Some(CompleteWithin { within, until }) = response.extensions_mut().remove() else {
        return capture::capture(idempotency, memory, response).await;
    };
    let mut capturing: LateAnswer =
        Box::pin(async move { capture::capture(&owned.0, &owned.1, response).await });
    match timeout_at(until, &mut capturing).await {
        Ok(captured) => captured,
        Err(_) => {
            let cause = Cause::NoAnswer { within, awaited_until: None };
            Captured::Nothing(Unanswered { cause, late: Some(capturing) })
        }
    }
}

async fn capture_late(
    (idempotency, memory): (Idempotency, PeerMemory),
    late: LateResponse,
) -> Captured {
    match late.await {
        Some(response) => capture::capture(&idempotency, &memory, response).await,
        None => Captured::nothing(Cause::ConnectionLost),
    }
}

/// An execution whose outcome is unknown and whose answer may still come.
pub(crate) struct Listening {
    answer: LateAnswer,
    within: Duration,
    /// Of the request: the answer's connection may hold what was not sent of it.
    _request: Option<Reservation>,
    /// Of all that may listen in this process.
    _place: ListeningPlace,
}

impl Listening {
    /// Listens on, if that can change anything and there is a place; the cause then says until when. The
    /// memory of the request stays taken as long.
    pub(crate) fn begin(
        idempotency: &Idempotency,
        claim: &Claim,
        captured: &mut Captured,
        request: Option<Reservation>,
    ) -> Option<Self> {
        let Captured::Nothing(Unanswered { cause, late }) = captured else { return None };
        // Dropping the answer closes its connection.
        let answer = late.take()?;
        let Cause::NoAnswer { within, awaited_until } = cause else { return None };
        let policy = &idempotency.options().policy;
        let is_unknown = policy.meaning(Reply::Incomplete) == Meaning::Unknown;
        if claim.effect() != Effect::External || !is_unknown {
            return None;
        }
        let place = idempotency.engine().common().listen(idempotency.options().chosen.max_late)?;
        *awaited_until = Some(claim.claimed_at().plus(claim.terms().max_run()));
        Some(Self { answer, within: *within, _request: request, _place: place })
    }

    /// Settles by what comes: an answer, or why there will be none. Nothing changes if `max_run` is over
    /// before that, or if an operator is faster.
    pub(crate) async fn settle(self, idempotency: &Idempotency, claim: &Claim) {
        let Self { answer, within, _request, _place } = self;
        let engine = idempotency.engine();
        // A drain waits until the record says that no process listens any more.
        let _tracked = engine.track_other();
        let captured = tokio::select! {
            captured = answer => captured,
            () = sleep_until(claim.until()) => return,
            () = is_resolved(engine, claim) => return,
            () = engine.drain_begins() => {
                Captured::nothing(Cause::NoAnswer { within, awaited_until: None })
            }
        };
        if captured.head().is_some() {
            tracing::info!(event = event::LATE_ANSWER, operation = %claim.id(), "an answer came late");
        }
        // Its client was answered long ago.
        let _ = settle::settle(idempotency, claim, captured, |_| {}).await;
    }
}

/// Ends when a late answer would change nothing any more.
async fn is_resolved(engine: &Engine, claim: &Claim) {
    let mut looks = interval(LOOK_INTERVAL);
    // The first is at once, and the outcome was written a moment ago.
    looks.tick().await;
    loop {
        looks.tick().await;
        if let Ok(found) = engine.read(&claim.id()).await
            && !is_unknown_of(&found, claim)
        {
            return;
        }
    }
}

fn is_unknown_of(found: &Found, claim: &Claim) -> bool {
    let Found::Record(stored) = found else { return false };
    // In progress: its end as unknown is not stored yet.
    let is_open = matches!(stored.record.state, State::Unknown | State::InProgress);
    is_open && stored.record.execution == claim.execution()
}

/// Why the outcome of this record is unknown, in words for clients and operators.
///
/// ```
/// # use onceward::{*, server::cause_of, protocol::*};
/// fn explain(stored: &Stored) -> String {
///     cause_of(stored).unwrap_or_else(|| "its outcome is known".into())
/// }
/// ```
#[must_use]
pub fn cause_of(stored: &Stored) -> Option<String> {
    let cause = stored.cause()?;
    let at = match cause {
        Cause::OwnerVanished { at } => jiff::Timestamp::from_microsecond(at.unix_micros()).ok(),
        _ => None,
    };
    Some(at.map_or_else(|| cause.to_string(), |at| format!("{cause} at {at}")))
}
