//! The body of a client's request, as it goes on.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, header};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use onceward::server::Body;

use super::{Routes, timed::Timed};
use crate::identity::Caller;

/// How long a client may pause within a request.
const PAUSE: Duration = Duration::from_secs(30);

/// With a bound on pauses, and without trailers that mean something in a head.
pub(super) fn of_client(
    body: Incoming,
    headers: &HeaderMap,
    routes: &Arc<Routes>,
    caller: &Arc<Caller>,
) -> Body {
    let announced = announced(headers);
    // With HTTP/1.1 only trailers that were announced are sent.
    if announced.is_empty() && !routes.upstream.speaks_http2() {
        return Body::new(Timed::pieces(body, PAUSE));
    }
    let (routes, caller) = (routes.clone(), caller.clone());
    let body = body.map_frame(move |frame| match frame.into_trailers() {
        Ok(lines) => {
            let mut lines = only(&announced, lines);
            // What outsiders must not say in the head, they must not say after the body either.
            routes.identity.strip_identity(&mut lines, &caller);
            Frame::trailers(lines)
        }
        Err(frame) => frame,
    });
    Body::new(Timed::pieces(body, PAUSE))
}

/// The names in `Trailer` lines; those that must not be there are gone already.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::TRAILER).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(','));
    names.filter_map(|name| name.trim().parse().ok()).collect()
}

fn only(names: &[HeaderName], mut lines: HeaderMap) -> HeaderMap {
    let others: Vec<HeaderName> =
        lines.keys().filter(|name| !names.contains(name)).cloned().collect();
    for name in others {
        lines.remove(name);
    }
    lines
}
