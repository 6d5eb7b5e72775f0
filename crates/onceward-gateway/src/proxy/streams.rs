//! Streams of HTTP/2, reset when their client takes nothing of its answer.
//!
//! hyper runs each stream as a task. That task asks a body for more only when the client has granted a
//! window, so a body cannot notice by itself that its client takes nothing. Here the task is watched from
//! outside: when it is dropped, h2 sends `RST_STREAM`, and the answer goes with its upstream side and its
//! memory.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use onceward::{Body, BoxError};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::observe::metrics;

/// A client has to take so much of its answer within the stall time, or what there is of it.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// Counts in the task of a stream. It is odd from when hyper got a piece until it asks for the next one:
    /// the stream waits for its client.
    static HANDED: Cell<u64>;
}

/// Runs the streams of a connection, each for as long as its client takes its answer.
#[derive(Clone, Copy)]
pub(super) struct Streams {
    /// How long a client may take no piece.
    pub(super) stall: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(HANDED.scope(Cell::new(0), watched(stream, self.stall)));
    }
}

/// Ends with the stream, or when the stream has waited for its client for too long.
async fn watched(stream: impl Future<Output = ()>, stall: Duration) {
    let mut stream = pin!(stream);
    let (mut seen, mut late): (u64, Option<Pin<Box<Sleep>>>) = (0, None);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let handed = HANDED.with(Cell::get);
        if handed.is_multiple_of(2) {
            return Poll::Pending;
        }
        // Most clients take each piece at once, and need no timer.
        if handed != seen {
            (seen, late) = (handed, Some(Box::pin(sleep_until(Instant::now() + stall))));
        }
        if let Some(late) = &mut late {
            ready!(late.as_mut().poll(context));
        }
        metrics::STREAMS_RESET.add(());
        Poll::Ready(())
    })
    .await;
}

/// An answer as it is handed to hyper, in pieces that show whether its client takes them.
pub(super) struct Pieces {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    is_cut: bool,
}

impl Pieces {
    /// Only HTTP/2 has windows; with HTTP/1.1 the connection itself stalls.
    pub(super) fn of(body: Body, version: Version) -> Self {
        Self { body, rest: Bytes::new(), is_cut: version == Version::HTTP_2 }
    }

    /// The last byte of a frame goes alone. hyper hands it over when the window has room for everything
    /// before it; in one piece with the rest, all would be h2's as soon as there is room for one byte,
    /// and no task would be left that can be ended.
    fn next_piece(&mut self) -> Bytes {
        let length = self.rest.len();
        self.rest.split_to(length.saturating_sub(1).clamp(length.min(1), PIECE))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.is_cut {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        count(|handed| handed + handed % 2);
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        count(|handed| handed + 1);
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (more, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + more);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + more);
        }
        whole
    }
}

fn count(next: impl FnOnce(u64) -> u64) {
    // Outside the task of a stream nothing is watched.
    let _ = HANDED.try_with(|handed| handed.set(next(handed.get())));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use h2::{RecvStream, client};
    use http::{Request, Response, uri::Scheme};
    use testbed::Pipe;
    use tokio::{
        io::duplex,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::{
        identity::Peer,
        proxy::listener::{Drain, connection},
    };

    const STALL: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    /// Asks on one connection, with this window for each answer, and gives the bodies of the answers.
    async fn asked<const N: usize>(window: u32, answers: [Body; N]) -> [RecvStream; N] {
        let (client, server) = duplex(1 << 20);
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), &Scheme::HTTP, None);
        let answers = Arc::new(std::sync::Mutex::new(answers.into_iter()));
        let answer = move |_, _| {
            let body = answers.lock().unwrap().next().unwrap();
            async { Response::new(body) }
        };
        tokio::spawn(async move {
            let drain = Drain::default();
            connection(server, peer, answer, drain.watcher(), STALL).await
        });
        let mut builder = client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 20);
        let (mut sender, connection) = builder.handshake::<_, Bytes>(client).await.unwrap();
        tokio::spawn(connection);
        let mut bodies = Vec::new();
        for _ in 0..N {
            sender = sender.ready().await.unwrap();
            let request = Request::get("http://gateway/").body(()).unwrap();
            let answer = sender.send_request(request, true).unwrap().0.await.unwrap();
            bodies.push(answer.into_body());
        }
        // The connection lives for as long as it can be asked on.
        tokio::spawn(async move {
            let _sender = sender;
            sleep(100 * HOUR).await;
        });
        bodies.try_into().unwrap()
    }

    /// Reads so many bytes after each pause: how many came, and whether the stream was reset.
    async fn read(mut body: RecvStream, each: usize, pause: Duration) -> (usize, bool) {
        let (mut came, mut granted) = (0, 0);
        loop {
            match timeout(pause, body.data()).await {
                Ok(None) => return (came, false),
                Ok(Some(Err(error))) => return (came, error.is_reset()),
                Ok(Some(Ok(data))) => came += data.len(),
                Err(_) => {
                    let more = each.min(came - granted);
                    body.flow_control().release_capacity(more).unwrap();
                    granted += more;
                }
            }
        }
    }

    fn large() -> Body {
        Body::from(vec![b'x'; 100_000])
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_client_takes_nothing_is_reset_and_freed() {
        for window in [0, 1, 16_384, 65_535, 99_999] {
            let held = Arc::new(());
            let owner = (held.clone(), vec![b'x'; 100_000]);
            struct Owned((Arc<()>, Vec<u8>));
            impl AsRef<[u8]> for Owned {
                fn as_ref(&self) -> &[u8] {
                    &self.0.1
                }
            }
            let body = Body::from(Bytes::from_owner(Owned(owner)));
            let [answer] = asked(window, [body]).await;
            let begun = Instant::now();
            assert_eq!(read(answer, 0, HOUR).await, (window as usize, true), "{window}");
            assert_eq!(begun.elapsed().as_secs(), STALL.as_secs(), "{window}");
            assert_eq!(Arc::strong_count(&held), 1, "{window}: it is still held");
        }
        let [answer] = asked(100_000, [large()]).await;
        assert_eq!(read(answer, 0, HOUR).await, (100_000, false), "all of it is granted");
    }

    #[tokio::test(start_paused = true)]
    async fn other_streams_of_the_connection_go_on() {
        let [stalled, taken] = asked(1000, [large(), large()]).await;
        let (stalled, taken) = tokio::join!(read(stalled, 0, HOUR), read(taken, 1000, STALL / 100));
        assert_eq!((stalled, taken), ((1000, true), (100_000, false)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_to_take_a_piece_in_its_time() {
        let slow = |each| async move {
            let [answer] = asked(1000, [large()]).await;
            let begun = Instant::now();
            (read(answer, each, STALL / 60).await, begun.elapsed() / 2 < STALL)
        };
        assert_eq!(slow(300).await, ((100_000, false), false), "18,000 bytes in a minute");
        let ((came, is_reset), is_soon) = slow(100).await;
        assert!(is_reset && is_soon, "{came} bytes came, 6,000 in a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_wait_for_its_answer_for_as_long_as_it_likes() {
        let (sender, body) = Pipe::new();
        let [answer] = asked(65_535, [Body::new(body)]).await;
        let reading = tokio::spawn(read(answer, 0, 100 * HOUR));
        for _ in 0..5 {
            sleep(HOUR).await;
            sender.send(Frame::data("tick".into())).await.unwrap();
        }
        drop(sender);
        assert_eq!(reading.await.unwrap(), (20, false));
    }
}
