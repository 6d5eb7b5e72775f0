//! The body of a client's request, as it goes on.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use onceward::{
    Body, BoxError,
    server::{Code, PeerMemory, Problem, Reservation, WholeBody as _},
};
use tokio::time::timeout;

use super::{
    Routes,
    headers::listed,
    timed::{Floor, Timed},
};
use crate::identity::{Caller, remove_matching};

/// How long a client may pause within the first bytes of a body, before that is taken for a stream.
pub(super) struct ReadAhead {
    /// Before the first byte: few wait for an answer to their headers alone.
    pub(super) nothing: Duration,
    pub(super) something: Duration,
}

/// How long a client may pause within a request.
const CLIENT_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// With a bound on pauses and a floor to its rate, and without trailers that mean something in a head.
pub(super) fn of_client(
    body: Incoming,
    headers: &HeaderMap,
    routes: &Arc<Routes>,
    caller: &Arc<Caller>,
) -> (Body, Floor) {
    let floor = Floor::of(routes.config.min_body_rate as u64);
    if body.is_end_stream() {
        return (Body::empty(), floor);
    }
    // Those that must not be there are gone already.
    let announced: Vec<_> = listed(headers, &header::TRAILER).collect();
    // HTTP/1.1 sends only announced trailers.
    if announced.is_empty() && !routes.upstream.speaks_http2() {
        return (Body::new(Timed::pieces(body, CLIENT_BODY_TIMEOUT).with(floor.clone())), floor);
    }
    let (routes, caller) = (routes.clone(), caller.clone());
    let body = body.map_frame(move |frame| match frame.into_trailers() {
        Ok(mut headers) => {
            remove_matching(&mut headers, |name| !announced.contains(name));
            // What outsiders must not say in the head, they must not say after the body either.
            routes.identity.strip_identity(&mut headers, &caller);
            Frame::trailers(headers)
        }
        Err(frame) => frame,
    });
    (Body::new(Timed::pieces(body, CLIENT_BODY_TIMEOUT).with(floor.clone())), floor)
}

pub(super) enum Begun {
    /// To its end; with the memory that it takes up.
    All(Bytes, Option<HeaderMap>, Reservation),
    /// Not to its end.
    Some(Bytes, Body, Reservation),
}

impl Begun {
    /// The whole body for the upstream; its memory counts until it has left.
    pub(super) fn into_body(self) -> Body {
        match self {
            Self::All(bytes, trailers, reserved) => {
                Body::from_whole(reserved.hold(bytes), trailers)
            }
            Self::Some(first, rest, reserved) => Body::after(reserved.hold(first), rest),
        }
    }
}

pub(crate) enum Unread {
    BrokenOff(BoxError),
    Full,
}

impl Unread {
    pub(super) fn into_problem(self) -> Problem {
        match self {
            Self::BrokenOff(error) => {
                tracing::debug!(%error, "a request was not read to its end");
                let text = "your request broke off or came too slowly, and nothing was run: it has to \
                            be sent whole, and faster";
                Problem::new(Code::RequestMalformed, text)
            }
            Self::Full => {
                let text = "too many bytes are held in memory here, and nothing was run; try again \
                            later";
                Problem::new(Code::Overloaded, text).retry_after(Duration::from_secs(1))
            }
        }
    }
}

/// Reads a body to its end, or until it has more than so many bytes or its client pauses for so long.
pub(super) async fn begin(
    mut body: Body,
    most: usize,
    pause: Option<ReadAhead>,
    memory: &PeerMemory,
) -> Result<Begun, Unread> {
    let (mut first, mut joined) = (Bytes::new(), BytesMut::new());
    let (mut trailers, mut reserved) = (None, memory.nothing());
    loop {
        let length = first.len() + joined.len();
        let next = match &pause {
            _ if length > most => None,
            Some(ReadAhead { nothing, something }) => {
                let pause = if length == 0 { *nothing } else { *something };
                timeout(pause, body.frame()).await.ok()
            }
            None => Some(body.frame().await),
        };
        let frame = match next {
            Some(Some(frame)) => frame.map_err(Unread::BrokenOff)?,
            Some(None) => return Ok(Begun::All(join(first, joined), trailers, reserved)),
            None => return Ok(Begun::Some(join(first, joined), body, reserved)),
        };
        match frame.into_data() {
            Ok(data) if !reserved.grow_to(length + data.len()) => return Err(Unread::Full),
            Ok(data) if length == 0 => first = data,
            Ok(data) => {
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&data);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
}

/// Most bodies come in one piece, and are not copied.
fn join(only: Bytes, joined: BytesMut) -> Bytes {
    match joined.is_empty() {
        true => only,
        false => joined.freeze(),
    }
}
