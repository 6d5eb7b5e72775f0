//! The place at the upstream of an answer that is being passed on.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::room::Flight;

/// Kept while its answer goes on; given back when nobody has taken anything of it for too long. That is
/// watched by a task, because a client that reads nothing has its answer not even asked for.
pub(super) struct Place {
    used: Arc<Mutex<Instant>>,
    watching: AbortHandle,
}

impl Place {
    pub(super) fn new(flight: Flight, pause: Duration) -> Self {
        let used = Arc::new(Mutex::new(Instant::now()));
        let watched = used.clone();
        let watching = tokio::spawn(async move {
            // Dropped with this task, whether it ends or is ended.
            let _flight = flight;
            loop {
                let end = *watched.lock().unwrap_or_else(PoisonError::into_inner) + pause;
                if end <= Instant::now() {
                    return;
                }
                sleep_until(end).await;
            }
        });
        Self { used, watching: watching.abort_handle() }
    }

    /// A piece of the answer was taken.
    pub(super) fn used(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::room::Room;

    const PAUSE: Duration = Duration::from_secs(60);

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_given_back_at_the_end_or_when_nobody_takes_anything() {
        let room = Arc::new(Room::alone());
        let in_flight = || room.in_flight();
        let place = Place::new(room.take_off(), PAUSE);
        settle().await;
        assert_eq!(in_flight(), 1);
        tokio::time::advance(PAUSE / 2).await;
        place.used();
        tokio::time::advance(PAUSE * 3 / 4).await;
        settle().await;
        assert_eq!(in_flight(), 1, "something was taken");
        tokio::time::advance(PAUSE).await;
        settle().await;
        assert_eq!(in_flight(), 0, "nobody reads it");
        drop(place);
        settle().await;
        assert_eq!(in_flight(), 0, "it is not given back twice");

        let place = Place::new(room.take_off(), PAUSE);
        settle().await;
        assert_eq!(in_flight(), 1);
        drop(place);
        settle().await;
        assert_eq!(in_flight(), 0, "it has ended");
    }
}
