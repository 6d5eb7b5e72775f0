//! Records in PostgreSQL, beside the tables of the application, so that an effect and its record commit
//! together.
//!
//! - Changes that wait are written together, by few connections: [group commit](PostgresStoreBuilder::lanes).
//! - The store's clock is the server's. Records are read and written on the primary only.
//! - A connection that breaks is opened anew, after a failover on the server that takes writes then: name
//!   all servers in the address.
//! - Where a commit waits for standbys, the store believes a record only when they have it.
//! - Everything is correct at READ COMMITTED; nothing depends on a lock that outlives its transaction.
//!
//! ```no_run
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use onceward::{Engine, store::postgres::PostgresStore};
//!
//! let engine = Engine::new(PostgresStore::connect("postgres://shop:secret@localhost/shop").await?);
//! # Ok(())
//! # }
//! ```

mod address;
mod barrier;
mod builder;
mod census;
mod client;
mod error;
mod inside;
mod link;
mod list;
mod queue;
mod routes;
mod rows;
mod schema;
mod spelling;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod sweep;
mod tls;
mod wake;
mod writer;

use std::{any::Any, fmt, sync::Arc, time::SystemTime};

use onceward_core::{
    Change, Digest, Execution, Fence, Filter, Found, Inspect, Note, NoteKind, Page, Purge, Spool,
    SpoolId, Store, StoreError, StoreFuture, Swap, Trail, TrailEntry, Wake,
};
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

pub use address::Address;
pub use builder::PostgresStoreBuilder;
pub use census::Condition;
pub use client::OwnTransaction;
pub(crate) use client::commit_error;
pub use error::OpenError;
pub(crate) use error::describe;
pub use queue::{Rebase, Rebased};
pub use schema::{Durability, MIGRATIONS, Tables};
#[cfg(feature = "sqlx")]
pub(crate) use sqlx::{depth, sqlx_commit_error};

use super::{
    Census,
    sql::{codec::Codec, purge, recent::RecentRecords},
};
use crate::clock::Suspicion;
use barrier::Barrier;
use error::{Trouble, store_error};
use link::{ConnectOptions, Link, ReconnectingLink};
use queue::Relays;
use rows::{Read, Work, timestamp, uuid_of};
use sql::Query;
use wake::Notifier;
use writer::{Applied, Writer};

/// How the server speaks.
///
/// ```
/// use onceward::store::postgres::Dialect;
///
/// assert_eq!(Dialect::default(), Dialect::Postgres);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL 13 or later.
    #[default]
    Postgres,
    /// Engines that speak PostgreSQL's wire protocol and are replicated by themselves: CockroachDB,
    /// YugabyteDB, Spanner. No `NOTIFY`, no advisory locks, no functions, no view, no barrier; transactions
    /// are serializable, and what got in the way of another one is sent again. `dialect=wire` in an address.
    ///
    /// The statements are tested on PostgreSQL at SERIALIZABLE. None of those engines was run.
    Wire,
}

impl Dialect {
    fn read(self) -> &'static Query {
        match self {
            Self::Postgres => &sql::READ,
            Self::Wire => &sql::READ_PLAIN,
        }
    }

    fn read_one(self) -> &'static Query {
        match self {
            Self::Postgres => &sql::READ_ONE,
            Self::Wire => &sql::READ_ONE_PLAIN,
        }
    }

    fn end_many(self) -> &'static Query {
        match self {
            Self::Postgres => &sql::END_MANY,
            Self::Wire => &sql::END_MANY_PLAIN,
        }
    }
}

/// What a first claim and its end send when each goes alone, for benchmarks of what sending them costs.
#[doc(hidden)]
#[must_use]
pub fn statements() -> [&'static str; 2] {
    [sql::CLAIM.text, sql::END.text]
}

/// Records in one PostgreSQL database. Clones share its connections.
///
/// - A swap that was handed over is not cancelled by dropping its future, and no commit ever is.
/// - The store does not wait for a record that an open transaction of a service holds: [`Swap::Held`].
/// - A sweep goes by the columns, and deletes also what cannot be read, when its time is over.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    how: Arc<ConnectOptions>,
    writer: Writer,
    /// Reads share one connection: they are sent one behind the other without waiting.
    reader: ReconnectingLink,
    /// What operators and sweeps ask must not hold up requests.
    operators: ReconnectingLink,
    /// Writes chunks, and what operators change by hand.
    rare_writes: ReconnectingLink,
    relays: Relays,
    barrier: Barrier,
    known: RecentRecords,
    codec: Codec,
    durability: Option<Durability>,
    notifier: Option<Notifier>,
}

impl PostgresStore {
    /// Connects with the default options; makes the tables if there are none.
    pub async fn connect(address: &str) -> Result<Self, OpenError> {
        Self::builder(address)?.open().await
    }

    /// Starts with the default options.
    pub fn builder(address: &str) -> Result<PostgresStoreBuilder, OpenError> {
        Ok(PostgresStoreBuilder::new(address.parse()?))
    }

    /// Where the database is, without the password.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.how.address
    }

    /// What the server promises, read when the store was opened; `None`: this dialect cannot tell.
    #[must_use]
    pub fn durability(&self) -> Option<&Durability> {
        self.inner.durability.as_ref()
    }

    /// Counts what is open and looks how large the tables are: for metrics and health checks.
    pub async fn census(&self) -> Result<Census, StoreError> {
        let link = self.operator_link().await?;
        census::census(&link, self.inner.how.dialect, &self.inner.codec).await
    }

    /// Looks how the server and the tables are: for health checks. `None`: this dialect cannot tell.
    pub async fn condition(&self) -> Result<Option<Condition>, StoreError> {
        match self.inner.how.dialect {
            Dialect::Postgres => Ok(Some(census::condition(&*self.operator_link().await?).await?)),
            Dialect::Wire => Ok(None),
        }
    }

    /// What is suspected of the server's clock, asked now: it went ahead of real time while this process runs.
    pub async fn clock_suspicion(&self) -> Result<Option<Suspicion>, StoreError> {
        sweep::look_at_clock(&*self.operator_link().await?, &self.inner.codec).await
    }

    /// An operator's word that the server's clock is right now, for this process. Returns what was suspected.
    pub async fn trust_clock(&self) -> Result<Option<Suspicion>, StoreError> {
        self.clock_suspicion().await?;
        Ok(self.inner.codec.watch().trust())
    }

    fn start(
        how: Arc<ConnectOptions>,
        codec: Codec,
        (lanes, batch): (usize, usize),
        durability: Option<Durability>,
    ) -> Self {
        let inner = Inner {
            writer: Writer::start(&how, lanes, batch),
            reader: ReconnectingLink::new(&how),
            operators: ReconnectingLink::new(&how),
            rare_writes: ReconnectingLink::new(&how),
            relays: Relays::new(&how),
            barrier: Barrier::new(&how),
            known: RecentRecords::new(),
            notifier: Notifier::start(&how),
            how,
            codec,
            durability,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads one row, once more if the connection broke meanwhile.
    async fn read(&self, id: &Digest) -> Result<Found, StoreError> {
        let Inner { reader, how, .. } = &*self.inner;
        let mut tries = 0;
        loop {
            tries += 1;
            let link = reader.link().await?;
            match link.read(how.dialect.read_one(), &[&id.0.as_slice()]).await {
                Ok(rows) => {
                    let read = rows.first().map(Read::of).transpose()?;
                    return self.believed(id, read).await;
                }
                Err(error) if tries > 1 || error.is_definite() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// What a row means, when it is where a failover cannot lose it.
    async fn believed(&self, id: &Digest, read: Option<Read>) -> Result<Found, StoreError> {
        let Some(read) = read else { return Ok(Found::Nothing) };
        if let Some(writer) = read.unsure {
            self.inner.barrier.pass(writer).await?;
        }
        read.row.decode(id, &self.inner.codec)
    }

    async fn operator_link(&self) -> Result<Arc<Link>, StoreError> {
        self.inner.operators.link().await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PostgresStore({})", self.address())
    }
}

impl Store for PostgresStore {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(async move {
            let Inner { writer, known, codec, .. } = &*self.inner;
            // A duplicate only reads: it waits for no commit.
            if change.expected.is_none()
                && known.expects(&change.id)
                && let Ok(found @ (Found::Record(_) | Found::Unreadable { .. })) =
                    self.read(&change.id).await
            {
                return Ok(Swap::Conflict(found));
            }
            let applied = writer.write(Work::of(change, codec)).await?;
            let is_first = change.expected.is_none() && matches!(applied, Applied::Written { .. });
            if !is_first {
                known.note(&change.id);
            }
            match applied {
                Applied::Written { at } => Ok(Swap::Stored { at }),
                Applied::Refused(read) => {
                    Ok(Swap::Conflict(self.believed(&change.id, read).await?))
                }
                Applied::Held => Ok(Swap::Held),
            }
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        Box::pin(self.read(id))
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            let link = self.operator_link().await?;
            sweep::sweep(&link, limit, self.inner.how.dialect, &self.inner.codec).await
        })
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn wake(&self) -> Option<&dyn Wake> {
        self.inner.notifier.as_ref().map(|notifier| notifier as &dyn Wake)
    }
}

impl Inspect for PostgresStore {
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let link = self.operator_link().await?;
            list::list(&link, filter, &self.inner.codec).await
        })
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
            let by = Uuid::from_bytes(*note.execution.as_bytes());
            let link = self.inner.rare_writes.link().await?;
            let (id_bytes, fence, kind) = (id.0.as_slice(), uuid_of(expected), note.kind.as_str());
            let parameters: link::Parameters<'_> =
                &[&id_bytes, &fence, &kind, &by, &note.actor, &note.reason];
            let purged = link.write(&sql::PURGE, parameters);
            match purged.await.map_err(Trouble::into_error)?.is_empty() {
                false => Ok(Purge::Purged),
                // Unreadable and fresh, or changed since it was read.
                true => match self.read(id).await? {
                    Found::Unreadable { fence, .. } if fence == expected => Ok(Purge::Recent),
                    found => Ok(Purge::Conflict(found)),
                },
            }
        })
    }
}

/// How many entries of one operation are read: the last ones.
const MAX_TRAIL: i64 = 1000;

impl Trail for PostgresStore {
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>> {
        Box::pin(async move {
            let link = self.operator_link().await?;
            let question = "SELECT at, kind, execution, actor, reason FROM (
                    SELECT * FROM onceward.trail WHERE digest OPERATOR(pg_catalog.=) $1
                    ORDER BY seq DESC LIMIT $2
                ) latest ORDER BY seq";
            let parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
                &[(&id.0.as_slice(), Type::BYTEA), (&MAX_TRAIL, Type::INT8)];
            link.ask(question, parameters).await?.iter().map(entry).collect()
        })
    }
}

fn entry(row: &Row) -> Result<TrailEntry, StoreError> {
    let taken = || {
        let (at, kind): (SystemTime, String) = (row.try_get(0)?, row.try_get(1)?);
        let (execution, actor, reason): (Uuid, _, _) =
            (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        Ok((at, kind, execution, actor, reason))
    };
    let (at, kind, execution, actor, reason) =
        taken().map_err(|error: tokio_postgres::Error| store_error(&error))?;
    let known = NoteKind::ALL.into_iter().find(|known| known.as_str() == kind);
    let Some(kind) = known else {
        return Err(StoreError::Newer(format!(
            "the trail has an entry of kind {kind:?}; finish the upgrade of this process"
        )));
    };
    let execution = Execution::from_bytes(execution.into_bytes());
    Ok(TrailEntry { at: timestamp(at), note: Note { kind, execution, actor, reason } })
}

impl Spool for PostgresStore {
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let bytes = self.inner.codec.seal_chunk(id, index, chunk);
            let (operation, fence) = (id.operation.0.as_slice(), uuid_of(id.fence));
            let (index, bytes) = (number(index)?, bytes.as_ref());
            let link = self.inner.rare_writes.link().await?;
            let put = link.write(&sql::PUT_CHUNK, &[&operation, &fence, &index, &bytes]).await;
            put.map(drop).map_err(Trouble::into_error)
        })
    }

    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let link = self.operator_link().await?;
            let (operation, fence) = (id.operation.0.as_slice(), uuid_of(id.fence));
            let rows = link.read(&sql::CHUNK, &[&operation, &fence, &number(index)?]).await?;
            let bytes = rows.first().map(|row| row.try_get(0)).transpose();
            let bytes = bytes.map_err(|error| store_error(&error))?;
            Ok(bytes.map(|bytes| self.inner.codec.open_chunk(id, index, bytes)))
        })
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let link = self.inner.rare_writes.link().await?;
            let (operation, fence) = (id.operation.0.as_slice(), uuid_of(id.fence));
            let dropped = link.write(&sql::DISCARD, &[&operation, &fence]).await;
            dropped.map(drop).map_err(Trouble::into_error)
        })
    }
}

fn number(index: u32) -> Result<i32, StoreError> {
    i32::try_from(index).map_err(|_| StoreError::Unusable("too many chunks".to_owned()))
}
