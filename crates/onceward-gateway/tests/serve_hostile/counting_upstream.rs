//! An upstream in this process that remembers all that it saw.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) key: Option<String>,
}

/// What happened, in its order.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<ReceivedRequest>>>);

impl Ledger {
    /// Remembers a request, and tells how many of its key there are now.
    pub(crate) fn add(&self, seen: ReceivedRequest) -> usize {
        let mut all = self.0.lock().unwrap();
        let before = all.iter().filter(|other| other.key == seen.key).count();
        all.push(seen);
        before + 1
    }

    pub(crate) fn all(&self) -> Vec<ReceivedRequest> {
        self.0.lock().unwrap().clone()
    }

    /// How often a key had an effect.
    pub(crate) fn effects(&self, key: &str) -> usize {
        self.all().iter().filter(|seen| seen.key.as_deref() == Some(key)).count()
    }
}

/// Answers every request after `delay`, with the number of effects that its key had by then.
pub(crate) async fn start(delay: Duration) -> (SocketAddr, Ledger) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), serve(listener, delay))
}

/// The same on a port that was chosen before.
pub(crate) async fn start_at(address: SocketAddr, delay: Duration) -> Ledger {
    serve(TcpListener::bind(address).await.unwrap(), delay)
}

fn serve(listener: TcpListener, delay: Duration) -> Ledger {
    let ledger = Ledger::default();
    let kept = ledger.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let ledger = ledger.clone();
            let service = service_fn(move |request| answer(request, ledger.clone(), delay));
            tokio::spawn(async move {
                // A peer may break off: then its connection is over.
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = serving.await;
            });
        }
    });
    kept
}

async fn answer(
    request: Request<Incoming>,
    ledger: Ledger,
    delay: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    // A request that is not whole was not sent.
    if body.collect().await.is_err() {
        return Ok(Response::builder().status(400).body(Full::default()).unwrap());
    }
    let key = parts.headers.get("idempotency-key");
    let key = key.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
    let (method, target) = (parts.method.to_string(), parts.uri.to_string());
    let effects = ledger.add(ReceivedRequest { method, target, key: key.clone() });
    tokio::time::sleep(delay).await;
    let text = serde_json::json!({ "effects": effects, "key": key }).to_string();
    Ok(Response::new(Full::from(text)))
}
