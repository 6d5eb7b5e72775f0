//! How long the write-ahead log is, and how long it must be.

use std::{fs, path::Path};

use rusqlite::{Connection, OpenFlags};

use super::{mark::beside, schema, sql};

/// What SQLite puts before all frames of a log.
const HEADER_BYTES: u64 = 32;

/// The header of a frame in the log, beside its page.
pub(super) const FRAME_HEADER_BYTES: u64 = 24;

/// How often the store asks SQLite before it believes the answer: another process may begin the log anew
/// between a question and a look.
const LOOKS: usize = 3;

/// 0 if there is none.
pub(super) fn length(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |found| found.len())
}

/// Whether the log is shorter than what SQLite has written there. Asked only when it has become shorter.
///
/// The connection is closed again at once: none may outlive the writing one, which leaves no log behind.
pub(super) fn lacks_frames(path: &Path) -> bool {
    let Ok(connection) = schema::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE) else {
        return true;
    };
    (0..LOOKS).all(|_| {
        let before = needed(&connection);
        let found = length(path);
        let after = needed(&connection);
        match (before, after) {
            (Ok(before), Ok(after)) => found < before.min(after),
            (before, after) => before.is_err() && after.is_err(),
        }
    })
}

/// The shared memory says how far the log reaches: SQLite changes it before it cuts the log off.
fn needed(connection: &Connection) -> rusqlite::Result<u64> {
    schema::keep_log(connection, true)?;
    // The log is opened by what is read first, and that may be what is missing.
    let _ = connection.query_row(sql::SCHEMA_COUNT, [], |_| Ok(()));
    let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let frames: i64 = connection.query_row(sql::LOG_POSITION, [], |row| row.get(1))?;
    Ok(match u64::try_from(frames) {
        Ok(frames @ 1..) => HEADER_BYTES + frames * (u64::from(page) + FRAME_HEADER_BYTES),
        _ => 0,
    })
}
