//! The options of a store, checked when it is opened.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use onceward_core::Seal;

use super::{
    OpenError, SqliteStore, loss,
    schema::{self, Tables},
    turns::Turns,
};
use crate::{
    clock::{Clock, HostClock, Watch},
    store::sql::codec::Codec,
};

const MIB: u64 = 1 << 20;

/// Collects the options of a [`SqliteStore`]; nothing happens before [`open`](Self::open).
///
/// ```
/// use std::time::Duration;
/// use onceward::store::sqlite::SqliteStore;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("onceward.db");
/// let store = SqliteStore::builder(path)
///     .cache_bytes(64 << 20)
///     .busy_timeout(Duration::from_secs(2))
///     .open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is opened before `open` is called"]
pub struct SqliteStoreBuilder {
    options: Options,
}

/// What the builder has collected.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) busy_timeout: Duration,
    pub(super) cache_bytes: u64,
    pub(super) wal_bytes: u64,
    pub(super) reserve_bytes: u64,
    pub(super) accepts_relaxed: bool,
    pub(super) migrates: bool,
    pub(super) codec: Codec,
    /// Not an option: the line in which the writers of this store wait.
    pub(super) turns: Turns,
}

impl SqliteStoreBuilder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            options: Options {
                path: path.to_path_buf(),
                clock: Arc::new(HostClock),
                busy_timeout: Duration::from_secs(5),
                cache_bytes: 8 * MIB,
                wal_bytes: 128 * MIB,
                reserve_bytes: 16 * MIB,
                accepts_relaxed: false,
                migrates: true,
                codec: Codec::new(Watch::new(Arc::new(HostClock))),
                turns: Turns::default(),
            },
        }
    }

    /// The clock by which leases and retentions are counted, and what watches it; the host's if not said.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.options.clock = clock;
        self
    }

    /// How long to wait for another process that is writing: up to an hour, 5 s if not said.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.options.busy_timeout = timeout;
        self
    }

    /// How much memory each connection may use for pages: 1 MiB to 1 TiB, 8 MiB if not said.
    ///
    /// More is slower while the file is smaller than 1 GiB, because SQLite then looks through the
    /// whole cache with almost every commit; the pages are in the system's cache anyway.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.options.cache_bytes = bytes;
        self
    }

    /// From which size on the write-ahead log is begun anew: 1 MiB to 1 TiB, 128 MiB if not said.
    ///
    /// It may grow to twice this size, and further only while another process reads.
    pub fn wal_bytes(mut self, bytes: u64) -> Self {
        self.options.wal_bytes = bytes;
        self
    }

    /// How much room is kept for settling what runs: new claims are refused below it, 16 MiB if
    /// not said.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.options.reserve_bytes = bytes;
        self
    }

    /// Hides answers from a reader of the file without the key; `onceward::seal::Keyring` (feature
    /// `encryption`) is such a seal.
    ///
    /// Records from before stay readable. One that was sealed with a key that is not at hand is not
    /// absent: its outcome counts as unknown, and it raises an alarm. Messages are not sealed: they are the service's
    /// own data, like the rows that they are committed with.
    ///
    #[cfg_attr(feature = "encryption", doc = "```")]
    #[cfg_attr(not(feature = "encryption"), doc = "```ignore")]
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("onceward.db");
    /// use std::sync::Arc;
    /// use onceward::{seal::Keyring, store::sqlite::SqliteStore};
    ///
    /// let keys = Keyring::parse("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")?;
    /// let store = SqliteStore::builder(path).seal(Arc::new(keys)).open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seal(mut self, seal: Arc<dyn Seal>) -> Self {
        self.options.codec.set_seal(seal);
        self
    }

    /// Takes part in transactions of the user's own whose connection promises less than the store:
    /// with a `synchronous` below `FULL`, or with other files attached.
    ///
    /// When the power fails, such a commit can be lost though it was acknowledged, or be there in one
    /// file and not in the other. If not said, it is refused.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("cache.db");
    /// // What is lost here can be computed again.
    /// let store = onceward::store::sqlite::SqliteStore::builder(path)
    ///     .accept_relaxed_transactions()
    ///     .open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_relaxed_transactions(mut self) -> Self {
        self.options.accepts_relaxed = true;
        self
    }

    /// Leaves the tables as they are: a file that has none, or older ones, is refused with
    /// [`OpenError::Outdated`]. For operators who run `onceward migrate` before they deploy.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// use onceward::store::sqlite::{OpenError, SqliteStore};
    ///
    /// let refused = SqliteStore::builder(&path).without_migrations().open();
    /// assert!(matches!(refused, Err(OpenError::Outdated { found: 0, .. })));
    /// SqliteStore::builder(&path).migrate()?;
    /// let store = SqliteStore::builder(&path).without_migrations().open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_migrations(mut self) -> Self {
        self.options.migrates = false;
        self
    }

    /// Opens or creates the file. This blocks, for as long as the busy time-out: call it at start.
    pub fn open(self) -> Result<SqliteStore, OpenError> {
        SqliteStore::start(&self.checked()?)
    }

    /// Makes or updates the tables and leaves all others alone. All of it or nothing. The file gets a
    /// write-ahead log, if it has none.
    ///
    /// [`open`](Self::open) does the same by itself, unless an option says otherwise.
    pub fn migrate(self) -> Result<Tables, OpenError> {
        let options = Options { migrates: true, ..self.checked()? };
        schema::open(&options)?;
        schema::tables(&options)
    }

    /// Reads which version the tables have. No file is created, and nothing in one is changed; to read
    /// a write-ahead log SQLite needs a directory that it can write to.
    pub fn tables(self) -> Result<Tables, OpenError> {
        schema::tables(&self.checked()?)
    }

    /// Accepts that the file lacks durable commits, after [`OpenError::CommitsMissing`],
    /// [`OpenError::MarkMissing`] or [`OpenError::DatabaseMissing`]: it can be opened then, and **operations
    /// that were acknowledged in those commits run again when they are retried**.
    ///
    /// The reason is kept in the table `onceward_loss`. Gives how many commits are missing, as far as is
    /// known and at least 1; with 0 nothing was changed. A file that is damaged in itself is refused: restore a backup.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("onceward.db");
    /// use onceward::store::sqlite::SqliteStore;
    ///
    /// drop(SqliteStore::open(&path)?);
    /// assert_eq!(SqliteStore::builder(&path).accept_loss("nothing is missing")?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_loss(self, reason: &str) -> Result<u64, OpenError> {
        if reason.trim().is_empty() {
            let detail =
                "an operator who looks at the loss later must know why it was accepted".to_owned();
            return Err(OpenError::Setting { option: "reason", detail });
        }
        loss::accept(&Options { migrates: true, ..self.checked()? }, reason)
    }

    fn checked(mut self) -> Result<Options, OpenError> {
        let Options { busy_timeout, cache_bytes, wal_bytes, .. } = self.options;
        for (option, bytes) in [("cache_bytes", cache_bytes), ("wal_bytes", wal_bytes)] {
            if !(MIB..=MIB * MIB).contains(&bytes) {
                let detail = format!("{bytes} is not between 1 MiB and 1 TiB");
                return Err(OpenError::Setting { option, detail });
            }
        }
        if busy_timeout > Duration::from_secs(3600) {
            let detail = format!("{busy_timeout:?} is more than an hour");
            return Err(OpenError::Setting { option: "busy_timeout", detail });
        }
        self.options.path = schema::locate(&self.options.path)?;
        self.options.codec.set_watch(Watch::started(Arc::clone(&self.options.clock)));
        Ok(self.options)
    }
}
