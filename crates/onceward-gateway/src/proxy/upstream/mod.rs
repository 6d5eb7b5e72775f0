//! The connections to the upstream, and what a failure on them proves.

pub(super) mod answers;
pub(super) mod classify;
pub(super) mod connections;
pub(super) mod counted_body;
pub(super) mod deliver;
pub(super) mod gate;
pub(super) mod refusal;
pub(super) mod replayable;
pub(super) mod shares;
pub(super) mod sockets;
pub(super) mod state;

use std::{error::Error, fmt, time::Duration};

use h2::Reason;
use http::{
    HeaderValue, Request, Response, StatusCode, Uri, Version, header,
    uri::{InvalidUriParts, PathAndQuery, Scheme},
};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use onceward::{Body, server::Deadline, store::BoxFuture, telemetry::Begun};
use tokio::{sync::Semaphore, time::timeout};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::{
    observe::{
        UpstreamSpan,
        metrics::{self, UpstreamFailure, UpstreamLane},
    },
    proxy::upgrade::Upgrade,
};
use {
    connections::{Connections, Gating},
    sockets::{Bounded, Sockets},
};

const CONNECT: Duration = Duration::from_secs(5);

const IDLE: Duration = Duration::from_secs(60);

/// How many answers are on one connection of HTTP/2, with a key or without: as many as every server should allow
/// (RFC 9113, section 6.5.2). More get another connection, so that answers that their clients do not take
/// hold neither the streams nor the window that others need.
const STREAMS: u32 = 100;

/// How much of one answer may be on its way with HTTP/2.
pub(super) const STREAM_WINDOW: u32 = 128 << 10;

/// More than all streams of a connection can take up.
pub(super) const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;

/// How much of an answer is read ahead with HTTP/1.1, and how long its head may be.
pub(super) const MAX_READ: usize = 64 << 10;

/// How often the gateway pings a connection of HTTP/2, and how long the upstream may take to answer.
pub(super) const PING: Duration = Duration::from_secs(5);

type Pool = Client<HttpsConnector<Bounded>, Body>;

#[derive(Clone)]
pub(crate) struct Upstream {
    base: Uri,
    address: String,
    protocol: Protocol,
    keyed: Connections,
    /// With HTTP/2 one connection each, and one more for what is no answer to a client.
    other: Vec<Pool>,
    /// To the services that hooks ask.
    asked: Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Which connections a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// New ones, or those that were used a moment ago; no byte leaves after the deadline of the claim.
    /// Where an external effect is at stake, a late answer is worth listening for.
    Keyed {
        deadline: Deadline,
        listens: bool,
    },
    Other,
}

/// Which connection of HTTP/2 a request goes on: an extension of that request. Those with a key have
/// connections of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line(usize);

impl Line {
    /// Of the answer with this number.
    pub(super) fn of(number: u32) -> Self {
        Self((number / STREAMS) as usize)
    }
}

#[derive(Debug)]
pub(crate) enum SendFailure {
    /// The upstream has certainly not seen the request.
    NotSent(UpstreamFailure, String),
    /// Whether it has seen the request is not known.
    MaybeSent(String),
    /// The client broke off while its request was sent on.
    BrokenOff(String),
    /// It took too long; the answer may still come.
    TimedOut(Option<Pending>),
}

/// An answer that comes after its time; dropped, it ends its connection.
pub(crate) struct Pending(pub(super) BoxFuture<'static, Option<Response<Incoming>>>);

impl fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pending")
    }
}

impl SendFailure {
    fn kind(&self) -> UpstreamFailure {
        match self {
            Self::NotSent(kind, _) => *kind,
            Self::MaybeSent(_) | Self::BrokenOff(_) => UpstreamFailure::Broken,
            Self::TimedOut(_) => UpstreamFailure::TimedOut,
        }
    }
}

impl fmt::Display for SendFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(_, reason) => write!(formatter, "the request was not sent: {reason}"),
            Self::MaybeSent(reason) => write!(formatter, "there is no answer: {reason}"),
            Self::BrokenOff(reason) => write!(formatter, "the request broke off: {reason}"),
            Self::TimedOut(_) => formatter.write_str("the answer took too long"),
        }
    }
}

impl Upstream {
    /// `base` is scheme, host and port; `h2c` and `h2` stand for HTTP/2, in the clear or with TLS.
    pub(crate) fn new(base: &Uri) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Self::bounded(base, &Sockets::new(Semaphore::MAX_PERMITS), 0)
    }

    /// With so many connections at most, for so many answers.
    pub(super) fn bounded(
        base: &Uri,
        sockets: &Sockets,
        answers: usize,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let (scheme, protocol) = match base.scheme_str() {
            Some("h2c") => (Scheme::HTTP, Protocol::Http2),
            Some("h2") => (Scheme::HTTPS, Protocol::Http2),
            Some("https") => (Scheme::HTTPS, Protocol::Http1),
            _ => (Scheme::HTTP, Protocol::Http1),
        };
        let address = base.to_string();
        let mut parts = base.clone().into_parts();
        parts.scheme = Some(scheme);
        let base = Uri::from_parts(parts)?;
        let trust = trust(&base)?;
        let client = |protocol, idle| {
            let connector = connector(trust.clone(), protocol, tcp(sockets));
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(idle)
                .timer(TokioTimer::new())
                .http2_only(protocol == Protocol::Http2)
                .http1_max_buf_size(MAX_READ)
                // A client that reads its answer slowly shall not stop the others on the connection.
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .http2_keep_alive_interval(Some(PING))
                .http2_keep_alive_timeout(PING)
                .build(connector)
        };
        let headers = match protocol {
            Protocol::Http1 => 1,
            Protocol::Http2 => answers.div_ceil(STREAMS as usize) + 1,
        };
        let other = (0..headers).map(|_| client(protocol, IDLE)).collect();
        let asked = client(Protocol::Http1, IDLE);
        let gating = connector(trust.clone(), protocol, Gating(tcp(sockets)));
        let keyed = Connections::new(gating, base.clone(), protocol);
        Ok(Self { base, address, protocol, keyed, other, asked })
    }

    /// Where it is, as the configuration says it.
    pub(crate) fn address(&self) -> &str {
        self.address.trim_end_matches('/')
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Sends a request on; its URI is the client's path and query. Gives the answer's head.
    pub(crate) async fn send(
        &self,
        lane: Lane,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, SendFailure> {
        let target = std::mem::take(request.uri_mut());
        let uri = self.whole(target);
        *request.uri_mut() = uri
            .map_err(|error| SendFailure::NotSent(UpstreamFailure::Malformed, error.to_string()))?;
        if self.protocol == Protocol::Http2 {
            // HTTP/2 has the host in the target; the client's own is in `Forwarded`.
            request.headers_mut().remove(header::HOST);
            request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let watched = Watched::begin(lane.into(), &mut request);
        let upgrade = request.extensions_mut().remove::<Upgrade>();
        let line = request.extensions().get().copied().unwrap_or(Line(usize::MAX));
        let other = &self.other[line.0.min(self.other.len() - 1)];
        let answer = match (lane, self.protocol) {
            (Lane::Keyed { deadline, listens }, _) => {
                let bounds = (deadline, listens);
                self.keyed.exchange(http_11(request), line, patience, bounds).await
            }
            // A client in a hurry must not take the connection from all others: a wait shorter than a ping
            // does not show whether it is dead.
            (Lane::Other, Protocol::Http2) => exchange(other, request, patience, PING).await,
            (Lane::Other, Protocol::Http1) => {
                let answer = timeout(patience, other.request(http_11(request))).await;
                let answer = answer.map_err(|_| SendFailure::TimedOut(None));
                answer.and_then(|answer| classified(answer, upgrade.as_ref()))
            }
        };
        watched.end(&answer);
        answer
    }

    /// Asks another service than the upstream: the URI is whole.
    pub(crate) async fn ask(
        &self,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, SendFailure> {
        let watched = Watched::begin(UpstreamLane::Asked, &mut request);
        let answer = exchange(&self.asked, request, patience, Duration::ZERO).await;
        watched.end(&answer);
        answer
    }

    /// The same path and query, there.
    fn whole(&self, target: Uri) -> Result<Uri, InvalidUriParts> {
        let mut parts = target.into_parts();
        parts.scheme = self.base.scheme().cloned();
        parts.authority = self.base.authority().cloned();
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        Uri::from_parts(parts)
    }
}

struct Watched {
    lane: UpstreamLane,
    begun: Begun,
    span: Option<UpstreamSpan>,
}

impl Watched {
    fn begin(lane: UpstreamLane, request: &mut Request<Body>) -> Self {
        Self { lane, begun: Begun::now(), span: UpstreamSpan::begin(request) }
    }

    fn end(self, answer: &Result<Response<Incoming>, SendFailure>) {
        let answer = answer.as_ref().map(Response::status).map_err(SendFailure::kind);
        match answer {
            Ok(_) => metrics::UPSTREAM_DURATION.since(self.lane, self.begun),
            Err(failure) => metrics::UPSTREAM_FAILURES.add((self.lane, failure)),
        }
        if let Some(span) = self.span {
            span.end(answer);
        }
    }
}

impl From<Lane> for UpstreamLane {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Keyed { .. } => Self::Keyed,
            Lane::Other => Self::Other,
        }
    }
}

/// A connection without an answer for that suspicious time is not used again.
async fn exchange(
    client: &Pool,
    mut request: Request<Body>,
    patience: Duration,
    suspicious: Duration,
) -> Result<Response<Incoming>, SendFailure> {
    let connection = capture_connection(&mut request);
    match timeout(patience, client.request(http_11(request))).await {
        Ok(answer) => classified(answer, None),
        Err(_) => match &*connection.connection_metadata() {
            None => {
                let reason = "no connection was made in time".to_owned();
                Err(SendFailure::NotSent(UpstreamFailure::Connect, reason))
            }
            Some(connection) => {
                // With HTTP/2 others use it, too, and it may be dead.
                if patience >= suspicious {
                    connection.poison();
                }
                Err(SendFailure::TimedOut(None))
            }
        },
    }
}

fn http_11(mut request: Request<Body>) -> Request<Body> {
    *request.version_mut() = Version::HTTP_11;
    request
}

fn classified(
    answer: Result<Response<Incoming>, legacy::Error>,
    upgrade: Option<&Upgrade>,
) -> Result<Response<Incoming>, SendFailure> {
    match answer {
        Ok(response) if upgrade.is_some_and(|upgrade| upgrade.allows(response.headers())) => {
            Ok(response)
        }
        Ok(response) => no_upgrade(response),
        Err(error) if error.is_connect() => {
            Err(SendFailure::NotSent(UpstreamFailure::Connect, chain(&error)))
        }
        Err(error) => Err(broken(&error)),
    }
}

/// The gateway has not asked for an upgrade, or for another one, so there is no answer.
pub(super) fn no_upgrade(response: Response<Incoming>) -> Result<Response<Incoming>, SendFailure> {
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            Err(SendFailure::MaybeSent("the upstream switched protocols".to_owned()))
        }
        _ => Ok(response),
    }
}

/// What an error on an open connection proves.
pub(super) fn broken(error: &(dyn Error + 'static)) -> SendFailure {
    if is_disowned(error) {
        return SendFailure::NotSent(UpstreamFailure::Disowned, chain(error));
    }
    match is_of_client(error) {
        true => SendFailure::BrokenOff(chain(error)),
        false => SendFailure::MaybeSent(chain(error)),
    }
}

/// Whether the upstream itself says that it did not look at the request: RFC 9113, section 8.7.
///
/// A GOAWAY is no such word. It means that for requests above its last id, but hyper shows it also at
/// one below that was just handed over, and the two look the same.
fn is_disowned(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut of_http2 = causes.filter_map(|error| error.downcast_ref::<h2::Error>());
    of_http2.any(|error| {
        error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)
    })
}

/// Whether it was the body of the request that failed, and not the upstream.
fn is_of_client(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|error| error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user))
}

/// Connections of TCP that count.
/// Sends messages to a sink at this address. It follows nothing and repeats nothing.
pub(crate) fn sink_client(
    url: &Uri,
) -> Result<Client<HttpsConnector<Bounded>, Body>, Box<dyn Error + Send + Sync>> {
    let sockets = Sockets::new(Semaphore::MAX_PERMITS);
    let connector = connector(trust(url)?, Protocol::Http1, tcp(&sockets));
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .retry_canceled_requests(false)
        .http1_max_buf_size(MAX_READ)
        .build(connector))
}

fn tcp(sockets: &Sockets) -> Bounded {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.enforce_http(false);
    sockets.bound(tcp, CONNECT)
}

fn connector<C>(trust: ClientConfig, protocol: Protocol, tcp: C) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(trust).https_or_http();
    match protocol {
        Protocol::Http1 => builder.enable_http1().wrap_connector(tcp),
        Protocol::Http2 => builder.enable_http2().wrap_connector(tcp),
    }
}

/// The authorities that the host trusts. A gateway without TLS to its upstream starts without any.
fn trust(base: &Uri) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    match ClientConfig::builder().with_native_roots() {
        Ok(trusting) => Ok(trusting.with_no_client_auth()),
        Err(error) if base.scheme() == Some(&Scheme::HTTPS) => Err(error.into()),
        Err(_) => {
            let none = RootCertStore::empty();
            Ok(ClientConfig::builder().with_root_certificates(none).with_no_client_auth())
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
