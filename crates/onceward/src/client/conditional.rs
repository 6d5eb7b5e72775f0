//! Conditional updates: no caller overwrites a state that it has not seen.
//!
//! Read, change, and write only if nothing changed meanwhile; if something did, read again. That makes
//! a PUT or PATCH safe against others, and against itself: when an attempt went unanswered and the
//! server refuses the next with 412, the first may have been the change. So the client reads the state and
//! compares; if that does not show the change, the caller gets [`ConditionalError::Unknown`], and the
//! client changes nothing a second time.

use std::{error::Error, fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use onceward_core::retry::{Backoff, Stop};
use serde_json::Value;
use tower_service::Service;

use super::{
    Body, BoxError, CallError, ETag, Report, Retry, adapters::exchange::Served, call::call,
    driver::Environment as _,
};

/// How often a state is read anew after a conflict, if not said otherwise.
const ROUNDS: u32 = 5;
/// Answers are read whole up to this length, to compare them.
const MAX_READ: usize = 8 << 20;
/// Two clients that cross each other must not do so again in step.
const BETWEEN: Backoff =
    Backoff::Full { base: Duration::from_millis(20), cap: Duration::from_secs(2) };

/// Changes resources under `If-Match`, and creates them under `If-None-Match: *`.
///
/// ```
/// use onceward::{Body, client::{Conditional, Next, Retry}};
/// # use bytes::Bytes;
/// # use http_body_util::Full;
/// # async fn example<S>(service: S) -> Result<(), onceward::client::ConditionalError>
/// # where
/// #     S: tower::Service<http::Request<Body>, Response = http::Response<Full<Bytes>>>
/// #         + Clone + Send + 'static,
/// #     S::Future: Send,
/// #     S::Error: Into<onceward::BoxError>,
/// # {
/// let mut conditional = Conditional::new(&Retry::standard(), service);
/// let cart = "http://shop.example/carts/7".parse().expect("it is a URI");
/// conditional.update(&cart, |current| {
///     let mut text = String::from_utf8(current.body.to_vec())?;
///     text.push_str("\none more");
///     Ok(Some(Next::put(text)))
/// }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Conditional<S> {
    retry: Retry,
    service: S,
    headers: HeaderMap,
    rounds: u32,
}

/// A resource as it is now.
///
/// ```
/// use onceward::{BoxError, client::{Current, Next}};
///
/// fn close(current: &Current) -> Result<Option<Next>, BoxError> {
///     Ok((current.body != "closed").then(|| Next::put("closed")))
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Current {
    /// Its version.
    pub etag: ETag,
    /// The header lines of the answer.
    pub headers: HeaderMap,
    /// Its state.
    pub body: Bytes,
}

/// What a resource is to become.
///
/// ```
/// use onceward::client::Next;
///
/// let put = Next::put("{\"items\":[]}").content_type("application/json");
/// let patch = Next::patch("{\"items\":[]}").content_type("application/merge-patch+json");
/// # let _ = (put, patch);
/// ```
#[derive(Clone, Debug)]
pub struct Next {
    method: Method,
    body: Bytes,
    content_type: Option<HeaderValue>,
}

impl Next {
    /// This state instead of the old one.
    pub fn put(body: impl Into<Bytes>) -> Self {
        Self { method: Method::PUT, body: body.into(), content_type: None }
    }

    /// The old state with these changes. Comparing does not show what an unanswered attempt has done:
    /// that ends as [`ConditionalError::Unknown`].
    pub fn patch(body: impl Into<Bytes>) -> Self {
        Self { method: Method::PATCH, body: body.into(), content_type: None }
    }

    /// What kind of text it is.
    #[must_use]
    pub fn content_type(mut self, kind: &'static str) -> Self {
        self.content_type = Some(HeaderValue::from_static(kind));
        self
    }
}

/// How an update succeeded.
///
/// ```
/// fn tell(updated: &onceward::client::Updated) {
///     println!("after {} rounds, version {:?}", updated.rounds, updated.etag);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Updated {
    /// The status of the answer; `None` if there was nothing to do, or no answer.
    pub status: Option<StatusCode>,
    /// The version after it, if the server sent one.
    pub etag: Option<ETag>,
    /// How often the state was read and changed: 1 without conflicts.
    pub rounds: u32,
    /// An attempt that went unanswered had done it already: the state was read and is as asked for.
    pub found_done: bool,
}

impl<S, R> Conditional<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    /// Calls of this service, retried by these rules.
    #[must_use]
    pub fn new(retry: &Retry, service: S) -> Self {
        let retry = retry.clone().whole_answers(MAX_READ);
        Self { retry, service, headers: HeaderMap::new(), rounds: ROUNDS }
    }

    /// Header lines of every request, such as credentials.
    #[must_use]
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// How often to read and change in all; at least once.
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds.max(1);
        self
    }

    /// Reads a resource, lets `change` say what it is to become, and writes that if nothing changed
    /// meanwhile; else again, a bounded number of times.
    ///
    /// # Errors
    ///
    /// It is not changed, or not known to be: the error says which.
    pub async fn update(
        &mut self,
        uri: &Uri,
        mut change: impl FnMut(&Current) -> Result<Option<Next>, BoxError>,
    ) -> Result<Updated, ConditionalError> {
        let mut waited = Duration::ZERO;
        for round in 1..=self.rounds {
            let current = self.read(uri).await?;
            let Some(next) = change(&current).map_err(ConditionalError::Change)? else {
                let etag = Some(current.etag);
                return Ok(Updated { status: None, etag, rounds: round, found_done: false });
            };
            let written = self.write(uri, &next, (header::IF_MATCH, current.etag.line())).await;
            let answer = match self.known(uri, &next, written).await? {
                Written::Answered(answer) => answer,
                Written::Found(status, etag) => {
                    return Ok(Updated { status, etag, rounds: round, found_done: true });
                }
            };
            if answer.status().is_success() {
                return Ok(updated(&answer, round));
            }
            let status = answer.status();
            if status != StatusCode::PRECONDITION_FAILED && status != StatusCode::CONFLICT {
                return Err(ConditionalError::Refused(answer));
            }
            waited = BETWEEN.wait(round, waited, self.retry.random());
            tokio::time::sleep(waited).await;
        }
        Err(ConditionalError::Conflict(self.rounds))
    }

    /// Creates a resource that must not exist.
    ///
    /// # Errors
    ///
    /// It exists already, and is another one; or it could not be created.
    pub async fn create(&mut self, uri: &Uri, next: Next) -> Result<Updated, ConditionalError> {
        let any = (header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        let written = self.write(uri, &next, any).await;
        match self.known(uri, &next, written).await? {
            Written::Found(status, etag) => {
                Ok(Updated { status, etag, rounds: 1, found_done: true })
            }
            Written::Answered(answer) => match answer.status() {
                status if status.is_success() => Ok(updated(&answer, 1)),
                StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => {
                    Err(ConditionalError::Exists)
                }
                _ => Err(ConditionalError::Refused(answer)),
            },
        }
    }

    /// What became of a write. Where an attempt may have done it: is the state what was asked for?
    async fn known(
        &mut self,
        uri: &Uri,
        next: &Next,
        written: Result<Response<Bytes>, ConditionalError>,
    ) -> Result<Written, ConditionalError> {
        let report = match &written {
            Ok(answer) => answer.extensions().get(),
            Err(ConditionalError::Call(error)) => Some(error.report()),
            Err(_) => None,
        };
        let unknown = |report: &&Report| report.stop.is_some_and(Stop::is_unknown);
        let Some(report) = report.filter(unknown).cloned() else {
            return written.map(Written::Answered);
        };
        if next.method == Method::PUT
            && let Ok(now) = self.get(uri).await
            && same(now.body(), &next.body)
        {
            let status = written.ok().map(|answer| answer.status());
            return Ok(Written::Found(status, ETag::of(now.headers())));
        }
        Err(ConditionalError::Unknown(Box::new(report)))
    }

    async fn read(&mut self, uri: &Uri) -> Result<Current, ConditionalError> {
        let (parts, body) = self.get(uri).await?.into_parts();
        match ETag::of(&parts.headers).filter(|etag| !etag.is_weak()) {
            Some(etag) => Ok(Current { etag, headers: parts.headers, body }),
            None => Err(ConditionalError::NoETag),
        }
    }

    async fn get(&mut self, uri: &Uri) -> Result<Response<Bytes>, ConditionalError> {
        let answer = self.send(self.request(Method::GET, uri, Body::empty())).await?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(ConditionalError::Refused(answer)),
        }
    }

    async fn write(
        &mut self,
        uri: &Uri,
        next: &Next,
        (name, value): (header::HeaderName, HeaderValue),
    ) -> Result<Response<Bytes>, ConditionalError> {
        let mut request = self.request(next.method.clone(), uri, next.body.clone().into());
        request.headers_mut().insert(name, value);
        if let Some(kind) = &next.content_type {
            request.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
        }
        self.send(request).await
    }

    fn request(&self, method: Method, uri: &Uri, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Bytes>, ConditionalError> {
        let mut exchange = Served(self.service.clone());
        let response = call(&self.retry, &mut exchange, request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(ConditionalError::CutShort)?.to_bytes();
        Ok(Response::from_parts(parts, body))
    }
}

enum Written {
    /// The server said so.
    Answered(Response<Bytes>),
    /// No answer said so, but the state is the wanted one.
    Found(Option<StatusCode>, Option<ETag>),
}

fn updated(answer: &Response<Bytes>, rounds: u32) -> Updated {
    let etag = ETag::of(answer.headers());
    Updated { status: Some(answer.status()), etag, rounds, found_done: false }
}

/// Whether two states are the same: byte by byte, or as JSON, which servers write as they like.
fn same(one: &[u8], other: &[u8]) -> bool {
    let json = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    one == other || json(one).is_some_and(|one| json(other) == Some(one))
}

/// Why a conditional update failed.
///
/// ```
/// use onceward::client::ConditionalError;
///
/// assert_eq!(ConditionalError::Exists.to_string(), "it exists already");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ConditionalError {
    /// There was no answer, and it did not happen, as far as is known.
    Call(CallError),
    /// It may have been changed: an attempt was not answered, and the state is not what it was to
    /// become, or cannot be compared. Look at it before you change it again.
    Unknown(Box<Report>),
    /// The server refused, with this answer.
    Refused(Response<Bytes>),
    /// An answer was longer than is read here, and cut short.
    CutShort(BoxError),
    /// The server names no version, or only a weak one: nothing can be promised.
    NoETag,
    /// It changed between reading and writing, so many times.
    Conflict(u32),
    /// What was to be created exists.
    Exists,
    /// The caller's function gave an error instead of a next state.
    Change(BoxError),
}

impl From<CallError> for ConditionalError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl fmt::Display for ConditionalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Unknown(report) => write!(
                f,
                "it may have been changed: {} requests, and none with an answer that says so; look at it before you change it again",
                report.attempts.len()
            ),
            Self::Refused(answer) => write!(f, "the server refused with {}", answer.status()),
            Self::CutShort(_) => f.write_str("the answer was cut short"),
            Self::NoETag => f.write_str(
                "the server sends no strong ETag, so that a change by another client would not be \
                 noticed; nothing was changed: let the server send one",
            ),
            Self::Conflict(rounds) => write!(
                f,
                "other clients changed it {rounds} times between reading and writing, and this change \
                 was not made; try again later"
            ),
            Self::Exists => f.write_str("it exists already"),
            Self::Change(error) => {
                write!(f, "the caller gave no next state, and nothing was changed: {error}")
            }
        }
    }
}

impl Error for ConditionalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::CutShort(error) | Self::Change(error) => Some(&**error),
            _ => None,
        }
    }
}
