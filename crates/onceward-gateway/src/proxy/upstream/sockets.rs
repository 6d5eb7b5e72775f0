//! A bound on the connections to the upstream and to the services that hooks ask: they share the file
//! descriptors of the process with clients and operators.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use onceward::{BoxError, store::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tower_service::Service;

/// How many connections there may be; clones are the same.
#[derive(Clone)]
pub(crate) struct Sockets(Arc<Semaphore>);

impl Sockets {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Counts the connections of this connector; where there are too many, the next one waits.
    pub(crate) fn bound(&self, tcp: HttpConnector, patience: Duration) -> Bounded {
        Bounded { tcp, sockets: self.clone(), patience }
    }
}

/// Makes connections of TCP that count.
#[derive(Clone)]
pub(crate) struct Bounded {
    tcp: HttpConnector,
    sockets: Sockets,
    patience: Duration,
}

impl Service<Uri> for Bounded {
    type Response = TokioIo<Socket>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<Socket>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { mut tcp, sockets, patience } = self.clone();
        Box::pin(async move {
            let permit = timeout(patience, sockets.0.acquire_owned()).await;
            let permit = permit.map_err(|_| "as many connections are open as may be")??;
            let stream = tcp.call(uri).await?.into_inner();
            Ok(TokioIo::new(Socket { stream, _permit: permit }))
        })
    }
}

/// A connection that counts until it is closed.
pub(crate) struct Socket {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Socket {
    /// What the kernel does with what it has not sent when the connection is closed, also by the end of the
    /// process. If this fails, the connection is broken already.
    #[expect(deprecated, reason = "no lingering at all is no lingering that blocks")]
    pub(crate) fn close_by(&self, closing: Closing) {
        let _ = match closing {
            Closing::Reset => self.stream.set_zero_linger(),
            Closing::InOrder => self.stream.set_linger(None),
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// What was not sent is forgotten.
    Reset,
    /// The kernel goes on sending it, for minutes if the upstream does not take it.
    InOrder,
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
