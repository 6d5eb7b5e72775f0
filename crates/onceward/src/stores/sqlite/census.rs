//! What metrics and a doctor ask for: how much is open, how old, how large the files are.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use onceward_core::{Digest, Found, Status, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};

use super::{reader::flat, rows::Row, space, sql};
use crate::stores::sealing::Sealing;

/// The state of a store at one moment, cheap enough to be asked for every few seconds.
///
/// ```
/// use onceward::stores::sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let store = SqliteStore::open(directory.path().join("onceward.db"))?;
/// let census = store.census().await?;
/// assert_eq!((census.unknown, census.is_complete), (0, true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many operations run.
    pub in_progress: u64,
    /// How many were interrupted and may be run again.
    pub interrupted: u64,
    /// How many failed and may be run again.
    pub failed_retryable: u64,
    /// How many have an unknown outcome, those that cannot be read among them.
    pub unknown: u64,
    /// `false`: more than [`Census::MAX_COUNTED`] records are open, so that each of the numbers above
    /// means "at least".
    pub is_complete: bool,
    /// How long ago the oldest of the counted operations that still have to end was first claimed.
    pub oldest_open: Option<Duration>,
    /// When the record that came last was last written.
    pub last_write: Option<Timestamp>,
    /// How large the file is.
    pub file_bytes: u64,
    /// How large the write-ahead log is.
    pub log_bytes: u64,
    /// How much room the file system has left for it; `None`: this system does not tell.
    pub free_bytes: Option<u64>,
}

impl Census {
    /// How many records are counted at most: reading them takes some hundredths of a second.
    pub const MAX_COUNTED: u32 = 10_000;

    fn count(&mut self, found: &Found) {
        let status = match found {
            Found::Record(stored) => stored.status(),
            Found::Unreadable { .. } => Status::Unknown,
            Found::Nothing => return,
        };
        match status {
            Status::InProgress => self.in_progress += 1,
            Status::Interrupted => self.interrupted += 1,
            Status::FailedRetryable => self.failed_retryable += 1,
            Status::Unknown => self.unknown += 1,
            Status::Succeeded | Status::FailedFinal | Status::Released | Status::Expired => {}
        }
        if let Found::Record(stored) = found
            && status.is_open()
        {
            self.oldest_open = self.oldest_open.max(Some(stored.age()));
        }
    }
}

pub(super) fn census(
    connection: &Connection,
    path: &Path,
    now: Timestamp,
    sealing: &Sealing,
) -> Result<Census, StoreError> {
    let mut census = Census {
        is_complete: true,
        file_bytes: size(path),
        log_bytes: size(&log_of(path)),
        free_bytes: space::free_bytes(path),
        ..Census::default()
    };
    let last_write = connection.query_row(sql::LAST_WRITE, [], |row| row.get(0)).optional();
    census.last_write = flat(last_write)?.map(Timestamp::from_unix_micros);
    let mut statement = flat(connection.prepare(sql::OPEN))?;
    let mut rows = flat(statement.query([]))?;
    let mut counted = 0;
    while let Some(row) = flat(rows.next())? {
        if counted == Census::MAX_COUNTED {
            census.is_complete = false;
            break;
        }
        counted += 1;
        let id = Digest(flat(row.get(0))?);
        census.count(&flat(Row::read(row, 1, now))?.look(&id, sealing)?);
    }
    Ok(census)
}

/// SQLite keeps the log beside the file.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// A file that is not there takes no room.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}
