//! The embedded store: one SQLite file, nothing to install, durable before it answers.
//!
//! One thread writes. It takes all changes that wait, commits them in one transaction and answers
//! only then, so that a sync to the disk is shared by everyone who waited for it. Two threads read,
//! a fourth one copies the write-ahead log into the file. The futures are bound to no runtime.
//!
//! Several processes of one host may share the file. Network file systems are refused, FUSE among
//! them: SQLite's locks and its shared memory do not work between hosts.
//!
//! ```
//! use onceward::{*, store::sqlite::SqliteStore, protocol::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("onceward.db");
//! let store = SqliteStore::open(path)?;
//!
//! let request = Request {
//!     operation: OperationId::new(
//!         Scope::of("tenant", "acme")?,
//!         OperationName::new("POST /charges")?,
//!         Key::new("8e03978e")?,
//!     ),
//!     fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
//!     terms: Terms::of(Effect::External).build()?,
//! };
//! let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
//! let swap = store.swap(admission.change()).await?;
//! assert!(matches!(admission.next(swap), Step::Done(Verdict::Run(_))));
//! # Ok(())
//! # }
//! ```

mod builder;
mod census;
mod checkpoint;
mod error;
mod groups;
mod inside;
mod list;
mod log;
mod loss;
mod mark;
mod places;
#[cfg(test)]
mod plans;
mod queue;
mod reader;
mod routes;
mod rows;
mod schema;
mod session;
mod space;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod sweep;
mod transactions;
mod turns;
mod writer;

use std::{
    any::Any,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use onceward_core::{
    Change, Digest, Fence, Filter, Found, Inspect, Note, Page, Purge, Spool, SpoolId, Store,
    StoreError, StoreFuture, Swap, Trail, TrailEntry,
};

#[cfg(feature = "sqlx")]
pub use self::sqlx::OwnTransaction;
#[cfg(feature = "sqlx")]
pub(crate) use self::sqlx::{commit_error, depth};
pub use crate::store::Census;
pub use builder::SqliteStoreBuilder;
pub use error::OpenError;
pub use inside::{BlockingTransaction, OwnBlockingTransaction};
pub use schema::{Durability, Tables};

use builder::Options;
use checkpoint::Checkpointer;
use inside::Inside;
use reader::Readers;
use rows::{Proposal, Row};
use session::{Applied, Work};
use space::StoreFiles;
use writer::Writer;

use super::sql::{codec::Codec, recent::RecentRecords};
use crate::clock::Suspicion;

/// The version of SQLite that this library was built with.
///
/// ```
/// assert!(onceward::store::sqlite::sqlite_version().starts_with("3."));
/// ```
#[must_use]
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Records in one SQLite file. Clones share it.
///
/// Dropping the last clone blocks until everything that was handed over is written, then closes
/// the file.
///
/// - A swap that was handed to the writer is not cancelled by dropping its future.
/// - Claims are refused while the file system has less than the reserve left; duplicates still get
///   their answers, and what runs can be settled.
/// - A list by status finds damaged records only among those that were open; without a status it
///   finds all of them.
/// - The file does not shrink: the room of swept records is used again.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

/// Dropped in this order: the writing connection closes last and leaves a file without a log.
struct Inner {
    readers: Readers,
    _checkpointer: Checkpointer,
    writer: Writer,
    path: PathBuf,
    reserve_bytes: u64,
    durability: Durability,
    inside: Inside,
    known: RecentRecords,
    codec: Codec,
}

impl SqliteStore {
    /// Opens or creates the file with the default options. This blocks: call it at start.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("onceward.db");
    /// let store = onceward::store::sqlite::SqliteStore::open(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(path).open()
    }

    /// Starts with the default options.
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(path.as_ref())
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What the writing connection promises, read back from SQLite when it was opened.
    #[must_use]
    pub fn durability(&self) -> &Durability {
        &self.inner.durability
    }

    /// Counts what is open and looks how large the files are: for metrics and health checks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("onceward.db");
    /// let store = onceward::store::sqlite::SqliteStore::open(path)?;
    /// let census = store.census().await?;
    /// println!("{} outcomes are unknown, the log has {} bytes", census.unknown, census.log_bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn census(&self) -> Result<Census, StoreError> {
        self.inner.readers.census().await
    }

    /// Whether there is room for new claims: for health checks. It looks at the file system now.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("onceward.db");
    /// use onceward::store::sqlite::SqliteStore;
    ///
    /// assert!(SqliteStore::builder(&path).reserve_bytes(0).open()?.check_room().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_room(&self) -> Result<(), StoreError> {
        space::check(&self.inner.path, self.inner.reserve_bytes)
    }

    /// What is suspected of the clock: it jumped ahead while this process runs.
    #[must_use]
    pub fn clock_suspicion(&self) -> Option<Suspicion> {
        self.inner.codec.watch().look()
    }

    /// An operator's word that the clock is right now, for this process. Returns what was suspected.
    pub fn trust_clock(&self) -> Option<Suspicion> {
        self.inner.codec.watch().look();
        self.inner.codec.watch().trust()
    }

    fn start(options: &Options) -> Result<Self, OpenError> {
        let connection = schema::open(options)?;
        let durability = schema::durability(&connection);
        let durability =
            durability.map_err(|error| OpenError::from_sqlite(&options.path, &error))?;
        // SQLite has made the log by now, and deletes it when the last connection is closed.
        let presence = Arc::new(StoreFiles::of(&options.path));
        let checkpointer = Checkpointer::start(options, &presence)?;
        let writer = Writer::start(connection, options, &presence, checkpointer.shared())?;
        let readers = Readers::start(options, &presence)?;
        let inner = Inner {
            readers,
            _checkpointer: checkpointer,
            writer,
            path: options.path.clone(),
            reserve_bytes: options.reserve_bytes,
            durability,
            inside: Inside::new(options, &presence),
            known: RecentRecords::new(),
            codec: options.codec.clone(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn decode(&self, id: &Digest, stored: Option<Row>) -> Result<Found, StoreError> {
        stored.map_or(Ok(Found::Nothing), |row| row.decode(id, &self.inner.codec))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SqliteStore({:?})", self.inner.path)
    }
}

impl Store for SqliteStore {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(async {
            let Inner { readers, writer, known, codec, .. } = &*self.inner;
            // So that two jumps of the clock between which something is written stay two.
            codec.watch().look();
            // A duplicate only reads: it neither waits for a commit nor takes the write lock.
            if change.expected.is_none()
                && known.expects(&change.id)
                && let Ok(Some(stored)) = readers.get(change.id).await
            {
                return Ok(Swap::Conflict(stored.decode(&change.id, codec)?));
            }
            let applied = writer.write(Work::Swap(Proposal::of(change, codec))).await?;
            let is_first = change.expected.is_none() && matches!(applied, Applied::Written { .. });
            if !is_first {
                known.note(&change.id);
            }
            match applied {
                Applied::Written { at } => Ok(Swap::Stored { at }),
                Applied::Refused(stored) => Ok(Swap::Conflict(self.decode(&change.id, stored)?)),
                Applied::Full(detail) => Err(StoreError::Full(detail)),
            }
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        Box::pin(async { self.decode(id, self.inner.readers.get(*id).await?) })
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(self.inner.writer.sweep(limit))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Inspect for SqliteStore {
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page> {
        Box::pin(self.inner.readers.list(filter.clone()))
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> StoreFuture<'a, Purge> {
        Box::pin(async move {
            let work = Work::Purge { id: *id, expected, note: note.clone() };
            let stored = match self.inner.writer.write(work).await? {
                Applied::Written { .. } => return Ok(Purge::Purged),
                Applied::Refused(stored) => stored,
                Applied::Full(detail) => return Err(StoreError::Full(detail)),
            };
            Ok(match self.decode(id, stored)? {
                Found::Record(stored) if stored.record.fence == expected => {
                    stored.refuses_purge().unwrap_or(Purge::Open)
                }
                found => Purge::Conflict(found),
            })
        })
    }
}

impl Trail for SqliteStore {
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>> {
        Box::pin(self.inner.readers.trail(*id))
    }
}

impl Spool for SqliteStore {
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()> {
        let bytes = self.inner.codec.seal_chunk(id, index, chunk).into_owned();
        let work = Work::PutChunk { id: *id, index, bytes };
        Box::pin(async { self.inner.writer.write(work).await.map(drop) })
    }

    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let chunk = self.inner.readers.chunk(*id, index).await?;
            Ok(chunk.map(|chunk| self.inner.codec.open_chunk(id, index, chunk)))
        })
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()> {
        Box::pin(async { self.inner.writer.write(Work::DiscardChunks { id: *id }).await.map(drop) })
    }
}

/// A thread; dropping it joins it.
struct Thread(Option<JoinHandle<()>>);

impl Thread {
    fn start(
        options: &Options,
        role: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<Self, OpenError> {
        let started = thread::Builder::new().name(format!("onceward-{role}")).spawn(body);
        started.map(|thread| Self(Some(thread))).map_err(|error| OpenError::Failed {
            path: options.path.clone(),
            detail: format!("no thread could be started: {error}"),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
