//! Accepts connections and serves them: HTTP/1.1 and HTTP/2, in the clear or with TLS.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, uri::Scheme};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use onceward::{Body, server::peer_network, telemetry::event};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::{
    identity::{Origin, Peer, certified},
    observe::metrics,
};

use super::{
    framing,
    opening::Opening,
    streams::{Pieces, Streams},
    tunnel::Tunnel,
    upstream::shares::{Holder, SharedShares},
};

/// How long a client may take to agree on TLS, and to send the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// How much of a head is read before it is refused.
const MAX_HEAD: usize = 64 << 10;

/// How many requests one connection of HTTP/2 may have at the same time.
const MAX_STREAMS: u32 = 200;

/// How much of one answer hyper holds for a client of HTTP/2 that has granted a window and does not read.
const MAX_SENDING: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Yes,
    No,
}

/// What a listener allows.
pub(crate) struct Entrance<A> {
    pub(crate) counted: Counted,
    /// How many connections are served at once; others wait to be accepted.
    pub(crate) connections: usize,
    /// What the client at an address may do.
    pub(crate) allowed: A,
}

#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    /// The part of all connections that it may have.
    pub(crate) share: f64,
    /// How long it may take none of the bytes of its answer.
    pub(crate) stall: Duration,
}

/// Tells connections that the listener has stopped: requests end, and tunnels are closed.
#[derive(Default)]
pub(super) struct Drain {
    requests: GracefulShutdown,
    tunnels: watch::Sender<()>,
}

/// What one connection learns it by.
pub(super) struct DrainWatcher {
    requests: Watcher,
    tunnels: watch::Receiver<()>,
}

impl Drain {
    pub(super) fn watcher(&self) -> DrainWatcher {
        DrainWatcher { requests: self.requests.watcher(), tunnels: self.tunnels.subscribe() }
    }

    /// Ends when all connections have ended.
    async fn shutdown(self) {
        self.tunnels.send_replace(());
        self.requests.shutdown().await;
        self.tunnels.closed().await;
    }
}

/// Serves until `stopped`, then lets what is under way end, for so long.
pub(crate) async fn serve<F, Fut>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: F,
    (stopped, patience): (impl Future<Output = ()>, Duration),
    entrance: Entrance<impl Fn(IpAddr) -> Allowed>,
) where
    F: Fn(Request<Incoming>, Arc<Peer>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    let Entrance { counted, connections, allowed } = entrance;
    let (state, drain) = (Arc::new(Semaphore::new(connections)), Drain::default());
    let (guests, most) = (SharedShares::default(), u32::try_from(connections).unwrap_or(u32::MAX));
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let accepted = async {
            let place = state.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (stream, address, place) = tokio::select! {
            () = &mut stopped => break,
            (accepted, place) = accepted => match accepted {
                Ok((stream, address)) => (stream, address, place),
                Err(error) => {
                    // The process may be out of file descriptors: open connections will give some back.
                    tracing::warn!(event = event::CONNECTION_FAILED, %error, "a connection could not be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        // A small answer shall not wait for the next one.
        let _ = stream.set_nodelay(true);
        let Allowed { share, stall } = allowed(address.ip());
        let origin = Origin { address: Some(peer_network(address.ip())), connection: None };
        let (is_unmatched, is_arriving) = (false, false);
        let holder = Holder { origin, peer_share: share, is_unmatched, is_arriving };
        let Some(guest) = guests.try_take(holder, most) else {
            metrics::CONNECTIONS_REFUSED.add(());
            continue;
        };
        let (tls, answer, watcher) = (tls.clone(), answer.clone(), drain.watcher());
        tokio::spawn(async move {
            let _open = (counted == Counted::Yes).then(|| metrics::CONNECTIONS.hold());
            let served = match tls {
                None => {
                    let peer = Peer::new(address, &Scheme::HTTP, None);
                    connection(stream, peer, answer, watcher, stall).await
                }
                Some(tls) => match agree(&tls, stream, address).await {
                    Ok((stream, peer)) => connection(stream, peer, answer, watcher, stall).await,
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = served {
                tracing::debug!(event = event::CONNECTION_FAILED, %address, %error, "a connection ended with an error");
            }
            drop((place, guest));
        });
    }
    drop(listener);
    if timeout(patience, drain.shutdown()).await.is_err() {
        tracing::warn!(
            event = event::CONNECTION_FAILED,
            "some connections did not end in time and were closed"
        );
    }
}

async fn agree(
    tls: &TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<(tokio_rustls::server::TlsStream<TcpStream>, Arc<Peer>)> {
    let agreed = timeout(HEAD, tls.accept(stream)).await;
    let stream = agreed.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let shown = stream.get_ref().1.peer_certificates();
    let certified = shown.and_then(|chain| certified(chain.first()?));
    Ok((stream, Peer::new(address, &Scheme::HTTPS, certified)))
}

pub(super) async fn connection<S, F, Fut>(
    stream: S,
    peer: Arc<Peer>,
    answer: F,
    watcher: DrainWatcher,
    stall: Duration,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>, Arc<Peer>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    let begun = Arc::new(AtomicBool::new(false));
    let upgraded = Arc::new(Mutex::new(None::<Tunnel>));
    let (begins, upgrades) = (begun.clone(), upgraded.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        begins.store(true, Ordering::Relaxed);
        let version = request.version();
        // In a box: the block below would have room for it twice, in each connection that does nothing.
        let answering =
            framing::checked(request).map(|request| Box::pin(answer(request, peer.clone())));
        let upgrades = upgrades.clone();
        async move {
            let mut response = match answering {
                Ok(answering) => answering.await,
                Err(problem) => framing::refusal(problem, version),
            };
            if let Some(tunnel) = response.extensions_mut().remove() {
                *upgrades.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
            }
            Ok::<_, Infallible>(response.map(|body| Pieces::of(body, version)))
        }
    });
    let mut builder = auto::Builder::new(Streams { stall });
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_SENDING)
        .max_header_list_size(MAX_HEAD as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let mut stream = TimeoutStream::new(Opening::of(stream));
    stream.set_write_timeout(Some(stall));
    let DrainWatcher { requests, mut tunnels } = watcher;
    {
        let serving =
            builder.serve_connection_with_upgrades(TokioIo::new(Box::pin(stream)), service);
        let mut serving = std::pin::pin!(requests.watch(serving.into_owned()));
        // hyper's own bound starts only when the first bytes have shown which HTTP it is.
        match timeout(HEAD, &mut serving).await {
            Ok(served) => served?,
            Err(_) if begun.load(Ordering::Relaxed) => serving.await?,
            Err(_) => return Err("no request came".into()),
        }
    }
    let tunnel = upgraded.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tunnel) = tunnel {
        let drains = async {
            let _ = tunnels.changed().await;
        };
        Box::pin(tunnel.run(drains)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::JoinHandle,
        time::Instant,
    };

    type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    const STALL: Duration = Duration::from_secs(60);

    /// A client's end of a connection that holds so many bytes on their way, and what becomes of it.
    fn served(state: usize) -> (DuplexStream, JoinHandle<Served>) {
        let (client, server) = duplex(state);
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), &Scheme::HTTP, None);
        let answer = |_, _| async {
            let mut response = Response::new(Body::from(vec![b'x'; 10_000]));
            *response.status_mut() = StatusCode::CREATED;
            response
        };
        let serving = async move {
            let drain = Drain::default();
            connection(server, peer, answer, drain.watcher(), STALL).await
        };
        (client, tokio::spawn(serving))
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_take_the_answer_is_left() {
        for (requests, is_half_closed) in [(1, false), (3, false), (1, true), (3, true)] {
            let (mut client, served) = served(1000);
            let begun = Instant::now();
            for _ in 0..requests {
                client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
            }
            if is_half_closed {
                client.shutdown().await.unwrap();
            }
            let _ = served.await.unwrap();
            let waited = begun.elapsed().as_secs();
            assert!(waited <= STALL.as_secs(), "{requests} {is_half_closed}: {waited}");
            assert!(is_half_closed || waited == STALL.as_secs(), "{requests}: {waited}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_the_answer_slowly_gets_it() {
        let (mut client, served) = served(1000);
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await.unwrap();
        let (mut answer, mut piece) = (Vec::new(), [0; 700]);
        loop {
            sleep(STALL / 2).await;
            match client.read(&mut piece).await.unwrap() {
                0 => break,
                count => answer.extend_from_slice(&piece[..count]),
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 201") && answer.ends_with(&[b'x'; 10_000]));
        served.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_left() {
        for word in ["", "PRI", "PRI * HTTP/2.0\r\n", "HELLO", "GET / HTTP/1.1\r\nhost: h"] {
            let (mut client, served) = served(1000);
            client.write_all(word.as_bytes()).await.unwrap();
            let begun = Instant::now();
            let _ = served.await.unwrap();
            assert!(begun.elapsed() <= 2 * HEAD, "{word:?}");
        }
    }
}
