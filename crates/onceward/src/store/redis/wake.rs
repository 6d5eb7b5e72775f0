//! Processes tell each other what has ended, by `PUBLISH`: a courtesy. A cluster passes messages on to all nodes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt as _;
use onceward_core::{Digest, OnEnded, Wake};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    connect,
    error::Trouble,
    keys::partition,
    link::Question,
    servers::{Line, Servers},
};
use crate::store::sql::wake::{AWAITED, ENDED, Listeners, message};

/// How many messages may wait to be sent; more are lost, and the waiters ask the store.
const QUEUE: usize = 1024;

/// How often the process looks whether the connection is still there.
const LOOK: Duration = Duration::from_secs(5);

/// After how long a connection that broke is opened anew.
const PAUSE: Duration = Duration::from_millis(200);

/// Says what has ended, and hears it.
pub(super) struct Notifier {
    messages: mpsc::Sender<(u8, String)>,
    listeners: Arc<Listeners>,
}

impl Notifier {
    pub(super) fn start(servers: &Arc<Servers>) -> Self {
        let listeners = Arc::new(Listeners::default());
        let (messages, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(say(Arc::clone(servers), waiting));
        tokio::spawn(hear(Arc::clone(servers), Arc::downgrade(&listeners)));
        Self { messages, listeners }
    }

    fn say(&self, kind: char, id: &Digest) {
        // A waiter without a message asks the store.
        let _ = self.messages.try_send((partition(id), message(kind, id)));
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

/// Sends what waits, until the store is dropped.
async fn say(servers: Arc<Servers>, mut waiting: mpsc::Receiver<(u8, String)>) {
    let channel = servers.how.keys.channel();
    let mut messages = Vec::new();
    while waiting.recv_many(&mut messages, 64).await > 0 {
        for (partition, message) in messages.drain(..) {
            let mut command = redis::cmd("PUBLISH");
            command.arg(&channel).arg(message);
            // What could not be said is not said later.
            let _ = servers.ask(partition, Line::Operators, Question::One(&command)).await;
        }
    }
}

/// Listens, on another connection when one breaks, until the store is dropped.
async fn hear(servers: Arc<Servers>, listeners: Weak<Listeners>) {
    while listeners.strong_count() > 0 {
        // However it ended, waiters ask the store meanwhile.
        let _ = hear_once(&servers, &listeners).await;
        sleep(PAUSE).await;
    }
}

async fn hear_once(servers: &Servers, listeners: &Weak<Listeners>) -> Result<(), Trouble> {
    let nodes = servers.primaries().await?;
    let Some(node) = nodes.first() else { return Ok(()) };
    let listener = connect::open_listener(&servers.how, (&node.host, node.port)).await?;
    let (mut sink, mut stream) = listener.split();
    let failed = |error: redis::RedisError| Trouble::of(&error);
    sink.subscribe(servers.how.keys.channel()).await.map_err(failed)?;
    loop {
        match timeout(LOOK, stream.next()).await {
            Ok(Some(message)) => {
                let Some(listeners) = listeners.upgrade() else { return Ok(()) };
                listeners.hear(&String::from_utf8_lossy(message.get_payload_bytes()));
            }
            Ok(None) => return Ok(()),
            Err(_) if listeners.strong_count() == 0 => return Ok(()),
            // A server that hangs, and one that is no primary any more, are left.
            Err(_) => {
                let pinged = timeout(servers.how.timeout, sink.ping::<redis::Value>()).await;
                let Ok(Ok(_)) = pinged else { return Ok(()) };
                let nodes = servers.primaries().await?;
                if !nodes.iter().any(|known| known.is_at(&node.host, node.port)) {
                    return Ok(());
                }
            }
        }
    }
}
