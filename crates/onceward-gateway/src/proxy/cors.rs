//! What browsers need before pages of other origins may send requests and read answers: the CORS protocol
//! of the Fetch standard.
//!
//! Written by hand: tower-http's layer decides for all origins alone, but for those that the configuration does
//! not name the upstream may decide, and the lines of both meet in one answer.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use onceward::Body;

use crate::config::{Route, WebOrigin};

use super::key;

/// What the gateway itself says to clients. A page can read such headers only if they are exposed.
const EXPOSED: &str = "idempotency-completed, idempotency-expires, idempotent-replayed, link, location, \
                       onceward-fallback, onceward-operation, onceward-outcome, onceward-redacted, \
                       onceward-unprotected, preference-applied, retry-after, stripe-should-retry, \
                       www-authenticate";

/// What clients say to it besides their keys, so that no retry has to ask again.
const TAKEN: &str = "authorization, content-type, idempotency-key, onceward-attempt, onceward-deadline, \
                     onceward-priority, prefer";

/// How long a browser may remember what it may send, in seconds: none remembers it for longer than a day.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// The origins that the configuration names.
pub(super) struct Cors {
    origins: Vec<WebOrigin>,
    /// Headers that pages may send.
    taken: String,
}

/// Whose page asks, as the gateway names it to the browser: an origin, or any.
pub(super) struct Page(HeaderValue);

impl Cors {
    pub(super) fn new(origins: &[WebOrigin], routes: &[Route]) -> Self {
        let keys = key::header_names(routes).into_iter().filter(|name| name != "idempotency-key");
        let taken = keys.fold(TAKEN.to_owned(), |taken, name| format!("{taken}, {name}"));
        Self { origins: origins.to_vec(), taken }
    }

    /// The page that sends a request, if its origin is named.
    pub(super) fn page<B>(&self, request: &Request<B>) -> Option<Page> {
        let mut lines = request.headers().get_all(header::ORIGIN).iter();
        let (origin, None) = (lines.next()?, lines.next()) else { return None };
        self.origins.iter().find_map(|named| match named {
            WebOrigin::Any => Some(Page(HeaderValue::from_static("*"))),
            WebOrigin::Named(name) => (origin == name).then(|| Page(origin.clone())),
        })
    }

    /// The answer to a browser that asks what such a page may send; `None`: it is an ordinary request.
    pub(super) fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        const ASKED: [HeaderName; 2] =
            [header::ACCESS_CONTROL_REQUEST_METHOD, header::ACCESS_CONTROL_REQUEST_HEADERS];
        let asked = request.headers();
        let method = asked.get(&ASKED[0]).filter(|_| request.method() == Method::OPTIONS)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        let asked = asked.get(&ASKED[1]).and_then(|line| line.to_str().ok());
        let taken = asked.map_or(self.taken.clone(), |asked| format!("{}, {asked}", self.taken));
        if let Ok(taken) = HeaderValue::try_from(taken) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, taken);
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        for name in ASKED {
            headers.append(header::VARY, name.into());
        }
        Some(response)
    }

    /// Lets such a page read an answer. For a named origin the upstream's word does not count; for others no
    /// other does.
    pub(super) fn tell(&self, page: Option<&Page>, headers: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        // Also for those that are not named: a cache must not give their answer to a page that is.
        headers.append(header::VARY, header::ORIGIN.into());
        let Some(Page(origin)) = page else { return };
        // A browser neither sends cookies to a service that allows every page, nor shows what came of it.
        match origin == "*" {
            true => headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS),
            false => headers
                .insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")),
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = HeaderValue::from_static(EXPOSED);
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}
