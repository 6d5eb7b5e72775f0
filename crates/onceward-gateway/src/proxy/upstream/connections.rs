//! The connections of keyed requests. Each request gets one with a [`Gate`], which knows its deadline
//! before the request is handed over.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use http::{Extensions, HeaderValue, Request, Response, Uri, header, uri::Scheme};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::connect::Connection as _,
    rt::{TokioExecutor, TokioTimer},
};
use onceward::{Body, BoxError, server::Deadline};
use tokio::time::{Instant, sleep, timeout_at};
use tower_service::Service;

use super::{
    CONNECTION_WINDOW, Line, MAX_READ, PING, Pending, Protocol, STREAM_WINDOW, SendFailure, broken,
    chain,
    gate::{Gate, Gated, Late, Pass},
    no_upgrade,
    sockets::{Bounded, Socket},
};
use crate::observe::metrics::UpstreamFailure;

/// A keyed request never goes out on a connection that was idle for longer: the upstream may be
/// closing it in this moment, and then the gateway could not tell whether the request arrived.
const FRESH: Duration = Duration::from_millis(900);

#[derive(Clone)]
pub(crate) struct Gating(pub(crate) Bounded);

impl Service<Uri> for Gating {
    type Response = Gated<Socket>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Gated<Socket>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let stream = self.0.call(target);
        Box::pin(async { Ok(Gated::new(stream.await?)) })
    }
}

/// The connections to one upstream; clones are the same.
#[derive(Clone)]
pub(crate) struct Connections {
    shared: Arc<ConnectionState>,
}

struct ConnectionState {
    connector: HttpsConnector<Gating>,
    base: Uri,
    protocol: Protocol,
    kept: Mutex<Kept>,
    /// With HTTP/2 all requests of a line share one connection: the others wait until it is there.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    links: Vec<Link>,
    is_swept: bool,
}

/// One connection. With HTTP/2 clones are the same, and the list keeps it while requests use it.
struct Link {
    /// With HTTP/2, whose requests it takes. They are never more than an upstream has streams for.
    line: Line,
    sender: Sender,
    gate: Arc<Gate>,
    used_at: Instant,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// An answer's head, or the request if it was not taken.
type Sent = Result<Response<Incoming>, TrySendError<Request<Body>>>;

impl Connections {
    pub(crate) fn new(connector: HttpsConnector<Gating>, base: Uri, protocol: Protocol) -> Self {
        let (kept, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { shared: Arc::new(ConnectionState { connector, base, protocol, kept, connecting }) }
    }

    /// Sends a request whose URI is whole, and gives the answer's head. No byte of it leaves after the
    /// deadline; what is certain about that is in the failure. With `listens` an answer may come later.
    pub(crate) async fn exchange(
        &self,
        mut request: Request<Body>,
        line: Line,
        patience: Duration,
        (deadline, listens): (Deadline, bool),
    ) -> Result<Response<Incoming>, SendFailure> {
        // What the kernel has taken leaves for as long as the connection is open: not after the deadline.
        let until = (Instant::now() + patience).min(deadline.instant());
        if self.shared.protocol == Protocol::Http1 {
            to_origin_form(&mut request);
        }
        loop {
            let (link, is_reused) = self.link(line, until, deadline).await?;
            let Ok(pass) = link.gate.begin(deadline) else {
                return Err(not_sent(deadline, "there was a connection, but too late"));
            };
            // In a box: it may outlive this call.
            let mut sending = Box::pin(link.send(request));
            let Ok((link, answer)) = timeout_at(until, &mut sending).await else {
                if listens && pass.has_left() {
                    let late = self.shared.clone().late_answer(sending, pass);
                    return Err(SendFailure::TimedOut(Some(Pending(Box::pin(late)))));
                }
                return Err(match pass.give_up() {
                    true => not_sent(deadline, "the upstream took no byte of the request in time"),
                    false => SendFailure::TimedOut(None),
                });
            };
            let mut error = match answer {
                Ok(response) => {
                    pass.answered();
                    self.shared.keep_when_idle(link);
                    return no_upgrade(response);
                }
                Err(error) => error,
            };
            if let Some(unsent) = error.take_message().filter(|_| is_reused) {
                // The upstream had closed the connection before the request was handed over.
                request = unsent;
                continue;
            }
            return Err(match broken(&error.into_error()) {
                SendFailure::MaybeSent(reason) if pass.give_up() => not_sent(deadline, &reason),
                failure => failure,
            });
        }
    }

    async fn link(
        &self,
        line: Line,
        until: Instant,
        deadline: Deadline,
    ) -> Result<(Link, bool), SendFailure> {
        if let Some(link) = self.shared.reuse(line) {
            return Ok((link, true));
        }
        let made = timeout_at(until, self.shared.new_link(line)).await;
        made.unwrap_or_else(|_| Err(not_sent(deadline, "no connection was made in time")))
    }
}

impl ConnectionState {
    /// An answer that comes after its time. Dropped before that, it ends its connection.
    async fn late_answer(
        self: Arc<Self>,
        sending: impl Future<Output = (Link, Sent)>,
        pass: Pass,
    ) -> Option<Response<Incoming>> {
        pass.retire();
        let (link, answer) = sending.await;
        let response = answer.ok()?;
        pass.answered();
        self.keep_when_idle(link);
        no_upgrade(response).ok()
    }

    async fn new_link(self: &Arc<Self>, line: Line) -> Result<(Link, bool), SendFailure> {
        if self.protocol == Protocol::Http1 {
            return Ok((self.connect(line).await?, false));
        }
        let _turn = self.connecting.lock().await;
        if let Some(link) = self.reuse(line) {
            return Ok((link, true));
        }
        let link = self.connect(line).await?;
        if let Some(same) = link.shared() {
            self.keep(same);
        }
        Ok((link, false))
    }

    /// Until here no byte of any request has left: every failure is one to connect.
    async fn connect(&self, line: Line) -> Result<Link, SendFailure> {
        let mut connector = self.connector.clone();
        let ready = std::future::poll_fn(|context| connector.poll_ready(context)).await;
        ready.map_err(|error| no_connection(&chain(&*error)))?;
        let stream = connector.call(self.base.clone()).await;
        let stream = stream.map_err(|error| no_connection(&chain(&*error)))?;
        let mut extras = Extensions::new();
        stream.connected().get_extras(&mut extras);
        let gate = extras.remove::<Arc<Gate>>().expect("the connector makes no other");
        let sender = match self.protocol {
            Protocol::Http1 => {
                let (mut sender, connection) = http1::Builder::new()
                    .max_buf_size(MAX_READ)
                    .handshake(stream)
                    .await
                    .map_err(|error| no_connection(&chain(&error)))?;
                let task = tokio::spawn(connection.with_upgrades());
                gate.exclusive(task.abort_handle());
                sender.ready().await.map_err(|error| no_connection(&chain(&error)))?;
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let handshake = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    // A client that reads its answer slowly shall not stop the others on the connection.
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .keep_alive_interval(Some(PING))
                    .keep_alive_timeout(PING)
                    .handshake(stream);
                let (mut sender, connection) =
                    handshake.await.map_err(|error| no_connection(&chain(&error)))?;
                tokio::spawn(connection);
                sender.ready().await.map_err(|error| no_connection(&chain(&error)))?;
                Sender::Http2(sender)
            }
        };
        Ok(Link { line, sender, gate, used_at: Instant::now() })
    }

    /// A connection that was used a moment ago.
    fn reuse(&self, line: Line) -> Option<Link> {
        let mut kept = self.kept();
        let unusable: Vec<_> = kept.links.extract_if(.., |link| !link.is_usable()).collect();
        let link = match self.protocol {
            Protocol::Http1 => kept.links.pop()?,
            Protocol::Http2 => {
                let link = kept.links.iter_mut().find(|link| link.line == line)?;
                link.used_at = Instant::now();
                link.shared()?
            }
        };
        drop(kept);
        drop(unusable);
        Some(link)
    }

    /// With HTTP/1 a connection is free when its answer was read to the end.
    fn keep_when_idle(self: &Arc<Self>, mut link: Link) {
        match &link.sender {
            Sender::Http2(_) => self.used(&link.gate),
            Sender::Http1(sender) if sender.is_ready() => self.keep(link),
            Sender::Http1(_) => {
                let shared = Arc::downgrade(self);
                tokio::spawn(async move {
                    let Sender::Http1(sender) = &mut link.sender else { return };
                    if sender.ready().await.is_ok()
                        && let Some(shared) = shared.upgrade()
                    {
                        shared.keep(link);
                    }
                });
            }
        }
    }

    fn used(&self, gate: &Arc<Gate>) {
        let mut kept = self.kept();
        if let Some(link) = kept.links.iter_mut().find(|link| Arc::ptr_eq(&link.gate, gate)) {
            link.used_at = Instant::now();
        }
    }

    fn keep(self: &Arc<Self>, mut link: Link) {
        link.used_at = Instant::now();
        let mut kept = self.kept();
        kept.links.push(link);
        if !mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what is not used any more, as long as there is something.
async fn sweep(shared: Weak<ConnectionState>) {
    loop {
        sleep(FRESH).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut kept = shared.kept();
        let unusable: Vec<_> = kept.links.extract_if(.., |link| !link.is_usable()).collect();
        kept.is_swept = !kept.links.is_empty();
        let is_done = !kept.is_swept;
        drop(kept);
        drop(unusable);
        if is_done {
            return;
        }
    }
}

impl Link {
    async fn send(mut self, request: Request<Body>) -> (Self, Sent) {
        let sent = self.sender.try_send(request).await;
        (self, sent)
    }

    fn is_usable(&self) -> bool {
        let is_closed = match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        };
        !is_closed && self.gate.is_open() && self.used_at.elapsed() < FRESH
    }

    /// The same connection for another request, if it can have several.
    fn shared(&self) -> Option<Self> {
        let Self { line, sender: Sender::Http2(sender), gate, used_at } = self else { return None };
        let (sender, gate) = (Sender::Http2(sender.clone()), gate.clone());
        Some(Self { line: *line, sender, gate, used_at: *used_at })
    }
}

impl Sender {
    async fn try_send(&mut self, request: Request<Body>) -> Sent {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
    }
}

/// HTTP/1.1 names the host in a header, and only the path in the target.
fn to_origin_form(request: &mut Request<Body>) {
    let uri = mem::take(request.uri_mut());
    if !request.headers().contains_key(header::HOST)
        && let Some(host) = host(&uri)
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    *request.uri_mut() = path.parse().expect("it was the path of a URI");
}

fn host(uri: &Uri) -> Option<HeaderValue> {
    let (host, is_tls) = (uri.host()?, uri.scheme() == Some(&Scheme::HTTPS));
    let usual = if is_tls { 443 } else { 80 };
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => HeaderValue::from_str(&format!("{host}:{port}")).ok(),
        None => HeaderValue::from_str(host).ok(),
    }
}

fn no_connection(reason: &str) -> SendFailure {
    SendFailure::NotSent(UpstreamFailure::Connect, reason.to_owned())
}

/// Certainly no byte has left.
fn not_sent(deadline: Deadline, reason: &str) -> SendFailure {
    match deadline.is_over() {
        true => SendFailure::NotSent(UpstreamFailure::Late, format!("{Late}: {reason}")),
        false => no_connection(reason),
    }
}
