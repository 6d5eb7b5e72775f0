//! What commands share that run until they are stopped: threads, the file, listeners, operators.

use std::{
    env, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use onceward::Body;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::terminal::BoxError;
use crate::{
    config::USUAL_FILE,
    observe::tell,
    proxy::{self, Allowed, Counted, Entrance},
};

/// How long an operator's last question may take when the process ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long an operator may take nothing of an answer.
const STALL: Duration = Duration::from_secs(60);

/// One thread for each processor, or as many as `TOKIO_WORKER_THREADS` says. One thread alone
/// shares its work with no other.
pub(super) fn runtime() -> io::Result<Runtime> {
    let said = env::var("TOKIO_WORKER_THREADS").ok().and_then(|said| said.parse().ok());
    let threads = said.or_else(|| Some(thread::available_parallelism().ok()?.get()));
    match threads {
        Some(1) => Builder::new_current_thread().enable_all().build(),
        _ => Runtime::new(),
    }
}

/// The file that is read; `None`: flags and environment say everything.
pub(super) fn configuration(said: Option<&Path>) -> Option<PathBuf> {
    if said.is_some() {
        return said.map(Path::to_owned);
    }
    let usual = Path::new(USUAL_FILE);
    usual.exists().then(|| {
        tell(&format!(
            "the configuration is ./{USUAL_FILE}, because no --config names another one"
        ));
        usual.to_owned()
    })
}

pub(super) async fn bind(option: &str, address: SocketAddr) -> Result<TcpListener, BoxError> {
    let refused = |error: io::Error| {
        let is_taken = error.kind() == io::ErrorKind::AddrInUse;
        let why = if is_taken { "another program does".to_owned() } else { error.to_string() };
        format!("cannot listen on {address}: {why}; choose another address (`{option}`)")
    };
    Ok(TcpListener::bind(address).await.map_err(refused)?)
}

pub(super) fn url(listener: &TcpListener, tls: Option<&TlsAcceptor>) -> io::Result<String> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", listener.local_addr()?))
}

/// Serves operators until the process ends, so that they can see how it does. A listener
/// for this machine alone has no TLS: no other machine can reach it.
pub(super) fn operators(
    listener: TcpListener,
    connections: usize,
    router: Router,
    tls: Option<TlsAcceptor>,
    closed: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let tls = tls.filter(|_| listener.local_addr().is_ok_and(|at| !at.ip().is_loopback()));
    tell(&format!("operators on {}", url(&listener, tls.as_ref())?));
    let answer = move |request: Request<Incoming>, _| {
        let answering = router.clone().call(request);
        async {
            let Ok(response) = answering.await;
            response.map(Body::new)
        }
    };
    let closed = async {
        let _ = closed.await;
    };
    let allowed = |_| Allowed { share: 1.0, stall: STALL };
    let entrance = Entrance { counted: Counted::No, connections, allowed };
    Ok(tokio::spawn(proxy::serve(listener, tls, answer, (closed, GOODBYE), entrance)))
}
