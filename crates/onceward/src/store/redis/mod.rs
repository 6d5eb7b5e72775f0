//! Records in Redis or Valkey: fast, on a server that many have already, and without the promise that an
//! acknowledged record is never lost.
//!
//! - Each change is one script on the server, which compares the fence and writes record, indexes and trail at once.
//! - The store's clock is the server's. Records are read and written on primaries only.
//! - A connection that breaks is opened anew, after a failover to the server that takes writes then: name sentinels or
//!   a cluster in the address.
//! - Replication is asynchronous. The caller that opens the store says that a lost record is acceptable:
//!   [`accept_relaxed`](RedisStoreBuilder::accept_relaxed). What can be lost: [`Durability::losses`].
//!
//! Needs Redis 7 or later, or Valkey.
//!
//! ```no_run
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use onceward::{Engine, store::redis::RedisStore};
//!
//! let store = RedisStore::builder("redis://shop:secret@localhost")?.accept_relaxed().open().await?;
//! let engine = Engine::new(store);
//! # Ok(())
//! # }
//! ```

mod address;
mod builder;
mod census;
mod condition;
mod connect;
mod error;
mod keys;
mod link;
mod list;
mod operate;
mod routes;
mod rows;
mod scripts;
mod servers;
mod spool;
mod swap;
mod sweep;
mod trail;
mod wake;

use std::{fmt, sync::Arc};

use onceward_core::{
    Change, Digest, Fence, Filter, Found, Inspect, Note, PURGE_MARGIN, Page, Purge, Store,
    StoreError, StoreFuture, Swap, Wake,
};
use redis::{Pipeline, Value};

pub use address::Address;
pub use builder::RedisStoreBuilder;
pub use condition::Durability;
pub use error::OpenError;

use super::sql::{codec::Codec, purge};
use crate::clock::Suspicion;
use error::{Trouble, Why};
use keys::{Keys, member, partition};
use link::Question;
use scripts::Scripts;
use servers::{Line, Servers};
use wake::Notifier;

/// Records on one server, behind sentinels or in a cluster. Clones share their connections.
///
/// - A change that was handed over is not cancelled by dropping its future.
/// - A sweep leaves what newer software wrote, and what was damaged.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    servers: Arc<Servers>,
    scripts: Scripts,
    codec: Codec,
    durability: Durability,
    notifier: Notifier,
}

impl RedisStore {
    /// Starts with the default options.
    pub fn builder(address: &str) -> Result<RedisStoreBuilder, OpenError> {
        Ok(RedisStoreBuilder::new(address.parse()?))
    }

    /// Where the server is, without the password.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.servers.how.address
    }

    /// What the server promised when the store was opened.
    #[must_use]
    pub fn durability(&self) -> &Durability {
        &self.inner.durability
    }

    /// Asks what the server is and promises now: for health checks.
    pub async fn condition(&self) -> Result<Durability, StoreError> {
        Ok(Durability::read(&self.inner.servers).await?)
    }

    /// What is suspected of the server's clock, asked now: it went ahead of real time while this process runs.
    pub async fn clock_suspicion(&self) -> Result<Option<Suspicion>, StoreError> {
        self.look_at_clock().await
    }

    /// An operator's word that the server's clock is right now, for this process. Returns what was suspected.
    pub async fn trust_clock(&self) -> Result<Option<Suspicion>, StoreError> {
        self.look_at_clock().await?;
        Ok(self.inner.codec.watch().trust())
    }

    fn start(servers: Servers, codec: Codec, durability: Durability) -> Self {
        let servers = Arc::new(servers);
        let notifier = Notifier::start(&servers);
        let scripts = Scripts::new();
        Self { inner: Arc::new(Inner { servers, scripts, codec, durability, notifier }) }
    }

    fn keys(&self) -> &Keys {
        &self.inner.servers.how.keys
    }

    /// Reads one record and the server's clock, once more if the connection broke meanwhile.
    async fn read(&self, id: &Digest) -> Result<Found, StoreError> {
        let Inner { servers, codec, .. } = &*self.inner;
        let mut pipeline = Pipeline::with_capacity(5);
        let wait = servers.how.wait;
        if wait.is_asked() {
            // The writer of the mark waits for what others wrote before.
            pipeline.cmd("SET").arg(self.keys().mark(partition(id))).arg(0);
        }
        // In this order: what is read was written before the clock showed this.
        pipeline.cmd("GET").arg(self.keys().record(id)).cmd("TIME");
        if wait.is_asked() {
            scripts::add_waiting(&mut pipeline, wait);
        }
        let asked = servers.ask(partition(id), Line::Requests, Question::Several(&pipeline)).await;
        let answers = match asked {
            Err(Trouble { why: Why::Broken, .. }) => {
                servers.ask(partition(id), Line::Requests, Question::Several(&pipeline)).await
            }
            asked => asked,
        };
        let mut answers = answers?.into_iter();
        if wait.is_asked() {
            answers.next();
        }
        let value = rows::bytes(answers.next().unwrap_or_default())?;
        let read_at = rows::time(answers.next().unwrap_or_default())?;
        scripts::check_copies(answers.as_slice(), wait)?;
        rows::found(id, value, read_at, codec)
    }

    async fn delete(&self, id: &Digest, expected: Fence, note: &Note) -> Result<Value, StoreError> {
        let Inner { servers, scripts, .. } = &*self.inner;
        let (keys, partition) = (self.keys(), partition(id));
        let margin = PURGE_MARGIN.as_micros();
        let note = trail::note(note)?;
        scripts
            .purge
            .run(servers, (partition, Line::Operators), note.len() + 400, |command| {
                command.arg(5).arg(keys.record(id)).arg(keys.open(partition));
                command
                    .arg(keys.ended(partition))
                    .arg(keys.trail(id))
                    .arg(keys.chunks(id, expected));
                command.arg(expected.as_bytes()).arg(member(id)).arg(note).arg(margin);
            })
            .await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisStore({})", self.address())
    }
}

impl Store for RedisStore {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(swap::swap(&self.inner, change))
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        Box::pin(self.read(id))
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(self.sweep_all(limit))
    }

    fn wake(&self) -> Option<&dyn Wake> {
        Some(&self.inner.notifier)
    }
}

impl Inspect for RedisStore {
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page> {
        Box::pin(self.list_page(filter))
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> StoreFuture<'a, Purge> {
        Box::pin(async move {
            if let Some(refusal) = purge::refusal(self.read(id).await?, expected) {
                return Ok(refusal);
            }
            match self.delete(id, expected, note).await? {
                Value::Int(1) => Ok(Purge::Purged),
                // Unreadable and fresh.
                Value::Int(_) => Ok(Purge::Recent),
                // Changed since it was read.
                _ => Ok(Purge::Conflict(self.read(id).await?)),
            }
        })
    }
}
