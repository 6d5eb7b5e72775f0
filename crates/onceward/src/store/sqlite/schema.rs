//! Opens the file: checks where it lies, makes it durable, brings its tables up to date.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, params};

use super::{
    OpenError,
    builder::Options,
    error::is_busy,
    mark::{self, Evidence, Mark, Missing},
    space, sql,
};

/// The migrations in the order of their versions, which count from 1. Append only.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_records.sql"),
    include_str!("../../../migrations/sqlite/0002_listing.sql"),
    include_str!("../../../migrations/sqlite/0003_mark.sql"),
    include_str!("../../../migrations/sqlite/0004_routes.sql"),
    include_str!("../../../migrations/sqlite/0005_operations.sql"),
    include_str!("../../../migrations/sqlite/0006_messages.sql"),
];

/// The first version whose files count their commits.
const COUNTS_COMMITS: u32 = 3;

/// Only a new file takes it.
const PAGE_BYTES: u32 = 4096;

/// How long a process sleeps before it asks for a lock again. Short, because the holder's transactions
/// are: SQLite's own steps of up to 100 ms would rarely meet the gap between two of them.
const ASK_AGAIN: Duration = Duration::from_micros(500);

/// Durability as the writing connection reports it.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = onceward::store::sqlite::SqliteStore::open(directory.path().join("onceward.db"))?;
/// assert_eq!(store.durability().journal_mode, "wal");
/// assert_eq!(store.durability().synchronous, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability {
    /// SQLite's `journal_mode`: always `wal`.
    pub journal_mode: String,
    /// SQLite's `synchronous`: 2 is `FULL`, every commit is on the disk before it is answered.
    pub synchronous: u8,
}

/// The version of the tables in a file, and the one that this software knows.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.db");
/// use onceward::store::sqlite::SqliteStore;
///
/// let before = SqliteStore::builder(&path).tables()?;
/// assert!(before.found == 0 && !before.is_current() && !path.exists());
/// assert!(SqliteStore::builder(&path).migrate()?.is_current());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The version in the file; 0 if it has no tables of Onceward, or does not exist.
    pub found: u32,
    /// The newest version that this software knows.
    pub known: u32,
}

impl Tables {
    /// Whether nothing is left to migrate.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.found == self.known
    }
}

/// Reads the version of the tables. Nothing is created or changed.
pub(super) fn tables(options: &Options) -> Result<Tables, OpenError> {
    let path = &options.path;
    let known = MIGRATIONS.len() as u32;
    if !path.exists() {
        return Ok(Tables { found: 0, known });
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    keep_log(&connection, true).map_err(|error| OpenError::from_sqlite(path, &error))?;
    let found = patiently(options.busy_timeout, is_busy, || version(&connection));
    let found = found.map_err(|error| OpenError::from_sqlite(path, &error))?;
    Ok(Tables { found, known })
}

/// Opens the connection that writes; makes or updates the tables.
pub(super) fn open(options: &Options) -> Result<Connection, OpenError> {
    let path = &options.path;
    if let Some(left) = mark::left_of(path) {
        return Err(OpenError::DatabaseMissing { path: path.clone(), left });
    }
    if !options.migrates && !path.exists() {
        let needed = MIGRATIONS.len() as u32;
        return Err(OpenError::Outdated { path: path.clone(), found: 0, needed });
    }
    let evidence = Evidence::gather(path).map_err(|error| OpenError::from_io(path, &error))?;
    create_private(path);
    open_with(options, Some(&evidence))
}

/// Opens it if it has all the commits of which there is evidence; without evidence, whatever it has.
pub(super) fn open_with(
    options: &Options,
    evidence: Option<&Evidence>,
) -> Result<Connection, OpenError> {
    let path = &options.path;
    let connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    // Each try does nothing that was done before, so that it may stop wherever another process is.
    let prepared = patiently(options.busy_timeout, Refusal::is_busy, || {
        keep_log(&connection, true)?;
        prepare(&connection, options, evidence)?;
        Ok(keep_log(&connection, false)?)
    });
    prepared.map_err(|refusal| match refusal {
        Refusal::Sqlite(error) if is_busy(&error) => {
            OpenError::Busy { path: path.clone(), waited: options.busy_timeout }
        }
        Refusal::Sqlite(error) => OpenError::from_sqlite(path, &error),
        Refusal::Open(error) => error,
    })?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(options: &Options) -> Result<Connection, OpenError> {
    open_tuned(options, OpenFlags::SQLITE_OPEN_READ_ONLY, |connection| {
        connection.busy_timeout(options.busy_timeout)?;
        set_cache(connection, options.cache_bytes)?;
        connection.pragma_update(None, "query_only", true)
    })
}

/// Opens the connection that sweeps. Its commits do not wait for the disk.
pub(super) fn open_sweeper(options: &Options) -> Result<Connection, OpenError> {
    open_tuned(options, OpenFlags::SQLITE_OPEN_READ_WRITE, |connection| {
        connection.busy_timeout(Duration::ZERO)?;
        make_durable(connection)?;
        connection.pragma_update(None, "synchronous", "normal")?;
        set_cache(connection, options.cache_bytes)
    })
}

/// Opens the connection that copies the log into the file.
pub(super) fn open_checkpointer(options: &Options) -> Result<Connection, OpenError> {
    open_tuned(options, OpenFlags::SQLITE_OPEN_READ_WRITE, make_durable)
}

fn open_tuned(
    options: &Options,
    flags: OpenFlags,
    tune: impl Fn(&Connection) -> rusqlite::Result<()>,
) -> Result<Connection, OpenError> {
    let connection = connect(&options.path, flags)?;
    let tuned = patiently(options.busy_timeout, is_busy, || tune(&connection));
    tuned.map_err(|error| OpenError::from_sqlite(&options.path, &error))?;
    Ok(connection)
}

/// A new file holds answers that only its owner shall read; SQLite gives the log the mode of the file.
/// If that fails, opening the file says why.
pub(super) fn create_private(path: &Path) {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.open(path);
}

/// Repeats what another process's locks prevent until it works or time is up.
pub(super) fn patiently<T, E>(
    patience: Duration,
    is_busy: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match ask() {
            Err(error) if is_busy(&error) && start.elapsed() < patience => thread::sleep(ASK_AGAIN),
            answer => return answer,
        }
    }
}

/// Where the file is or will be, if that is a place where SQLite's promises hold.
pub(super) fn locate(path: &Path) -> Result<PathBuf, OpenError> {
    let Some(name) = path.file_name().filter(|name| *name != ":memory:") else {
        let detail = "the store is a file that outlives the process; name one".into();
        return Err(OpenError::Setting { option: "path", detail });
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let failed = |error: std::io::Error| OpenError::Failed {
        path: path.to_path_buf(),
        detail: error.to_string(),
    };
    let missing = |_| OpenError::DirectoryMissing { directory: directory.to_path_buf() };
    let directory = directory.canonicalize().map_err(missing)?;
    // SQLite follows links, and keeps the log beside the file that it finds.
    let path = directory.join(name);
    let path = path.canonicalize().unwrap_or(path);
    let present = if path.exists() { &path } else { &directory };
    match space::network_file_system(present).map_err(failed)? {
        Some(kind) => Err(OpenError::NetworkFileSystem { path, kind }),
        None => Ok(path),
    }
}

/// Reads back what the connection promises.
pub(super) fn durability(connection: &Connection) -> rusqlite::Result<Durability> {
    Ok(Durability {
        journal_mode: connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
        synchronous: connection.pragma_query_value(None, "synchronous", |row| row.get(0))?,
    })
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // What does not exist and cannot be opened could not be created.
    Connection::open_with_flags(path, flags).map_err(|error| match path.exists() {
        false => OpenError::ReadOnly { path: path.to_path_buf() },
        true => OpenError::from_sqlite(path, &error),
    })
}

enum Refusal {
    Sqlite(rusqlite::Error),
    Open(OpenError),
}

impl Refusal {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_busy(error))
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// What is refused is left as it is: SQLite would copy and delete the log when it is closed.
pub(super) fn keep_log(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

fn prepare(
    connection: &Connection,
    options: &Options,
    evidence: Option<&Evidence>,
) -> Result<(), Refusal> {
    let path = || options.path.clone();
    let not_durable = |detail| OpenError::Failed { path: path(), detail };
    connection.busy_timeout(Duration::ZERO)?;
    // This software changes nothing before it has found that it may.
    let (found, needed) = (version(connection)?, MIGRATIONS.len() as u32);
    if found > needed {
        return Err(OpenError::Newer { path: path(), found, known: needed }.into());
    }
    let mark = if found < COUNTS_COMMITS { None } else { Mark::read(connection)? };
    if let Some(evidence) = evidence {
        check_complete(mark, &options.path, evidence)?;
    }
    if !options.migrates && found < needed {
        return Err(OpenError::Outdated { path: path(), found, needed }.into());
    }
    if connection.is_readonly("main")? {
        return Err(OpenError::ReadOnly { path: path() }.into());
    }
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(not_durable(format!("SQLite keeps its journal mode `{mode}`")).into());
    }
    make_durable(connection)?;
    if durability(connection)?.synchronous < 2 {
        return Err(not_durable("SQLite does not accept `synchronous=FULL`".into()).into());
    }
    connection.pragma_update(None, "journal_size_limit", signed(2 * options.wal_bytes))?;
    connection.pragma_update(None, "temp_store", "memory")?;
    set_cache(connection, options.cache_bytes)?;
    migrate(connection, options)?;
    match Mark::read(connection)?.map(|mark| mark::ensure(&options.path, mark)) {
        Some(Err(error)) => {
            let detail = format!("the file `-mark` beside it cannot be written: {error}");
            Err(not_durable(detail).into())
        }
        _ => Ok(()),
    }
}

/// Refuses a file that lacks commits, or of which that cannot be known.
fn check_complete(mark: Option<Mark>, path: &Path, evidence: &Evidence) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    if let Some(Missing { known, found }) = evidence.missing(mark) {
        return Err(OpenError::CommitsMissing { path, found, known });
    }
    // Asked after the file: the mark is made before the first commit, also by another process that has
    // begun meanwhile.
    match mark.map(Mark::commits) {
        Some(found @ 1..) if !mark::is_beside(&path) => Err(OpenError::MarkMissing { path, found }),
        _ => Ok(()),
    }
}

fn make_durable(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "full")?;
    // Without these, macOS leaves synced data in the drive's volatile cache. No effect elsewhere.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // The second connection checkpoints; a commit must not have to.
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

fn set_cache(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    // Negative: in KiB, not in pages.
    connection.pragma_update(None, "cache_size", -signed(bytes / 1024))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    match connection.query_row(sql::HAS_SCHEMA, [], |row| row.get(0))? {
        true => connection.query_row(sql::SCHEMA_VERSION, [], |row| row.get(0)),
        false => Ok(0),
    }
}

/// Applies what is missing, all of it or nothing; another process may be doing the same.
fn migrate(connection: &Connection, options: &Options) -> Result<(), Refusal> {
    if version(connection)? == MIGRATIONS.len() as u32 {
        return Ok(());
    }
    connection.execute_batch(sql::BEGIN)?;
    let migrated = migrate_locked(connection, options).and_then(|()| {
        connection.execute_batch(sql::COMMIT)?;
        Ok(())
    });
    if migrated.is_err() && !connection.is_autocommit() {
        connection.execute_batch(sql::ROLLBACK)?;
    }
    migrated
}

fn migrate_locked(connection: &Connection, options: &Options) -> Result<(), Refusal> {
    connection.execute_batch(sql::CREATE_SCHEMA)?;
    let (applied, known) = (version(connection)?, MIGRATIONS.len() as u32);
    if applied > known {
        let path = options.path.clone();
        return Err(OpenError::Newer { path, found: applied, known }.into());
    }
    let now = options.clock.now().unix_micros();
    for (version, migration) in (1..).zip(MIGRATIONS).skip(applied as usize) {
        connection.execute_batch(migration)?;
        connection.execute(sql::APPLIED, params![version, now])?;
        if version == COUNTS_COMMITS {
            Mark::fresh().write(connection)?;
        }
    }
    Ok(())
}
