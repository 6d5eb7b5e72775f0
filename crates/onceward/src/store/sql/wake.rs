//! What processes tell each other of operations that have ended, whatever carries the messages.
//!
//! A process that begins to wait says so once, and every process remembers that for a minute. One that ends such
//! an operation says that after the commit.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use onceward_core::{Digest, OnEnded};

/// How many awaited operations a process remembers, and for how long: no request waits for longer.
const MAX_AWAITED: usize = 10_000;
const AWAITED_FOR: Duration = Duration::from_secs(60);

/// A request in some process begins to wait.
pub(crate) const AWAITED: char = 'w';
/// An awaited operation has ended.
pub(crate) const ENDED: char = 'e';

/// Who listens in this process, and what others wait for.
#[derive(Default)]
pub(crate) struct Listeners {
    awaited: Mutex<Awaited>,
    listeners: Mutex<Vec<Weak<OnEnded>>>,
}

/// Operations that another process waits for, oldest first.
#[derive(Default)]
struct Awaited {
    until: HashMap<Digest, Instant>,
    order: VecDeque<(Instant, Digest)>,
}

impl Awaited {
    fn note(&mut self, id: Digest, now: Instant) {
        while let Some((until, oldest)) = self.order.front().copied()
            && (until <= now || self.order.len() >= MAX_AWAITED)
        {
            self.order.pop_front();
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
        let until = now + AWAITED_FOR;
        self.until.insert(id, until);
        self.order.push_back((until, id));
    }

    fn take(&mut self, id: &Digest, now: Instant) -> bool {
        self.until.remove(id).is_some_and(|until| until > now)
    }
}

impl Listeners {
    /// Whether another process waits for it; it is asked once.
    pub(crate) fn is_awaited(&self, id: &Digest) -> bool {
        self.awaited().take(id, Instant::now())
    }

    pub(crate) fn add(&self, heard: &Arc<OnEnded>) {
        let mut listeners = self.listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(heard));
    }

    pub(crate) fn hear(&self, message: &str) {
        let Some((kind, id)) = parse(message) else { return };
        match char::from(kind) {
            AWAITED => self.awaited().note(id, Instant::now()),
            ENDED => {
                let listeners: Vec<_> = self.listeners().iter().filter_map(Weak::upgrade).collect();
                for heard in listeners {
                    heard(&id);
                }
            }
            // Newer software has more to say.
            _ => {}
        }
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<OnEnded>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message of this kind about an operation.
pub(crate) fn message(kind: char, id: &Digest) -> String {
    id.0.iter().fold(String::from(kind), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn parse(message: &str) -> Option<(u8, Digest)> {
    let (kind, digits) = message.as_bytes().split_first()?;
    if digits.len() != 64 {
        return None;
    }
    let mut id = [0; 32];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((*kind, Digest(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_an_operation_and_nothing_else_is_understood() {
        let id = Digest([0xa7; 32]);
        assert_eq!(parse(&message(AWAITED, &id)), Some((b'w', id)));
        for garbled in ["", "w", "w00", &"w+".repeat(33), &format!("e{}é", "0".repeat(62))] {
            assert_eq!(parse(garbled), None, "{garbled}");
        }
    }

    #[test]
    fn what_is_awaited_is_remembered_for_a_minute_and_not_without_end() {
        let (mut awaited, now) = (Awaited::default(), Instant::now());
        let id = |number: u16| {
            let mut id = [0; 32];
            id[..2].copy_from_slice(&number.to_be_bytes());
            Digest(id)
        };
        awaited.note(id(1), now);
        assert!(awaited.take(&id(1), now) && !awaited.take(&id(1), now), "one message is sent");
        awaited.note(id(2), now);
        assert!(!awaited.take(&id(2), now + AWAITED_FOR), "no request waits so long");
        for number in 0..u16::try_from(MAX_AWAITED).unwrap() + 10 {
            awaited.note(id(number), now);
        }
        assert!(awaited.until.len() <= MAX_AWAITED && awaited.order.len() <= MAX_AWAITED);
        assert!(!awaited.take(&id(0), now), "the oldest one was forgotten");
    }
}
