//! An upstream in this process that fails as it is told, and remembers what it saw.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use crate::gateway_support::{Pipe, eventually};

/// What it does with a request, after it has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// 201 `done`, or 200 to a GET.
    Good,
    /// Closes the connection instead of an answer.
    Reset,
    /// Answers so.
    Status(u16),
    /// 503 with this `Retry-After`.
    Busy(&'static str),
    /// 409 with this `Retry-After`.
    Taken(&'static str),
    /// Answers so, with `Retry-After: 0`.
    Hinted(u16),
    /// Answers so when it is released.
    Held(u16),
    /// Sends its head, and breaks off.
    CutShort,
    /// A byte of the answer every 50 ms, without end.
    Trickle,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn line(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) struct Switched {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
}

struct Shared {
    seen: Mutex<Vec<ReceivedRequest>>,
    /// What it does next, and then.
    next: Mutex<(VecDeque<Mode>, Mode)>,
    released: watch::Sender<bool>,
}

impl Switched {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            next: Mutex::new((VecDeque::new(), Mode::Good)),
            released: watch::Sender::new(false),
        });
        let address = listener.local_addr().unwrap();
        let serving = Some(tokio::spawn(serve(listener, shared.clone())));
        Self { address, shared, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on.
    pub(crate) fn mode(&self, mode: Mode) {
        self.shared.next.lock().unwrap().1 = mode;
    }

    /// What it does with the next requests, one after the other.
    pub(crate) fn then(&self, modes: impl IntoIterator<Item = Mode>) {
        self.shared.next.lock().unwrap().0.extend(modes);
    }

    /// Lets those go on that are held, now and later.
    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Holds again what comes from now on, and forgets what it was told to do next.
    pub(crate) fn start_anew(&self) {
        self.shared.next.lock().unwrap().0.clear();
        self.shared.released.send_replace(false);
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    pub(crate) async fn arrival(&self, count: usize) {
        eventually("requests arrive", async || self.count() >= count).await;
    }

    /// Refuses connections, and drops those that it has.
    pub(crate) async fn close(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    pub(crate) async fn reopen(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serving = Some(tokio::spawn(serve(listener, self.shared.clone())));
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Aborted with this task, if it is.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        let service = service_fn(move |request| answer(request, shared.clone()));
        connections.spawn(async move {
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = serving.await;
        });
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, &'static str> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "the request is not whole")?.to_bytes();
    let (method, path) = (parts.method.to_string(), parts.uri.to_string());
    let usual = if method == "GET" || method == "HEAD" { 200 } else { 201 };
    let mode = {
        let mut next = shared.next.lock().unwrap();
        shared.seen.lock().unwrap().push(ReceivedRequest {
            method,
            path,
            headers: parts.headers,
            body,
        });
        next.0.pop_front().unwrap_or_else(|| next.1.clone())
    };
    match mode {
        Mode::Good => Ok(text(usual, "done")),
        Mode::Reset => Err("as it was told"),
        Mode::Status(status) => Ok(text(status, "as it was told")),
        Mode::Busy(hint) => {
            let mut answer = text(503, "busy");
            answer.headers_mut().insert("retry-after", hint.parse().unwrap());
            Ok(answer)
        }
        Mode::Taken(hint) => {
            let mut answer = text(409, "taken");
            answer.headers_mut().insert("retry-after", hint.parse().unwrap());
            Ok(answer)
        }
        Mode::Hinted(status) => {
            let mut answer = text(status, "not now");
            answer.headers_mut().insert("retry-after", "0".parse().unwrap());
            Ok(answer)
        }
        Mode::Held(status) => {
            let mut released = shared.released.subscribe();
            let _ = released.wait_for(|released| *released).await;
            Ok(text(status, "held"))
        }
        Mode::CutShort => {
            let (sender, body) = Pipe::new();
            tokio::spawn(async move {
                let _ = sender.send(Frame::data(Bytes::from_static(b"do"))).await;
                // The head is on its way by then.
                sleep(Duration::from_millis(50)).await;
            });
            let response = Response::builder().status(usual).header("content-length", 100);
            Ok(response.body(body.boxed()).unwrap())
        }
        Mode::Trickle => {
            let (sender, body) = Pipe::new();
            tokio::spawn(async move {
                while sender.send(Frame::data(Bytes::from_static(b"."))).await.is_ok() {
                    sleep(Duration::from_millis(50)).await;
                }
            });
            Ok(Response::builder().status(usual).body(body.boxed()).unwrap())
        }
    }
}

fn text(status: u16, text: &'static str) -> Answer {
    let body = Full::new(Bytes::from_static(text.as_bytes())).boxed();
    Response::builder().status(status).body(body).unwrap()
}
