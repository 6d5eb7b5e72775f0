//! Processes tell each other what has ended, by `NOTIFY`: a courtesy, never in a user's transaction.
//!
//! A message is sent in a statement of its own: `NOTIFY` takes a lock that all commits wait for, so it is sent only
//! if a process waits.

use std::{
    sync::{Arc, Weak},
    time::Duration,
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
use crate::store::sql::wake::{AWAITED, ENDED, Listeners, message};

/// How many messages may wait to be sent; more are lost, and the waiters ask the store.
const QUEUE: usize = 1024;

/// How often the process looks whether the connection is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Says what has ended, and hears it.
pub(super) struct Notifier {
    messages: mpsc::Sender<String>,
    listeners: Arc<Listeners>,
}

impl Notifier {
    /// `None`: a pooler would give every message another connection, or the engine has no `NOTIFY`.
    pub(super) fn start(how: &Arc<ConnectOptions>) -> Option<Self> {
        if !how.prepares || how.dialect == Dialect::Wire {
            return None;
        }
        let listeners = Arc::new(Listeners::default());
        let hears = Arc::downgrade(&listeners);
        let heard = move |text: &str| {
            if let Some(listeners) = hears.upgrade() {
                listeners.hear(text);
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
        let _ = self.messages.try_send(message(kind, id));
    }
}

impl Wake for Notifier {
    fn awaited(&self, id: &Digest) {
        self.say(AWAITED, id);
    }

    fn ended(&self, id: &Digest) {
        if self.listeners.is_awaited(id) {
            self.say(ENDED, id);
        }
    }

    fn listen(&self, heard: &Arc<OnEnded>) {
        self.listeners.add(heard);
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
