//! The stores that are measured, opened and filled.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use onceward::{Store, clock::Clock, store::sqlite::SqliteStore};
use tokio::runtime::Runtime;

use crate::{Failure, append_log::AppendLog, load};

/// One store under measurement.
pub(crate) struct Subject {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// The number of the next operation; those below are stored.
    pub(crate) numbers: Arc<AtomicU64>,
}

impl Subject {
    /// A log in a new file that holds so many ended records.
    pub(crate) fn log(runtime: &Runtime, path: &Path, records: u64) -> Result<Self, Failure> {
        let capacity = usize::try_from(2 * records)?;
        let log = AppendLog::create(path, capacity)?;
        Self::filled(runtime, Arc::new(log), records, "the log")
    }

    /// A `SQLite` store in a new file that holds so many ended records.
    pub(crate) fn sqlite(runtime: &Runtime, path: &Path, records: u64) -> Result<Self, Failure> {
        Self::filled(runtime, open_sqlite(path)?, records, "SQLite")
    }

    /// Fills a store with so many ended records.
    pub(crate) fn filled(
        runtime: &Runtime,
        store: Arc<dyn Store>,
        records: u64,
        name: &str,
    ) -> Result<Self, Failure> {
        if records > 0 {
            load::fill(runtime, &store, 0..records, &format!("{name} with {records} records"))?;
        }
        Ok(Self { store, numbers: Arc::new(AtomicU64::new(records)) })
    }
}

/// Opens or makes a `SQLite` store with the settings that a user gets.
pub(crate) fn open_sqlite(path: &Path) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(SqliteStore::builder(path).open()?))
}

/// The same by another clock.
pub(crate) fn open_sqlite_by(
    path: &Path,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(SqliteStore::builder(path).clock(clock).open()?))
}

/// Both stores with the same number of records.
pub(crate) struct Contest {
    /// How many records both hold at first.
    pub(crate) records: u64,
    /// The bound.
    pub(crate) log: Subject,
    /// The store.
    pub(crate) sqlite: Subject,
    files: [PathBuf; 2],
}

impl Contest {
    /// Makes and fills both, in new files of this directory.
    pub(crate) fn new(runtime: &Runtime, directory: &Path, records: u64) -> Result<Self, Failure> {
        let files = ["log", "sqlite"].map(|name| directory.join(format!("{records}.{name}")));
        let log = Subject::log(runtime, &files[0], records)?;
        let sqlite = Subject::sqlite(runtime, &files[1], records)?;
        Ok(Self { records, log, sqlite, files })
    }

    /// How many records each holds by now.
    pub(crate) fn grown(&self) -> Grown {
        let records = |subject: &Subject| subject.numbers.load(Ordering::Relaxed);
        Grown { from: self.records, log: records(&self.log), sqlite: records(&self.sqlite) }
    }

    /// Reads both files once, so that look-ups find them in the page cache.
    ///
    /// In another process: closing a file drops all locks that this one, and so `SQLite`, has on it.
    pub(crate) fn warm(&self) -> Result<(), Failure> {
        let read = Command::new("cat").args(&self.files).stdout(Stdio::null()).status()?;
        if !read.success() {
            return Err("the stores' files could not be read".into());
        }
        Ok(())
    }

    /// Closes both and removes the log; returns the file of the other.
    pub(crate) fn close(self) -> Result<PathBuf, Failure> {
        let [log, sqlite] = self.files;
        drop((self.log, self.sqlite));
        std::fs::remove_file(log)?;
        Ok(sqlite)
    }
}

/// How far two stores grew while they were measured.
pub(crate) struct Grown {
    /// Their records at first.
    pub(crate) from: u64,
    /// Records of the log at the end.
    pub(crate) log: u64,
    /// Records of `SQLite` at the end.
    pub(crate) sqlite: u64,
}

/// Removes the file of a closed store and what `SQLite` keeps beside it.
pub(crate) fn remove_sqlite(path: &Path) -> Result<(), Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    for entry in std::fs::read_dir(path.parent().unwrap_or(path))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|found| found.starts_with(name)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
