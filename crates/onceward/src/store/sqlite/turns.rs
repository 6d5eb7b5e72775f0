//! Who writes next. SQLite has one writer at a time, and lets the others poll with growing pauses:
//! under load some would wait for seconds while others pass. Here they wait in line.
//!
//! A turn is a courtesy among the users of one store: safety rests on SQLite's own lock, which is
//! taken all the same. A transaction that waits too long for its turn goes on without it.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::unconstrained,
};

/// The line in front of the write lock. Clones are the same line.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<()>>);

/// A transaction has its turn until this is dropped; `None` inside: it has waited too long.
#[derive(Debug)]
pub(super) struct Turn {
    _guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    #[cfg(feature = "sqlx")]
    pub(super) async fn wait(&self, patience: Duration) -> Turn {
        Turn { _guard: tokio::time::timeout(patience, self.0.clone().lock_owned()).await.ok() }
    }

    pub(super) fn wait_blocking(&self, patience: Duration) -> Turn {
        let guard = match self.0.clone().try_lock_owned() {
            Ok(guard) => Some(guard),
            // Tokio would have a busy task wait for its scheduler, which this thread never reaches.
            Err(_) => block_on(unconstrained(self.0.clone().lock_owned()), patience),
        };
        Turn { _guard: guard }
    }
}

/// Runs a future on this thread, whatever runs on it, for so long.
fn block_on<T>(future: impl Future<Output = T>, patience: Duration) -> Option<T> {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    let start = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        thread::park_timeout(patience.checked_sub(start.elapsed())?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn turns_are_taken_in_the_order_of_asking() {
        let turns = Turns::default();
        let first = turns.wait_blocking(LONG);
        let (sender, order) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..5)
            .map(|number| {
                let (turns, sender) = (turns.clone(), sender.clone());
                let (asking, asked) = std::sync::mpsc::channel();
                let thread = thread::spawn(move || {
                    let mut turn = pin!(turns.0.lock_owned());
                    // Polled once, it stands in line.
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(turn.as_mut().poll(&mut context).is_pending());
                    asking.send(()).unwrap();
                    let _turn = block_on(turn, LONG).unwrap();
                    sender.send(number).unwrap();
                });
                asked.recv().unwrap();
                thread
            })
            .collect();
        drop(first);
        for thread in waiting {
            thread.join().unwrap();
        }
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn whoever_waits_too_long_goes_on_without_a_turn() {
        let turns = Turns::default();
        let _held = turns.wait_blocking(LONG);
        let tired = turns.wait_blocking(Duration::from_millis(20));
        assert!(tired._guard.is_none());
    }
}
