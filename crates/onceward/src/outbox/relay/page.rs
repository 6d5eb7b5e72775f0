//! How many messages a lane reads at once: many small ones, few large ones.

use std::sync::atomic::{AtomicU32, Ordering};

use onceward_core::message::Page;

/// The bodies of a page are to have about so many bytes at most. All 64 lanes of a sink may have one in memory.
const BYTES: usize = 1 << 20;

/// The most messages of a page. Sinks begin with it: an outbox gives fewer where they are large, and small pages cost
/// a question and a step each, in every lane.
const MOST: u32 = 500;

pub(super) struct PageSize(AtomicU32);

impl Default for PageSize {
    fn default() -> Self {
        Self(AtomicU32::new(MOST))
    }
}

impl PageSize {
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Learns from a page that was read with this limit.
    pub(super) fn learn(&self, page: &Page, limit: u32) {
        let fresh = page.fresh.iter().map(|fresh| fresh.message.body.len());
        let due = page.due.iter().map(|due| due.message.body.len());
        let (number, bytes) =
            fresh.chain(due).fold((0_u32, 0), |(number, sum), length| (number + 1, sum + length));
        if bytes > BYTES {
            let fits = u64::from(number) * BYTES as u64 / bytes as u64;
            self.0.store(u32::try_from(fits).unwrap_or(MOST).max(1), Ordering::Relaxed);
        } else if number >= limit && bytes <= BYTES / 2 {
            self.0.store(limit.saturating_mul(2).min(MOST), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_core::{
        Timestamp,
        message::{Cursor, Fresh, Message, MessageId, NewMessage, Place},
    };

    fn page(number: u32, bytes: usize) -> Page {
        let NewMessage { topic, body, .. } = NewMessage::new("a", vec![0; bytes]).unwrap();
        let at = Timestamp::from_unix_micros(0);
        let message = Message {
            id: MessageId::from_bytes([0; 16]),
            topic,
            aggregate: onceward_core::message::Aggregate::new("a").unwrap(),
            body,
            headers: Vec::new(),
            at,
            not_before: None,
            expires_at: None,
            operation: None,
            trace: None,
        };
        let one = Fresh { place: Place(1), message, is_blocked: false };
        let fresh = vec![one; number as usize];
        let (opened, end) = (Cursor::new(""), Cursor::new(""));
        Page { read_at: at, fresh, due: Vec::new(), opened, end, is_full: true }
    }

    #[test]
    fn pages_grow_while_messages_are_small_and_shrink_when_they_are_large() {
        let size = PageSize::default();
        assert_eq!(size.get(), MOST);
        size.learn(&page(3, 100), MOST);
        assert_eq!(size.get(), MOST, "a short page says nothing");
        size.learn(&page(64, 1 << 16), MOST);
        assert_eq!(size.get(), 16, "a megabyte");
        size.learn(&page(16, 1 << 20), 16);
        assert_eq!(size.get(), 1, "and never none");
        size.learn(&page(1, 1 << 20), 1);
        assert_eq!(size.get(), 1);
        for _ in 0..10 {
            size.learn(&page(size.get(), 100), size.get());
        }
        assert_eq!(size.get(), MOST);
    }
}
