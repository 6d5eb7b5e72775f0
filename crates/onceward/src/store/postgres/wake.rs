//! Processes tell each other what has ended, by `NOTIFY`: a courtesy, never in a user's transaction.
//!
//! A process that begins to wait says so once, and every process remembers that for a minute. One that ends such
//! an operation says that after the commit, in a statement of its own: `NOTIFY` takes a lock that all
//! commits wait for, so it is sent only if a process waits.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use onceward_core::{Digest, OnEnded, Wake};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_postgres::types::Type;

use super::{
    Dialect,
    link::{ConnectOptions, Link, ReconnectingLink},
};

/// How many awaited operations a process remembers, and for how long: no request waits for longer.
const MAX_AWAITED: usize = 10_000;
const AWAITED_FOR: Duration = Duration::from_secs(60);

/// How many messages may wait to be sent; more are lost, and the waiters ask the store.
const QUEUE: usize = 1024;

/// How often the process looks whether the connection is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Says what has ended, and hears it.
pub(super) struct Notifier {
    messages: mpsc::Sender<String>,
    listeners: Arc<Listeners>,
}

#[derive(Default)]
struct Listeners {
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

impl Notifier {
    /// `None`: a pooler would give every message another connection, or the engine has no `NOTIFY`.
    pub(super) fn start(how: &Arc<ConnectOptions>) -> Option<Self> {
        if !how.prepares || how.dialect == Dialect::Wire {
            return None;
        }
        let listeners = Arc::new(Listeners::default());
        let hears = Arc::downgrade(&listeners);
        let heard = move |message: &str| {
            if let Some(listeners) = hears.upgrade() {
                listeners.hear(message);
            }
        };
        how.heard.set(Box::new(heard)).ok()?;
        let (messages, waiting) = mpsc::channel(QUEUE);
        let connection = NotifyConnection {
            line: ReconnectingLink::new(how),
            listeners: Arc::downgrade(&listeners),
            listening: Weak::new(),
        };
        tokio::spawn(connection.run(waiting));
        Some(Self { messages, listeners })
    }

    fn say(&self, kind: char, id: &Digest) {
        // A waiter without a message asks the store.
        let _ = self.messages.try_send(format!("{kind}{}", hex(id)));
    }
}

impl Wake for Notifier {
    fn awaited(&self, id: &Digest) {
        self.say('w', id);
    }

    fn ended(&self, id: &Digest) {
        if self.listeners.awaited().take(id, Instant::now()) {
            self.say('e', id);
        }
    }

    fn listen(&self, heard: &Arc<OnEnded>) {
        let mut listeners = self.listeners.listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(heard));
    }
}

impl Listeners {
    fn hear(&self, message: &str) {
        let Some((kind, id)) = parse(message) else { return };
        match kind {
            b'w' => self.awaited().note(id, Instant::now()),
            b'e' => {
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

/// The connection that listens, and on which messages are sent.
struct NotifyConnection {
    line: ReconnectingLink,
    listeners: Weak<Listeners>,
    listening: Weak<Link>,
}

impl NotifyConnection {
    async fn run(mut self, mut waiting: mpsc::Receiver<String>) {
        let mut messages = Vec::new();
        while self.listeners.strong_count() > 0 {
            let link = self.link().await;
            if timeout(LOOK, waiting.recv_many(&mut messages, QUEUE)).await == Ok(0) {
                return;
            }
            let Some(link) = link else {
                // What could not be said is not said later.
                messages.clear();
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            if messages.is_empty() {
                continue;
            }
            let said = "SELECT pg_catalog.pg_notify('onceward', message)
                FROM pg_catalog.unnest($1::pg_catalog.text[]) AS message";
            // It fails with its connection, which is opened anew then.
            let _ = link.client.query_typed(said, &[(&messages, Type::TEXT_ARRAY)]).await;
            messages.clear();
        }
    }

    /// A connection that listens.
    async fn link(&mut self) -> Option<Arc<Link>> {
        let link = self.line.link().await.ok()?;
        if !std::ptr::eq(self.listening.as_ptr(), Arc::as_ptr(&link)) {
            // A message is worth no wait for a standby: all senders would wait in line.
            let listen = "SET synchronous_commit = off; LISTEN onceward";
            link.client.batch_execute(listen).await.ok()?;
            self.listening = Arc::downgrade(&link);
        }
        Some(link)
    }
}

fn hex(id: &Digest) -> String {
    id.0.iter().fold(String::with_capacity(64), |mut text, byte| {
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
        assert_eq!(parse(&format!("w{}", hex(&id))), Some((b'w', id)));
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
