//! A request on its way to the upstream: once, or again and again.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header, request::Parts};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use onceward::{Body, BoxError, client::driver::ReplayableBody, server::PeerMemory};
use tokio::time::Instant;

use super::{answers::Answer, deliver::origin};
use crate::{
    identity::Origin,
    proxy::{
        body::{self, Begun, ReadAhead, Unread},
        upgrade::Upgrade,
    },
};

/// Up to this length the gateway keeps a body without a key, to send it again.
const MAX_KEPT: usize = 64 << 10;

/// A client that pauses for so long within its first bytes may wait for an answer to them.
const READ_AHEAD: ReadAhead =
    ReadAhead { nothing: Duration::from_secs(2), something: Duration::from_millis(250) };

pub(crate) struct ReplayableRequest {
    parts: Parts,
    body: ReplayableBody,
    is_arriving: bool,
    /// Until when the upstream waited for the body, while that is passed on.
    waited: Waited,
}

impl ReplayableRequest {
    /// A request without a key. The gateway keeps its body only if a repeat may need it and it is small.
    ///
    /// Before it takes a place at the upstream its body is read, to the end or until it is clear that
    /// it comes as a stream: a client that takes its time takes no place.
    pub(crate) async fn passing(
        mut request: Request<Body>,
        keeps: bool,
        memory: &PeerMemory,
    ) -> Result<Self, Unread> {
        announce_length(&mut request);
        let (parts, body) = request.into_parts();
        let begun = body::begin(body, MAX_KEPT, Some(READ_AHEAD), memory).await?;
        let is_arriving = matches!(begun, Begun::Some(..));
        let body = match begun {
            Begun::All(bytes, trailers, reserved) if keeps => {
                ReplayableBody::Whole(reserved.hold(bytes), trailers)
            }
            begun => ReplayableBody::Once(Some(begun.into_body())),
        };
        Ok(Self { parts, body, is_arriving, waited: Waited::default() })
    }

    /// A request with a key, whose body is there already.
    pub(crate) async fn held(request: Request<Body>, keeps: bool) -> Result<Self, BoxError> {
        let (parts, body) = request.into_parts();
        let body = match keeps {
            true => {
                let whole = body.collect().await?;
                let trailers = whole.trailers().cloned();
                ReplayableBody::Whole(whole.to_bytes(), trailers)
            }
            false => ReplayableBody::Once(Some(body)),
        };
        Ok(Self { parts, body, is_arriving: false, waited: Waited::default() })
    }

    pub(crate) fn method(&self) -> &Method {
        &self.parts.method
    }

    /// What its client asks for beside an answer.
    pub(crate) fn upgrade(&self) -> Option<Upgrade> {
        self.parts.extensions.get().cloned()
    }

    pub(crate) fn origin(&self) -> Origin {
        origin(&self.parts.extensions)
    }

    /// Whether its client still sends it.
    pub(crate) fn is_arriving(&self) -> bool {
        self.is_arriving
    }

    /// Whether most of this time went by while the upstream waited for the client's body.
    pub(crate) fn kept_waiting(&self, patience: Duration) -> bool {
        self.waited.until() > patience / 2
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.body.is_kept()
    }

    /// The request of the next attempt, for this answer.
    pub(crate) fn request(&mut self, answer: &Answer) -> Request<Body> {
        if self.body.is_kept() {
            let body = self.body.next_body().unwrap_or_default();
            return Request::from_parts(self.parts.clone(), body);
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        std::mem::swap(&mut parts, &mut self.parts);
        let body = match self.body.next_body() {
            None => Body::empty(),
            Some(body) if body.is_end_stream() => body,
            Some(body) => {
                self.waited.begin();
                let (waited, answer) = (self.waited.clone(), answer.clone());
                Body::new(Passing { body, waited, answer })
            }
        };
        Request::from_parts(parts, body)
    }
}

/// hyper leaves out the body of a GET whose length the client has not said.
fn announce_length(request: &mut Request<Body>) {
    let is_known = request.headers().contains_key(header::CONTENT_LENGTH)
        || request.body().size_hint().exact().is_some();
    if !is_known && !request.body().is_end_stream() {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}

/// When the upstream last waited for the body, in milliseconds after the request left.
#[derive(Clone, Default)]
struct Waited {
    began: Option<Instant>,
    until: Arc<AtomicU64>,
}

impl Waited {
    const STILL: u64 = u64::MAX;

    fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    fn until(&self) -> Duration {
        Duration::from_millis(self.until.load(Ordering::Relaxed))
    }

    fn waits(&self) {
        self.until.store(Self::STILL, Ordering::Relaxed);
    }

    fn goes_on(&self) {
        // Most pieces are there when hyper asks for them.
        if self.until.load(Ordering::Relaxed) == Self::STILL {
            let time = self.began.map_or(Duration::ZERO, |began| began.elapsed());
            let millis = u64::try_from(time.as_millis()).unwrap_or(Self::STILL);
            self.until.store(millis, Ordering::Relaxed);
        }
    }
}

/// A client's body on its way. While hyper does not ask for a piece, the body waits for the upstream; while
/// it asks in vain, the upstream waits for the client.
struct Passing {
    body: Body,
    waited: Waited,
    /// Counts for as long as this goes on.
    answer: Answer,
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // With HTTP/2 the upstream would be sent the rest also when there is nothing to answer.
        if self.answer.is_left() {
            return Poll::Ready(Some(Err("its client left the answer".into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Pending => self.waited.waits(),
            Poll::Ready(_) => self.waited.goes_on(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
