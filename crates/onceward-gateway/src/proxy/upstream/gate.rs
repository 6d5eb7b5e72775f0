//! The last place that the bytes of a keyed request pass on their way out: none after its deadline.
//!
//! A request waits after it was checked: for a connection, for TLS, for a stream of HTTP/2, for an
//! upstream that reads slowly. So the check is where the bytes go to the kernel, below TLS, and holds
//! whatever hyper keeps in its buffers.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use onceward::server::Deadline;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::AbortHandle,
};

use super::sockets::{Closing, Socket};

/// The gate of one connection: it lets bytes out while no unanswered request is past its deadline.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the requests here that have no answer yet, with the number of each.
    deadlines: Vec<(u64, Deadline)>,
    requests: u64,
    /// How many bytes went out, of all requests.
    written: u64,
    /// Ends the connection; `None` where other requests use it, too.
    end: Option<AbortHandle>,
    /// The owner gave a request up here, and a rest of it may be waiting: no other request joins it.
    is_retired: bool,
    /// No byte leaves any more.
    is_shut: bool,
}

/// Leave for one request to use a connection. Dropped without an answer, it ends the connection, or
/// leaves the deadline behind if others use it.
pub(crate) struct Pass {
    gate: Arc<Gate>,
    number: u64,
    written_before: u64,
    is_answered: bool,
}

/// Its claim has no time left: another execution may be running.
#[derive(Debug)]
pub(crate) struct Late;

impl fmt::Display for Late {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`max_run` was over before the whole request was on its way")
    }
}

impl Error for Late {}

impl Gate {
    /// This connection is for one request at a time, and its task may be ended with it.
    pub(crate) fn exclusive(&self, task: AbortHandle) {
        self.state().end = Some(task);
    }

    pub(crate) fn is_open(&self) -> bool {
        let state = self.state();
        !state.is_shut && !state.is_retired
    }

    /// From here on no byte leaves after this deadline, until the request has its answer.
    pub(crate) fn begin(self: &Arc<Self>, deadline: Deadline) -> Result<Pass, Late> {
        if deadline.is_over() {
            return Err(Late);
        }
        let mut state = self.state();
        state.requests += 1;
        let (number, written_before) = (state.requests, state.written);
        state.deadlines.push((number, deadline));
        Ok(Pass { gate: self.clone(), number, written_before, is_answered: false })
    }

    /// Writes, if the deadlines allow it. It holds the lock, so that nothing is between check and write.
    fn write(&self, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        let deadlines = state.deadlines.iter().map(|(_, deadline)| *deadline);
        if deadlines.reduce(Deadline::sooner).is_some_and(|soonest| soonest.is_over()) {
            state.is_shut = true;
        }
        if state.is_shut {
            return Poll::Ready(Err(io::Error::other(Late)));
        }
        let written = write();
        if let Poll::Ready(Ok(count)) = written {
            state.written += count as u64;
        }
        written
    }

    /// Whether everything that was sent here has its answer: what the kernel still holds does no harm.
    fn is_settled(&self) -> bool {
        let state = self.state();
        !state.is_shut && state.deadlines.is_empty()
    }

    fn is_shut(&self) -> bool {
        self.state().is_shut
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// The answer's head is there: what the upstream makes of the request is in it.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
        let mut state = self.gate.state();
        state.deadlines.retain(|(number, _)| *number != self.number);
    }

    /// Whether a byte may have left since the request was begun.
    pub(crate) fn has_left(&self) -> bool {
        self.gate.state().written > self.written_before
    }

    /// The answer is late and is still waited for: no other request joins it on this connection.
    pub(crate) fn retire(&self) {
        self.gate.state().is_retired = true;
    }

    /// Gives the request up. `true`: certainly no byte of it has left, or will.
    pub(crate) fn give_up(self) -> bool {
        self.leave();
        let state = self.gate.state();
        state.is_shut && state.written == self.written_before
    }

    fn leave(&self) {
        let mut state = self.gate.state();
        state.is_retired = true;
        if let Some(task) = &state.end {
            task.abort();
            state.is_shut = true;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.is_answered {
            self.leave();
        }
    }
}

/// A connection with its gate, below TLS.
///
/// Until it has ended in order it is closed by a reset, however it comes to that: also when this process is
/// killed, the kernel forgets what it has not sent.
pub(crate) struct Gated<T> {
    inner: TokioIo<T>,
    gate: Arc<Gate>,
    close_by: fn(&T, Closing),
}

impl Gated<Socket> {
    pub(crate) fn new(inner: TokioIo<Socket>) -> Self {
        Self::closed_by(inner, Socket::close_by)
    }
}

impl<T> Gated<T> {
    fn closed_by(inner: TokioIo<T>, close_by: fn(&T, Closing)) -> Self {
        close_by(inner.inner(), Closing::Reset);
        Self { inner, gate: Arc::default(), close_by }
    }
}

/// The gate is found in the extras.
impl<T> Connection for Gated<T>
where
    TokioIo<T>: Connection,
{
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.gate.clone())
    }
}

impl<T: AsyncRead + Unpin> Read for Gated<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> Write for Gated<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { inner, gate, .. } = self.get_mut();
        gate.write(|| Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    /// An orderly end would have the kernel send what it holds.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gate.is_shut() {
            return Poll::Ready(Err(io::Error::other(Late)));
        }
        if !self.gate.is_settled() {
            return Poll::Ready(Ok(()));
        }
        (self.close_by)(self.inner.inner(), Closing::InOrder);
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { inner, gate, .. } = self.get_mut();
        gate.write(|| Pin::new(inner).poll_write_vectored(context, pieces))
    }
}

#[cfg(test)]
#[path = "gate_rule.rs"]
mod rule;
#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
