//! A sink that turns any idempotent API into a consumer: one POST for each message, under the message's id.

mod answer;
mod request;

use std::{error::Error, fmt, future::poll_fn, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use onceward_core::{
    BoxFuture,
    message::{Message, Sent, Topic},
    retry::Class,
};
use tokio::time::timeout;
use tower_service::Service;

use super::{Attempt, Sink};
use crate::{
    client::{Body, BoxError},
    http::{Read, read},
};

/// Sends each message as a POST with `Idempotency-Key`, which is the message's id.
///
/// A server that keeps that key carries each message out once: a service with the layer of this crate, or any
/// service behind the gateway. What its answers mean is in `docs/messages.md` in the repository. Redirects are
/// not followed. Requests have these headers, besides those of the message and of the sink:
///
/// | header | value |
/// |---|---|
/// | `Idempotency-Key` | the message's id, the same on every attempt |
/// | `Content-Type` | the message's own, or `application/json` |
/// | `Onceward-Topic`, `Onceward-Aggregate` | what it is about, and whose order it keeps |
/// | `Onceward-Attempt`, `Onceward-Deadline` | which attempt it is, and for how many milliseconds the relay waits |
/// | `traceparent` | the span of the attempt, or the producer's |
///
#[cfg_attr(feature = "reqwest", doc = "```")]
#[cfg_attr(not(feature = "reqwest"), doc = "```ignore")]
/// use onceward::outbox::HttpSink;
///
/// let billing = HttpSink::new("https://billing.example/events")?
///     .topics(["order.*", "refund.requested"])
///     .header("authorization", "Bearer secret")?;
/// # let _ = billing;
/// # Ok::<(), onceward::outbox::HttpSinkError>(())
/// ```
pub struct HttpSink<S> {
    service: S,
    url: Uri,
    topics: Option<Vec<String>>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// A refusal says in its body what it is; more of it is not read.
const MAX_READ: usize = 64 << 10;

/// For the rest of an answer whose meaning is known: read to its end, its connection can be used again.
const REST: Duration = Duration::from_secs(1);

#[cfg(feature = "reqwest")]
impl HttpSink<crate::client::ReqwestService> {
    /// For how long a connection may take, until the sink counts as down.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Sends to this URL, with a client and connections of its own.
    ///
    /// # Errors
    ///
    /// It is no URL of HTTP, or no client can be made.
    pub fn new(url: &str) -> Result<Self, HttpSinkError> {
        let client = crate::client::reqwest_client()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Self::CONNECT_TIMEOUT);
        let client = client.build().map_err(|error| HttpSinkError::Client(error.to_string()))?;
        Self::over(crate::client::ReqwestService::new(client), url)
    }
}

impl<S> HttpSink<S> {
    /// Sends to this URL with any client over `http`: hyper's, or one with layers of your own.
    ///
    /// The client must follow no redirects and retry nothing; and it bounds how long a connection may take.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use onceward::{Body, outbox::{HttpSink, HttpSinkError, Sink}};
    /// use tower_service::Service;
    ///
    /// fn sink<S>(client: S) -> Result<impl Sink, HttpSinkError>
    /// where
    ///     S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    ///     S::Error: Into<onceward::BoxError>,
    ///     S::Future: Send,
    /// {
    ///     HttpSink::over(client, "http://billing.internal/events")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// It is no URL of HTTP.
    pub fn over(service: S, url: &str) -> Result<Self, HttpSinkError> {
        let wrong = || HttpSinkError::Url(without_secrets(url));
        let url: Uri = url.parse().map_err(|_| wrong())?;
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_http || !has_host || has_user {
            return Err(wrong());
        }
        Ok(Self { service, url, topics: None, headers: Vec::new() })
    }

    /// Takes these topics only: each by its name, or all with a prefix, as `order.*`.
    #[must_use]
    pub fn topics<'a>(mut self, topics: impl IntoIterator<Item = &'a str>) -> Self {
        self.topics = Some(topics.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sends this header line with every message. It replaces one of the message with the same name.
    ///
    /// # Errors
    ///
    /// It is no header line, or its name is one of those that the sink or HTTP itself sets.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HttpSinkError> {
        let wrong = || HttpSinkError::Header(name.to_owned());
        let line = HeaderName::try_from(name).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        if request::is_ours(&line) {
            return Err(wrong());
        }
        value.set_sensitive(true);
        self.headers.push((line, value));
        Ok(self)
    }
}

impl<S, B> HttpSink<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn send_once(&self, message: &Message, attempt: &Attempt) -> Result<Sent, Class> {
        let request = request::of(&self.url, &self.headers, message, attempt);
        let mut service = self.service.clone();
        let failed = |error: S::Error| error.into();
        let ready = poll_fn(|context| service.poll_ready(context)).await.map_err(failed);
        let response = match ready {
            Ok(()) => service.call(request).await.map_err(failed),
            Err(error) => Err(error),
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return answer::of_failure(&*error),
        };
        let (parts, body) = response.into_parts();
        let head = answer::Head::read(parts.status, &parts.headers, &self.url);
        if !head.asks_for_body() {
            let sent = answer::meaning(parts.status, &head, None);
            let _ = timeout(REST, read(body, |length| length <= MAX_READ)).await;
            return Ok(sent);
        }
        let body = match read(body, |length| length <= MAX_READ).await {
            Ok(Read::Whole(bytes, _)) => Some(bytes),
            Ok(Read::More(..)) | Err(_) => None,
        };
        Ok(answer::meaning(parts.status, &head, body.as_ref().map(Bytes::as_ref)))
    }
}

impl<S, B> Sink for HttpSink<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn takes(&self, topic: &Topic) -> bool {
        let is_it = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => topic.as_str().starts_with(prefix),
            None => topic.as_str() == pattern,
        };
        self.topics.as_ref().is_none_or(|topics| topics.iter().any(is_it))
    }

    fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let mut tried = 0;
            loop {
                match self.send_once(message, attempt).await {
                    Ok(sent) => return sent,
                    // The server closed an idle connection as the request was handed to it: nothing was sent. A
                    // pool may have several such connections.
                    Err(_) if tried < 8 => tried += 1,
                    Err(_) => {
                        let why = "the server closes its connections before a request".to_owned();
                        return Sent::SinkDown { after: None, why };
                    }
                }
            }
        })
    }
}

impl<S> fmt::Debug for HttpSink<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "HttpSink({})",
            self.url.authority().map_or("", |authority| authority.as_str())
        )
    }
}

/// Up to where a URL has no user, path or query: errors are logged.
fn without_secrets(url: &str) -> String {
    let scheme = url.find("://").map_or(0, |end| end + 3);
    let rest = &url[scheme..];
    let rest = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    format!("{}{}", &url[..scheme], rest.rsplit('@').next().unwrap_or_default())
}

/// Why a sink of HTTP cannot be made.
///
/// ```
/// use onceward::outbox::HttpSinkError;
///
/// let error = HttpSinkError::Url("ftp://billing".into());
/// assert!(error.to_string().contains("http://"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpSinkError {
    /// This is no URL to send to.
    Url(String),
    /// A line of this name cannot be sent, or not as a header of the sink.
    Header(String),
    /// No client can be made.
    Client(String),
}

impl fmt::Display for HttpSinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(
                formatter,
                "`{url}` is no URL that messages can be sent to: it begins with http:// or https://, has a host, and \
                 no user or password; put credentials into a header"
            ),
            Self::Header(name) => write!(
                formatter,
                "the header `{name}` cannot be given to a sink: its name or value is not one of HTTP, or the sink sets \
                 it for each message"
            ),
            Self::Client(error) => {
                write!(
                    formatter,
                    "no client for HTTP can be made, so that nothing would be delivered: {error}"
                )
            }
        }
    }
}

impl Error for HttpSinkError {}
