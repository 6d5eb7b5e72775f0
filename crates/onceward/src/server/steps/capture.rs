//! Step 5: read the answer to its end. Rule 18 of the contract.

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header, response};
use onceward_core::{Cause, Effect, Meaning, Policy, Reply};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::late::{InDoubt, LateAnswer};
use crate::{
    http::ByteBody,
    server::{
        Body, Idempotency,
        body::{self, ReadBody, Unread},
        commit::Refused,
        memory::{PeerMemory, Reservation},
    },
    telemetry::event,
};

/// Up to this length the layer reads an answer without room for it: it has run, and is to be kept.
const UNCOUNTED: usize = 64 << 10;

/// How long an answer without room waits for one of the few places beyond it.
const SPARE_PLACE_TIMEOUT: Duration = Duration::from_secs(30);

/// What came back from a run.
pub(crate) enum Captured {
    /// An answer, read to its end.
    Whole { head: response::Parts, whole: ReadBody, room: Reservation, _spare: Option<Spare> },
    /// An answer that is too large to be kept, or an event stream: it is passed on as it comes.
    Stream(Response<Body>),
    /// None, or one that broke off.
    Nothing(Unanswered),
    /// The service never saw the request.
    NotSent,
}

/// A place for an answer that is kept though there was no room for it.
pub(crate) type Spare = OwnedSemaphorePermit;

pub(crate) struct Unanswered {
    pub(crate) cause: Cause,
    /// The answer that may still come.
    pub(crate) late: Option<LateAnswer>,
}

impl Captured {
    pub(crate) fn nothing(cause: Cause) -> Self {
        Self::Nothing(Unanswered { cause, late: None })
    }

    /// Why it leaves the outcome unknown, if it does.
    pub(crate) fn cause(&self) -> Cause {
        if let Some(InDoubt(cause)) = self.head().and_then(|(_, _, extensions)| extensions.get()) {
            return *cause;
        }
        let (status, is_said) = match (self, self.head()) {
            (Self::Nothing(unanswered), _) => return unanswered.cause,
            (_, None) => return Cause::ServiceFailed,
            (_, Some((status, _, extensions))) => {
                (status.as_u16(), extensions.get::<Meaning>() == Some(&Meaning::Unknown))
            }
        };
        match is_said || !(502..=504).contains(&status) {
            true => Cause::Held(status),
            false => Cause::Answered(status),
        }
    }

    /// Whether there is room for it until its client has taken it.
    pub(crate) fn has_room(&mut self) -> bool {
        match self {
            Self::Whole { whole, room, .. } => room.grow_to(whole.bytes.len()),
            Self::Stream(_) | Self::Nothing(_) | Self::NotSent => true,
        }
    }

    pub(crate) fn head(&self) -> Option<(StatusCode, &HeaderMap, &http::Extensions)> {
        match self {
            Self::Whole { head, .. } => Some((head.status, &head.headers, &head.extensions)),
            Self::Stream(answer) => Some((answer.status(), answer.headers(), answer.extensions())),
            Self::Nothing(_) | Self::NotSent => None,
        }
    }

    /// What it means: by the word of the handler, or else by the policy of the route.
    pub(crate) fn meaning(&self, policy: &Policy, effect: Effect) -> Meaning {
        let (status, extensions) = match (self, self.head()) {
            (Self::NotSent, _) => return Meaning::Released,
            (_, None) => return policy.meaning(Reply::Incomplete),
            (_, Some((status, _, extensions))) => (status, extensions),
        };
        if effect == Effect::Transactional
            && let Some(Refused(meaning)) = extensions.get()
        {
            return *meaning;
        }
        match extensions.get::<Meaning>() {
            // A commit alone ends a transactional effect well.
            Some(said) if effect != Effect::Transactional => *said,
            _ => policy.meaning(Reply::Complete(status.as_u16())),
        }
    }
}

pub(crate) async fn capture(
    idempotency: &Idempotency,
    memory: &PeerMemory,
    response: Response<impl ByteBody>,
) -> Captured {
    let options = idempotency.options();
    let (head, body) = response.into_parts();
    if is_event_stream(&head.headers) {
        return Captured::Stream(Response::from_parts(head, Body::new(body)));
    }
    let mut room = memory.nothing();
    let declared = match has_no_body(head.status) {
        true => &HeaderMap::new(),
        false => &head.headers,
    };
    let mut is_full = false;
    let read = body::read_whole(body, declared, |length| {
        is_full =
            length <= options.chosen.max_response && length > UNCOUNTED && !room.grow_to(length);
        length <= options.chosen.max_response && !is_full
    });
    let (first, rest) = match read.await {
        Ok(whole) => return Captured::Whole { head, whole, room, _spare: None },
        Err(Unread::TooLarge(first, rest)) => (first, rest),
        Err(Unread::Truncated) => return Captured::nothing(Cause::ConnectionLost),
    };
    let Some(spare) = spare(idempotency, is_full).await else {
        let body = Body::after(room.hold(first), rest);
        return Captured::Stream(Response::from_parts(head, body));
    };
    // No client would ever see an answer that is not kept now: the layer reads, stores and drops it.
    let body = Body::after(first, rest);
    let read = body::read_whole(body, declared, |length| length <= options.chosen.max_response);
    match read.await {
        Ok(whole) => Captured::Whole { head, whole, room, _spare: Some(spare) },
        Err(Unread::TooLarge(first, rest)) => {
            let body = Body::after(room.hold(first), rest);
            Captured::Stream(Response::from_parts(head, body))
        }
        Err(Unread::Truncated) => Captured::nothing(Cause::ConnectionLost),
    }
}

/// A place for an answer that has no room in memory; `None`: it needs none, or would wait for too long.
async fn spare(idempotency: &Idempotency, is_full: bool) -> Option<Spare> {
    if !is_full {
        return None;
    }
    let places = idempotency.engine().common().spare.clone();
    let taken = timeout(SPARE_PLACE_TIMEOUT, places.acquire_owned()).await;
    if taken.is_err() {
        tracing::warn!(
            event = event::ANSWER_NOT_KEPT,
            "an answer is not kept, because too many bytes are held in memory here: its operation has \
             ended, and replays of it are refused"
        );
    }
    taken.ok()?.ok()
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    let media_type = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
    media_type.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

/// These answers have no body, whatever length their head speaks of.
pub(crate) fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
