//! A body that must not take for ever.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward::BoxError;
use tokio::time::{Instant, Sleep, sleep_until};

/// In so much waiting time a client has to send what its rate demands.
const PERIOD: Duration = Duration::from_secs(10);

/// The slowest rate at which a client may send; clones are the same.
#[derive(Clone)]
pub(crate) struct Floor {
    bytes_in_period: u64,
    is_lifted: Arc<AtomicBool>,
}

impl Floor {
    pub(crate) fn of(bytes_per_second: u64) -> Self {
        let bytes_in_period = bytes_per_second.saturating_mul(PERIOD.as_secs());
        Self { bytes_in_period, is_lifted: Arc::default() }
    }

    /// Stops to count: the answer has begun, and its client may take its time.
    pub(crate) fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }

    fn counts(&self) -> bool {
        self.bytes_in_period > 0 && !self.is_lifted.load(Ordering::Relaxed)
    }
}

/// How fast a body came in the current period.
struct Pace {
    floor: Floor,
    waited: Duration,
    received: u64,
}

impl Pace {
    /// Ends a period that is over; `false`: the body came too slowly in it.
    fn keeps_up(&mut self) -> bool {
        let is_over = self.waited >= PERIOD;
        let keeps_up = !self.floor.counts() || self.received >= self.floor.bytes_in_period;
        if is_over && keeps_up {
            (self.waited, self.received) = (Duration::ZERO, 0);
        }
        !is_over || keeps_up
    }
}

/// Fails when the whole of it, or one piece of it, takes too long, or when it comes too slowly.
pub(crate) struct Timed<B> {
    body: B,
    pause: Option<Duration>,
    until: Option<Instant>,
    pace: Option<Pace>,
    /// Made when something has to be waited for; many bodies are there at once.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Since when the reader waits for a piece, and when it comes too late.
    waiting: Option<(Instant, Option<Instant>)>,
}

impl<B> Timed<B> {
    /// All of it must be there by then.
    pub(crate) fn whole(body: B, until: Instant) -> Self {
        Self { body, pause: None, until: Some(until), pace: None, sleep: None, waiting: None }
    }

    /// No piece may take longer than this.
    pub(crate) fn pieces(body: B, pause: Duration) -> Self {
        Self { body, pause: Some(pause), until: None, pace: None, sleep: None, waiting: None }
    }

    pub(crate) fn with(self, floor: Floor) -> Self {
        Self { pace: Some(Pace { floor, waited: Duration::ZERO, received: 0 }), ..self }
    }

    /// Sleeps until a piece comes too late, or until it is to be seen how fast they come.
    fn wait(&mut self, now: Instant) {
        let pause = self.pause.map(|pause| now + pause);
        let (_, too_late) =
            *self.waiting.get_or_insert((now, pause.into_iter().chain(self.until).min()));
        let look = self.pace.as_ref().filter(|pace| pace.floor.counts());
        let look = look.map(|pace| now + PERIOD.saturating_sub(pace.waited));
        match (too_late.into_iter().chain(look).min(), &mut self.sleep) {
            (None, _) => {}
            (Some(then), Some(sleep)) => sleep.as_mut().reset(then),
            (Some(then), empty) => *empty = Some(Box::pin(sleep_until(then))),
        }
    }

    /// Counts the time until now as waited for.
    fn waited(&mut self, now: Instant) {
        if let (Some(pace), Some((since, _))) = (&mut self.pace, &mut self.waiting) {
            pace.waited += now.saturating_duration_since(*since);
            *since = now;
        }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if self.waiting.is_some() {
                self.waited(Instant::now());
                self.waiting = None;
            }
            if let (Some(pace), Some(Ok(frame))) = (&mut self.pace, &frame) {
                pace.received += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if self.waiting.is_none() {
            self.wait(Instant::now());
        }
        loop {
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            ready!(sleep.as_mut().poll(context));
            let now = Instant::now();
            self.waited(now);
            let is_late =
                self.waiting.is_some_and(|(_, late)| late.is_some_and(|late| late <= now));
            if is_late {
                return Poll::Ready(Some(Err("it took too long".into())));
            }
            if self.pace.as_mut().is_some_and(|pace| !pace.keeps_up()) {
                return Poll::Ready(Some(Err("it came too slowly".into())));
            }
            self.wait(now);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use testbed::Pipe;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends so many bytes each second for a minute, and says how long that was read.
    async fn read(each_second: usize, floor: Floor) -> (Duration, Result<(), String>) {
        let (sender, body) = Pipe::new();
        let sending = async move {
            for _ in 0..60 {
                if sender.send(Frame::data(vec![b'x'; each_second].into())).await.is_err() {
                    break;
                }
                sleep(SECOND).await;
            }
        };
        tokio::spawn(sending);
        let begun = Instant::now();
        let read = Timed::pieces(body, 30 * SECOND).with(floor).collect().await;
        (begun.elapsed(), read.map(|_| ()).map_err(|error| error.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_floor_is_given_up_after_a_period() {
        assert_eq!(read(500, Floor::of(500)).await, (60 * SECOND, Ok(())));
        let (time, read_499) = read(499, Floor::of(500)).await;
        assert_eq!((time, read_499), (PERIOD, Err("it came too slowly".to_owned())));
        assert_eq!(read(1, Floor::of(0)).await, (60 * SECOND, Ok(())), "there is none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_floor_that_is_lifted_does_not_count() {
        let floor = Floor::of(500);
        floor.lift();
        assert_eq!(read(1, floor).await, (60 * SECOND, Ok(())));
    }
}
