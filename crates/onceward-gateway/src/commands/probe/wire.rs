//! Sends requests, one connection each, at a polite pace, and remembers them.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Empty, Full, Limited, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_rustls::ConfigBuilderExt as _;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::{Barrier, oneshot},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

use super::{BoxError, answer::Answer, chain, curl, operation::Attempt};

const MAX_ANSWER: usize = 32 << 20;

type Sent = Result<Answer, BoxError>;
type Body = BoxBody<Bytes, Infallible>;
type Sender = SendRequest<Body>;

/// Why something could not be asked: it says nothing about the API.
#[derive(Debug)]
pub(super) struct Unasked(pub(super) String);

impl fmt::Display for Unasked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Unasked {}

pub(super) struct Wire {
    limits: Limits,
    /// Made when the first `https` URL is met.
    tls: OnceLock<TlsConnector>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time_out: Duration,
    pub(super) rate: u32,
    pub(super) most: u32,
    /// Nothing is sent, and every request is taken for a success.
    pub(super) is_dry: bool,
}

struct State {
    next: Instant,
    sent: u32,
    /// As commands, since they were last taken.
    seen: Vec<String>,
    /// Why a request was sent again, since it was last taken.
    unsteady: Option<String>,
}

impl Wire {
    pub(super) fn new(limits: Limits) -> Self {
        let state = State { next: Instant::now(), sent: 0, seen: Vec::new(), unsteady: None };
        Self { limits, tls: OnceLock::new(), state: Mutex::new(state) }
    }

    pub(super) fn is_dry(&self) -> bool {
        self.limits.is_dry
    }

    pub(super) fn sent(&self) -> u32 {
        self.state().sent
    }

    pub(super) fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state().seen)
    }

    pub(super) async fn send(&self, attempt: &Attempt) -> Sent {
        self.admit(1, attempt, String::new()).await?;
        let sent = self.ask(attempt).await;
        let Some(reason) = passing(&sent) else {
            return sent;
        };
        self.state().unsteady = Some(reason);
        sleep(Duration::from_millis(200)).await;
        self.admit(1, attempt, String::new()).await?;
        let again = self.ask(attempt).await;
        passing(&again).map_or(again, |reason| Err(Unasked(reason).into()))
    }

    /// Why a request was sent again since this was last asked, if one was.
    pub(super) fn take_unsteady(&self) -> Option<String> {
        self.state().unsteady.take()
    }

    /// Sends one that changes nothing: it is not counted, and waits for no turn.
    pub(super) async fn ask(&self, attempt: &Attempt) -> Sent {
        if self.is_dry() {
            return Ok(imagined(self.sent()));
        }
        let begun = Instant::now();
        let exchange = async {
            let mut sender = connect(self.tls(&attempt.url)?, &attempt.url).await?;
            exchange(&mut sender, attempt, begun).await
        };
        bounded(self.limits.time_out, exchange).await
    }

    pub(super) async fn send_together(&self, attempt: &Attempt, count: u32) -> Vec<Sent> {
        if let Err(trouble) =
            self.admit(count, attempt, format!("   # {count} at the same time")).await
        {
            return vec![Err(trouble)];
        }
        if self.is_dry() {
            return (0..count).map(|_| Ok(imagined(self.sent()))).collect();
        }
        let tls = match self.tls(&attempt.url) {
            Ok(tls) => tls.cloned(),
            Err(trouble) => return vec![Err(trouble)],
        };
        let line = Arc::new(Barrier::new(count as usize));
        let one = || {
            let (tls, line, attempt) = (tls.clone(), line.clone(), attempt.clone());
            bounded(self.limits.time_out, async move {
                let connected = connect(tls.as_ref(), &attempt.url).await;
                // Who has no connection must not keep the others waiting.
                line.wait().await;
                exchange(&mut connected?, &attempt, Instant::now()).await
            })
        };
        let together: JoinSet<Sent> = (0..count).map(|_| one()).collect();
        let asked = |sent: Sent| match passing(&sent) {
            Some(reason) => Err(Unasked(reason).into()),
            None => sent,
        };
        together.join_all().await.into_iter().map(asked).collect()
    }

    /// Sends one and closes the connection a while after all of it was sent, without an answer.
    pub(super) async fn send_and_leave(
        &self,
        attempt: &Attempt,
        after: Duration,
    ) -> Result<(), BoxError> {
        self.admit(1, attempt, format!(" --max-time {:.3}", after.as_secs_f64())).await?;
        if self.is_dry() {
            return Ok(());
        }
        let leave = async {
            let mut sender = connect(self.tls(&attempt.url)?, &attempt.url).await?;
            let (request, sent) = watched(request(attempt)?);
            let later = async {
                let _ = sent.await;
                sleep(after).await;
            };
            tokio::select! {
                answer = answer(&mut sender, request, Instant::now()) => answer.map(drop),
                () = later => Ok(()),
            }
        };
        let left = bounded(self.limits.time_out, leave).await;
        left.map_err(|trouble| gone(&trouble).map_or(trouble, |reason| Unasked(reason).into()))
    }

    /// Waits for its turn, and writes down what is sent, and how.
    async fn admit(&self, count: u32, attempt: &Attempt, how: String) -> Result<(), BoxError> {
        let turn = {
            let mut state = self.state();
            if state.sent + count > self.limits.most {
                let most = self.limits.most;
                return Err(Unasked(format!("--max-requests allows no more than {most}")).into());
            }
            state.sent += count;
            state.seen.push(curl::command(attempt) + &how);
            let turn = state.next.max(Instant::now());
            state.next = turn + Duration::from_secs(1) / self.limits.rate.max(1) * count;
            turn
        };
        if !self.is_dry() {
            sleep_until(turn).await;
        }
        Ok(())
    }

    fn tls(&self, url: &Uri) -> Result<Option<&TlsConnector>, BoxError> {
        if url.scheme() != Some(&Scheme::HTTPS) {
            return Ok(None);
        }
        if self.tls.get().is_none() {
            let config = ClientConfig::builder().with_native_roots()?.with_no_client_auth();
            let _ = self.tls.set(TlsConnector::from(Arc::new(config)));
        }
        Ok(self.tls.get())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is about the moment or the way, and says nothing about keys.
fn passing(sent: &Sent) -> Option<String> {
    match sent {
        // Who says that the outcome is unknown is there, and has answered.
        Ok(answer) if answer.is_unknown() => None,
        Ok(answer) if matches!(answer.status.as_u16(), 502..=504) => {
            Some(format!("the API is not there at times: {}", answer.shown()))
        }
        Ok(_) => None,
        Err(trouble) => gone(trouble),
    }
}

fn gone(trouble: &BoxError) -> Option<String> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    let first: &(dyn Error + 'static) = &**trouble;
    let mut causes = std::iter::successors(Some(first), |&error| error.source());
    let is_gone = causes.any(|error| {
        let error = error.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| {
            matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset)
        })
    });
    is_gone.then(|| format!("the API is not there at times: {}", chain(first)))
}

async fn connect(tls: Option<&TlsConnector>, url: &Uri) -> Result<Sender, BoxError> {
    let host = url.host().ok_or("the URL has no host")?.trim_matches(['[', ']']);
    let usual = if tls.is_some() { 443 } else { 80 };
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(usual))).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => start(stream).await,
        Some(tls) => {
            let name = ServerName::try_from(host.to_owned())?;
            start(tls.connect(name, stream).await?).await
        }
    }
}

async fn start<S>(stream: S) -> Result<Sender, BoxError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Its end is seen where the answer is read; it is closed when the sender is gone.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

async fn exchange(sender: &mut Sender, attempt: &Attempt, begun: Instant) -> Sent {
    answer(sender, request(attempt)?, begun).await
}

async fn answer(sender: &mut Sender, request: Request<Body>, begun: Instant) -> Sent {
    let response = sender.send_request(request).await?;
    let (parts, body) = response.into_parts();
    let body = read(body).await?;
    if parts.status == StatusCode::TOO_MANY_REQUESTS {
        let text = "the API limits how much is sent (429); lower --rate or --duplicates";
        return Err(Unasked(text.to_owned()).into());
    }
    Ok(Answer { status: parts.status, headers: parts.headers, body, took: begun.elapsed() })
}

fn request(attempt: &Attempt) -> Result<Request<Body>, BoxError> {
    let target = attempt.url.path_and_query().map_or("/", |path| path.as_str());
    let body = match &attempt.body {
        None => Empty::new().boxed(),
        // Whose length is not known goes in chunks.
        Some(body) if attempt.chunked => Full::new(body.clone()).map_frame(|frame| frame).boxed(),
        Some(body) => Full::new(body.clone()).boxed(),
    };
    let mut request = Request::builder().method(attempt.method.clone()).uri(target).body(body)?;
    let authority = attempt.url.authority().map_or("", |authority| authority.as_str());
    let lines = request.headers_mut();
    lines.insert(header::HOST, authority.parse()?);
    for (name, value) in attempt.lines() {
        lines.append(name, value);
    }
    Ok(request)
}

/// The same request, and what ends when the connection has taken all of it: it drops the body then.
fn watched(request: Request<Body>) -> (Request<Body>, oneshot::Receiver<Infallible>) {
    let (held, sent) = oneshot::channel();
    let holding = move |error| {
        let _ = &held;
        error
    };
    (request.map(|body| body.map_err(holding).boxed()), sent)
}

async fn read(body: Incoming) -> Result<Bytes, BoxError> {
    Ok(Limited::new(body, MAX_ANSWER).collect().await?.to_bytes())
}

async fn bounded<T>(
    time: Duration,
    work: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    let too_late = |_| format!("no answer within {} s", time.as_secs_f64());
    timeout(time, work).await.map_err(too_late)?
}

/// What is answered when nothing is sent: every request does something new.
fn imagined(number: u32) -> Answer {
    let (status, headers) = (StatusCode::OK, HeaderMap::new());
    Answer { status, headers, body: format!("{number}").into(), took: Duration::ZERO }
}
