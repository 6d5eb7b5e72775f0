//! An upstream in this process whose answers are larger than any window, and that knows how many of
//! them it is sending.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::gateway_support::Version;

/// As many streams as an upstream of HTTP/2 allows on one connection.
pub(crate) const STREAMS: u32 = 200;

/// What it does now, and what it did at most.
#[derive(Clone, Default)]
pub(crate) struct Load {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Load {
    /// Large answers that are being sent.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn large(&self) -> Answer {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Answer { pieces: 4096, load: Some(self.clone()) }
    }
}

/// An answer of 256 MiB, or a short one.
struct Answer {
    pieces: usize,
    load: Option<Load>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];
        let Some(left) = self.pieces.checked_sub(1) else { return Poll::Ready(None) };
        self.pieces = left;
        let piece = if self.load.is_some() { &PIECE[..] } else { b"short" };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece)))))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers at once, below `/large` with a large answer.
pub(crate) async fn start(version: Version) -> (SocketAddr, Load) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, load) = (listener.local_addr().unwrap(), Load::default());
    let kept = load.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (stream, load) = (TokioIo::new(stream), load.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = match request.uri().path().starts_with("/large") {
                    true => load.large(),
                    false => Answer { pieces: 1, load: None },
                };
                // The request is kept: an upload goes on beside its answer.
                tokio::spawn(http_body_util::BodyExt::collect(request.into_body()));
                async move { Ok::<_, Infallible>(Response::new(answer)) }
            });
            tokio::spawn(async move {
                // A peer may break off: then its connection is over.
                let _ = match version {
                    Version::Http1 => http1::Builder::new().serve_connection(stream, service).await,
                    Version::Http2 => {
                        http2::Builder::new(TokioExecutor::new())
                            .max_concurrent_streams(STREAMS)
                            .serve_connection(stream, service)
                            .await
                    }
                };
            });
        }
    });
    (address, kept)
}
