//! What can go wrong: when a file is opened, and while it is used.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use onceward_core::StoreError;
use rusqlite::ErrorCode;

use crate::telemetry;

/// Why a [`SqliteStore`](super::SqliteStore) could not be opened. The file was left as it is.
///
/// ```
/// use onceward::store::sqlite::{OpenError, SqliteStore};
///
/// let error = SqliteStore::open("/no/such/directory/onceward.db").unwrap_err();
/// assert!(matches!(error, OpenError::DirectoryMissing { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// An option of the builder has no usable value.
    Setting {
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The directory of the file does not exist.
    DirectoryMissing {
        /// The directory.
        directory: PathBuf,
    },
    /// The file is on a file system that other hosts may share.
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The file or its directory cannot be written.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite says about it.
        detail: String,
    },
    /// The file lacks commits that were durable: opened as it is, acknowledged operations run again.
    CommitsMissing {
        /// The file.
        path: PathBuf,
        /// The number of the last commit in it; `None`: it has no tables.
        found: Option<u64>,
        /// The number of the last durable commit that is known.
        known: u64,
    },
    /// The file is gone, though something of it is left beside it: a new one would know no key.
    DatabaseMissing {
        /// The file.
        path: PathBuf,
        /// What is left of it.
        left: PathBuf,
    },
    /// The file that counts the commits beside the store (`-mark`) is gone or was cut off: nothing tells
    /// whether commits are missing.
    MarkMissing {
        /// The file.
        path: PathBuf,
        /// The number of the last commit in it.
        found: u64,
    },
    /// Newer software has changed the tables.
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: u32,
        /// The newest version that this software knows.
        known: u32,
    },
    /// The tables are missing or older than this software, and an option keeps it from changing them.
    Outdated {
        /// The file.
        path: PathBuf,
        /// The version of its tables; 0 if there are none.
        found: u32,
        /// The version that this software needs.
        needed: u32,
    },
    /// Another process held the file for longer than the busy time-out.
    Busy {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// Anything else.
    Failed {
        /// The file.
        path: PathBuf,
        /// What the system says about it.
        detail: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { option, detail } => write!(
                formatter,
                "`{option}` cannot be used: {detail}; nothing was opened, choose another value"
            ),
            Self::DirectoryMissing { directory } => write!(
                formatter,
                "the directory {directory:?} does not exist; nothing was created, because a \
                 mistyped path would begin with an empty memory: create it or correct the path"
            ),
            Self::NetworkFileSystem { path, kind } => write!(
                formatter,
                "{path:?} is on a network file system ({kind}), where SQLite's locks and shared \
                 memory do not hold and records would be lost; nothing was opened: use a local \
                 disk, or a PostgreSQL store for several hosts"
            ),
            Self::ReadOnly { path } => write!(
                formatter,
                "{path:?} or its directory cannot be written; nothing was changed: give this \
                 process write permission to both, or mount the file system read-write"
            ),
            Self::NotADatabase { path } => write!(
                formatter,
                "{path:?} is not an SQLite database; it was left untouched: choose another path, \
                 or restore the file if it was a store"
            ),
            Self::Corrupt { path, detail } => write!(
                formatter,
                "{path:?} is damaged ({detail}); it was left untouched and its records must not \
                 be taken as absent: copy it, run `sqlite3 … .recover` on the copy or restore a \
                 backup"
            ),
            Self::CommitsMissing { path, found, known } => {
                let found = found.map_or("has none at all".to_owned(), |found| {
                    format!("ends with commit {found}")
                });
                write!(
                    formatter,
                    "{path:?} {found}, though its commit {known} was durable: its log (`-wal`) was \
                     damaged, cut off or removed, or an older file was put in its place; it was left \
                     untouched, because operations that were acknowledged would run again: copy the \
                     file and all that lies beside it (`-wal`, `-shm`, `-mark`), then restore a \
                     backup or accept the loss with `onceward migrate --accept-loss REASON`"
                )
            }
            Self::DatabaseMissing { path, left } => write!(
                formatter,
                "{path:?} is gone, though {left:?} is left of it; nothing was created or changed, because \
                 an empty store would run every key again: put the file back or restore a backup, or, if \
                 its records are lost, accept that with `onceward migrate --accept-loss REASON`, which \
                 makes an empty one"
            ),
            Self::MarkMissing { path, found } => write!(
                formatter,
                "{path:?} ends with commit {found}, and the file `-mark` beside it, which tells whether that \
                 was the last one, is gone or was cut off; it was left untouched, because operations that \
                 were acknowledged could run again: put `-mark` back, or, if nothing else was lost or you \
                 accept it, say so with `onceward migrate --accept-loss REASON`"
            ),
            Self::Newer { path, found, known } => write!(
                formatter,
                "{path:?} has tables of version {found}, this software knows {known}; it was left \
                 untouched: finish the upgrade of this process"
            ),
            Self::Outdated { path, found: 0, .. } => write!(
                formatter,
                "{path:?} does not exist or has no tables of Onceward; nothing was created or \
                 changed: check the path, or run `onceward migrate` to make them"
            ),
            Self::Outdated { path, found, needed } => write!(
                formatter,
                "the tables in {path:?} have version {found}, this software needs {needed}; \
                 nothing was changed: run `onceward migrate` first"
            ),
            Self::Busy { path, waited } => write!(
                formatter,
                "{path:?} was held by another process for {waited:?}; nothing was changed: find \
                 out who holds a transaction open, or raise `busy_timeout`"
            ),
            Self::Failed { path, detail } => write!(
                formatter,
                "{path:?} could not be opened ({detail}); no record was changed: correct the cause \
                 and start again"
            ),
        }
    }
}

impl Error for OpenError {}

impl OpenError {
    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
        let (path, detail) = (path.to_path_buf(), error.to_string());
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path }
            }
            _ => Self::Failed { path, detail },
        }
    }

    pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, detail) = (path.to_path_buf(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, detail },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            _ => Self::Failed { path, detail },
        }
    }
}

/// Whether another connection holds a lock that may be free again in a moment.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let busy = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked];
    error.sqlite_error_code().is_some_and(|code| busy.contains(&code))
}

/// Whether the disk failed, so that trying the same again change by change would only take longer.
pub(super) fn is_io(error: &rusqlite::Error) -> bool {
    let io = [ErrorCode::SystemIoFailure, ErrorCode::OutOfMemory, ErrorCode::CannotOpen];
    error.sqlite_error_code().is_some_and(|code| io.contains(&code))
}

/// The meaning of an error after which nothing was written.
pub(super) fn before_commit(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => corrupt(error),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::Unusable(format!(
            "the SQLite file has become read-only ({error}); nothing was written: make the file \
             and its directory writable again"
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Unavailable(format!(
                "another process has held the SQLite file for too long ({error}); nothing was \
                 written: find out who holds a transaction open, or raise `busy_timeout`"
            ))
        }
        Some(ErrorCode::TooBig) => StoreError::Unusable(format!(
            "the record is larger than SQLite stores ({error}); nothing was written: keep answers \
             below 1 GB"
        )),
        Some(_) => StoreError::Unavailable(format!("SQLite failed ({error}); nothing was written")),
        // A column holds what its declaration forbids: not this software wrote it.
        None => corrupt(error),
    }
}

/// The meaning of an error inside a transaction of the user's own, which must be rolled back.
pub(super) fn inside(error: &rusqlite::Error, path: &Path) -> StoreError {
    let (code, text) = match error {
        rusqlite::Error::SqliteFailure(code, text) => (code.extended_code, text.as_deref()),
        _ => (0, None),
    };
    if code == rusqlite::ffi::SQLITE_BUSY_SNAPSHOT {
        return StoreError::Unavailable(format!(
            "the transaction began by reading and another one has written since ({error}); nothing was \
             written: begin it with `BEGIN IMMEDIATE`"
        ));
    }
    if text.is_some_and(|text| text.contains("no such table: main.onceward_")) {
        return StoreError::Unusable(format!(
            "the transaction's database has no records ({error}), they are in {path:?}; nothing was \
             written: an effect and its record commit together only in one file"
        ));
    }
    before_commit(error)
}

/// The meaning of a failed commit: the change may show up after a crash.
pub(super) fn at_commit(error: &rusqlite::Error) -> StoreError {
    if let Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) = error.sqlite_error_code() {
        telemetry::STORE_CORRUPT.raise(error);
    }
    StoreError::Unavailable(format!("SQLite could not commit ({error})"))
}

fn corrupt(error: &rusqlite::Error) -> StoreError {
    telemetry::STORE_CORRUPT.raise(error);
    StoreError::Unusable(format!(
        "the SQLite file is damaged ({error}); nothing was written and absent records must not be \
         trusted: restore a backup or recover a copy of the file"
    ))
}

/// The thread that should have answered is gone.
pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("a thread of the SQLite store has stopped; restart the process".into())
}
