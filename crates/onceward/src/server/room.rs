//! A bound on what all requests and answers together may hold in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{Code, Problem};
use crate::telemetry;

/// Bytes that may still be held.
#[derive(Debug)]
pub(super) struct Room {
    left: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: AtomicUsize::new(bytes) }
    }
}

/// A part of the room; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    room: Arc<Room>,
    bytes: usize,
}

impl Reserved {
    pub(super) fn none(room: &Arc<Room>) -> Self {
        Self { room: room.clone(), bytes: 0 }
    }

    /// Whether there is room for so many bytes in all; if so they are reserved.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let take = |left: usize| left.checked_sub(more);
        let taken = self.room.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if taken {
            self.bytes += more;
            telemetry::BUFFERED_BYTES.raise_of((), more as u64);
        }
        taken
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
        telemetry::BUFFERED_BYTES.lower_of((), self.bytes as u64);
    }
}

/// What a request is told that finds no room.
pub(super) fn full() -> Problem {
    let text = "too many bytes are held in memory here; try again with the same key";
    Problem::new(Code::Overloaded, text).retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_up_to_the_limit_and_given_back() {
        let room = Arc::new(Room::new(10));
        let (mut first, mut second) = (Reserved::none(&room), Reserved::none(&room));
        assert!(first.grow_to(4) && first.grow_to(6) && second.grow_to(4));
        assert!(!second.grow_to(5), "one byte too many");
        drop(first);
        assert!(second.grow_to(10));
        drop(second);
        assert_eq!(room.left.load(Ordering::Relaxed), 10);
    }
}
