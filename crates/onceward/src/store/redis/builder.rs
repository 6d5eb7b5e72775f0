//! The options of a store, checked when it is opened.

use std::{sync::Arc, time::Duration};

use onceward_core::{Seal, StoreError};

use super::{
    Address, Durability, OpenError, RedisStore,
    connect::{self, ConnectOptions, Wait},
    keys::Keys,
    servers::Servers,
};
use crate::{
    clock::{Clock, HostClock, Watch},
    store::sql::codec::Codec,
};

/// Collects the options of a [`RedisStore`]; nothing happens before [`open`](Self::open).
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use onceward::store::redis::RedisStore;
///
/// let store = RedisStore::builder("redis://localhost")?.prefix("shop").accept_relaxed().open().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is opened before `open` is called"]
#[derive(Clone)]
pub struct RedisStoreBuilder {
    address: Address,
    codec: Codec,
    prefix: String,
    connections: usize,
    connect_timeout: Duration,
    timeout: Duration,
    wait: Wait,
    accepts_relaxed: bool,
}

impl RedisStoreBuilder {
    /// How many connections requests share, to each server, by default.
    pub const CONNECTIONS: usize = 2;

    /// What the names of all keys begin with, by default.
    pub const PREFIX: &'static str = "onceward";

    pub(super) fn new(address: Address) -> Self {
        let options = address.options.clone();
        Self {
            codec: Codec::new(Watch::new(Arc::new(HostClock))),
            prefix: options.prefix.unwrap_or_else(|| Self::PREFIX.to_owned()),
            connections: options.connections.unwrap_or(Self::CONNECTIONS),
            connect_timeout: options.connect_timeout.unwrap_or(Duration::from_secs(3)),
            timeout: options.timeout.unwrap_or(Duration::from_secs(5)),
            wait: Wait {
                replicas: options.wait_replicas.unwrap_or_default(),
                logs: options.wait_aof,
                timeout: options.wait_timeout.unwrap_or(Duration::from_secs(1)),
            },
            accepts_relaxed: false,
            address,
        }
    }

    /// What the names of all keys begin with, so that installations can share a server: 1 to 64 visible ASCII
    /// characters without braces, `onceward` if not said.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many connections requests share, to each server: 1 to 64, 2 if not said. There are two more, for
    /// operators and for waking.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How long it may take to open a connection; 3 seconds if not said.
    pub fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// How long an answer may take before its connection is taken for dead; 5 seconds if not said.
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.timeout = longest;
        self
    }

    /// Hides answers from a reader of the server without the key; `onceward::seal::Keyring` (feature
    /// `encryption`) is such a seal.
    pub fn seal(mut self, seal: Arc<dyn Seal>) -> Self {
        self.codec.set_seal(seal);
        self
    }

    /// What the server's clock is compared with, by its [`steady`](Clock::steady) time; the host's if not
    /// said. Times are the server's in any case.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.codec.set_watch(Watch::new(clock));
        self
    }

    /// Calls no change made before so many replicas have it in memory (`WAIT`). If fewer have it in time, the
    /// store does not answer: the change is there, and may be lost.
    ///
    /// It makes a lost record rarer and does not rule it out: who becomes primary need not be one that has it.
    pub fn wait_replicas(mut self, replicas: u32, longest: Duration) -> Self {
        self.wait = Wait { replicas, timeout: longest, ..self.wait };
        self
    }

    /// Calls no change made before the server itself and so many replicas have it in their logs on disk
    /// (`WAITAOF`: Redis 7.2 or later, Valkey; needs `appendonly yes`).
    pub fn wait_aof(mut self, replicas: u32, longest: Duration) -> Self {
        self.wait = Wait { logs: Some((1, replicas)), timeout: longest, ..self.wait };
        self
    }

    /// Takes a server that may lose what it acknowledged: each one may, see [`Durability::losses`].
    pub fn accept_relaxed(mut self) -> Self {
        self.accepts_relaxed = true;
        self
    }

    /// Connects, and checks what the server is and promises.
    ///
    /// Must be called inside a tokio runtime, on which the store's connections live from then on.
    pub async fn open(self) -> Result<RedisStore, OpenError> {
        let servers = self.servers()?;
        let durability = Durability::read(&servers).await?;
        durability.check(self.address.kind)?;
        durability.check_wait(servers.how.wait)?;
        if !self.accepts_relaxed {
            return Err(OpenError::Relaxed(durability.losses().join("; ")));
        }
        let store = RedisStore::start(servers, self.codec, durability);
        // The server's clock is trusted as it is now.
        store.look_at_clock().await.map_err(|error| match error {
            StoreError::Unavailable(words) => OpenError::Unreachable(words),
            other => OpenError::Failed(other.to_string()),
        })?;
        Ok(store)
    }

    /// Reads what the server promises, and changes nothing.
    pub async fn durability(self) -> Result<Durability, OpenError> {
        Durability::read(&self.servers()?).await
    }

    fn servers(&self) -> Result<Servers, OpenError> {
        if !(1..=64).contains(&self.connections) {
            let message = format!("`connections` is {}, not 1 to 64", self.connections);
            return Err(OpenError::Failed(message));
        }
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.bytes().all(is_name) {
            return Err(OpenError::Failed(
                "`prefix` is not 1 to 64 visible ASCII characters without braces".to_owned(),
            ));
        }
        Ok(Servers::new(Arc::new(ConnectOptions {
            tls: connect::connector(&self.address)?,
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            connections: self.connections,
            keys: Keys::new(&self.prefix),
            wait: self.wait,
            address: self.address.clone(),
        })))
    }
}
