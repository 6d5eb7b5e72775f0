//! Two connections behind an upgrade: what comes on one of them goes out on the other.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional},
    select,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
    try_join,
};

use super::upstream::{answers::Answer, state::InFlight};
use crate::observe::metrics;

/// How long the upgrade itself may take, when its answer was made.
const BEGIN: Duration = Duration::from_secs(15);

/// How long one side may be silent when the other has closed.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long what has come may take to go out, when the gateway ends a tunnel.
const GOODBYE: Duration = Duration::from_secs(1);

/// A tunnel that begins when the client has its answer; clones are the same. It counts as the answer on its
/// way that it is, and with a limit of its route as a request at the upstream.
#[derive(Clone)]
pub(super) struct Tunnel {
    client: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    _places: (Answer, Option<Arc<InFlight>>),
}

impl Tunnel {
    pub(super) fn new(
        (client, upstream): (OnUpgrade, OnUpgrade),
        idle: Duration,
        answer: Answer,
        in_flight: Option<InFlight>,
    ) -> Self {
        Self { client, upstream, idle, _places: (answer, in_flight.map(Arc::new)) }
    }

    /// Copies until both sides have closed, one of them broke off or was silent for too long, or the
    /// gateway drains.
    pub(super) async fn run(self, drains: impl Future<Output = ()>) {
        let Self { client, upstream, idle, _places } = self;
        let begun = timeout(BEGIN, async { try_join!(client, upstream) }).await;
        let Ok(Ok((client, upstream))) = begun else {
            tracing::debug!("a connection was not upgraded: one side had gone");
            return;
        };
        let _open = metrics::TUNNELS.hold();
        let why = copied(TokioIo::new(client), TokioIo::new(upstream), idle, drains).await;
        tracing::debug!(why, "a tunnel ended");
    }
}

/// Copies in both directions, and says why that ended.
async fn copied(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    drains: impl Future<Output = ()>,
) -> &'static str {
    let traffic = Traffic::new();
    let (mut client, mut upstream) = (Side::new(client, &traffic), Side::new(upstream, &traffic));
    let mut copying = pin!(copy_bidirectional(&mut client, &mut upstream));
    let why = select! {
        ended = &mut copying => {
            return ended.map_or("one side broke off", |_| "both sides closed");
        }
        () = traffic.silence(idle) => "it was silent for too long",
        () = drains => "the gateway drains",
    };
    traffic.end();
    let _ = timeout(GOODBYE, copying).await;
    why
}

/// What the two sides of a tunnel have in common.
struct Traffic {
    last: Mutex<Instant>,
    one_has_closed: AtomicBool,
    closes: Notify,
    /// Nothing is read any more; what was read still goes out.
    is_over: AtomicBool,
}

impl Traffic {
    fn new() -> Self {
        let last = Mutex::new(Instant::now());
        let (one_has_closed, is_over) = (AtomicBool::default(), AtomicBool::default());
        Self { last, one_has_closed, closes: Notify::new(), is_over }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn moved(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn closed(&self) {
        self.one_has_closed.store(true, Ordering::Relaxed);
        self.closes.notify_one();
        self.moved();
    }

    /// Waits until nothing has moved for so long, or for less where one side has closed.
    async fn silence(&self, idle: Duration) {
        loop {
            let most = match self.one_has_closed.load(Ordering::Relaxed) {
                true => idle.min(LAST_WORDS),
                false => idle,
            };
            let until = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + most;
            if until <= Instant::now() {
                return;
            }
            select! {
                () = sleep_until(until) => {}
                () = self.closes.notified() => {}
            }
        }
    }
}

/// One side of a tunnel, as the other one sees it.
struct Side<'a, S> {
    stream: S,
    traffic: &'a Traffic,
}

impl<'a, S> Side<'a, S> {
    fn new(stream: S, traffic: &'a Traffic) -> Self {
        Self { stream, traffic }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Side<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.traffic.is_over.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        match buffer.filled().len() == before {
            true => self.traffic.closed(),
            false => self.traffic.moved(),
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Side<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.traffic.moved();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::JoinHandle,
        time::sleep,
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    /// Both ends of a tunnel that holds so many bytes, and why it ended.
    fn tunnel(
        holds: usize,
        drains: impl Future<Output = ()> + Send + 'static,
    ) -> (DuplexStream, DuplexStream, JoinHandle<&'static str>) {
        let ((client, near), (far, upstream)) = (duplex(holds), duplex(holds));
        (client, upstream, tokio::spawn(copied(near, far, HOUR, drains)))
    }

    #[tokio::test(start_paused = true)]
    async fn what_either_side_says_keeps_it_open() {
        let (mut client, mut upstream, ended) = tunnel(64, pending());
        let begun = Instant::now();
        for _ in 0..3 {
            sleep(HOUR - SECOND).await;
            client.write_all(b"ping").await.unwrap();
            sleep(HOUR - SECOND).await;
            upstream.write_all(b"pong").await.unwrap();
        }
        let said_last = Instant::now();
        assert_eq!(ended.await.unwrap(), "it was silent for too long");
        assert_eq!((said_last.elapsed(), begun.elapsed()), (HOUR, 7 * HOUR - 6 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn when_one_side_has_closed_the_other_may_speak_until_it_is_silent() {
        let (mut client, mut upstream, ended) = tunnel(64, pending());
        sleep(HOUR / 2).await;
        client.shutdown().await.unwrap();
        assert_eq!(upstream.read(&mut [0; 8]).await.unwrap(), 0);
        for _ in 0..10 {
            sleep(LAST_WORDS - SECOND).await;
            upstream.write_all(b".").await.unwrap();
        }
        let said_last = Instant::now();
        assert_eq!(ended.await.unwrap(), "it was silent for too long");
        assert_eq!(said_last.elapsed(), LAST_WORDS);
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "..........");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_come_goes_out_when_the_gateway_drains() {
        let (mut client, mut upstream, ended) = tunnel(64, sleep(SECOND));
        upstream.write_all(&[b'x'; 100]).await.unwrap();
        sleep(2 * SECOND - SECOND / 2).await;
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!((heard.len(), upstream.read(&mut [0; 8]).await.unwrap()), (100, 0));
        assert_eq!(ended.await.unwrap(), "the gateway drains");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_nothing_holds_up_no_drain() {
        let (client, mut upstream, ended) = tunnel(64, sleep(SECOND));
        let begun = Instant::now();
        upstream.write_all(&[b'x'; 128]).await.unwrap();
        assert_eq!(ended.await.unwrap(), "the gateway drains");
        assert_eq!(begun.elapsed(), SECOND + GOODBYE);
        drop(client);
    }
}
