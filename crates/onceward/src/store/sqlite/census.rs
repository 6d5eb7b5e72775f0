//! What metrics and a doctor ask for: how much is open, how old, how large the files are.

use std::path::Path;

use onceward_core::{Digest, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};

use super::{mark::beside, reader::flat, rows::Row, space, sql};
use crate::store::{Census, sql::codec::Codec};

pub(super) fn census(
    connection: &Connection,
    path: &Path,
    now: Timestamp,
    codec: &Codec,
) -> Result<Census, StoreError> {
    let mut census = Census {
        is_complete: true,
        file_bytes: size(path),
        log_bytes: size(&beside(path, "-wal")),
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
        census.count(&flat(Row::read(row, 1, now))?.look(&id, codec)?);
    }
    Ok(census)
}

/// A file that is not there takes no room.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}
