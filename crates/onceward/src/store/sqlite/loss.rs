//! Accepts that commits are gone, by an operator's word.

use std::io;

use onceward_core::Timestamp;
use rusqlite::{Connection, OpenFlags, params};

use super::{
    OpenError,
    builder::Options,
    mark::{self, Evidence, Mark, Missing},
    schema, sql,
};

/// Gives the number of commits that are missing; 0: nothing was changed.
pub(super) fn accept(options: &Options, reason: &str) -> Result<u64, OpenError> {
    let path = &options.path;
    let explain = |error: &rusqlite::Error| OpenError::from_sqlite(path, error);
    let from_io = |error: io::Error| OpenError::from_io(path, &error);
    let is_gone = mark::left_of(path).is_some();
    if !is_gone && !path.exists() {
        let detail = "there is no such file".to_owned();
        return Err(OpenError::Failed { path: path.clone(), detail });
    }
    let evidence = Evidence::gather(path).map_err(from_io)?;
    let missing = if is_gone {
        mark::forget_log(path).map_err(from_io)?;
        schema::create_private(path);
        Missing { known: evidence.last(), found: None }
    } else {
        match schema::open_with(options, Some(&evidence)) {
            Ok(_) => return Ok(0),
            Err(OpenError::CommitsMissing { known, found, .. }) => Missing { known, found },
            // SQLite cannot tell how many were lost, if any.
            Err(OpenError::MarkMissing { found, .. }) => {
                Missing { known: found, found: Some(found) }
            }
            Err(error) => return Err(error),
        }
    };
    let Missing { known, found } = missing;
    // The log may have ended in the middle of what had been copied into the file: then pages of
    // different times lie beside each other, and no record in it may be believed.
    check_integrity(options)?;
    let connection = schema::open_with(options, None)?;
    let entry = Entry { missing: Missing { known, found }, at: options.clock.now(), reason };
    write(&connection, &evidence, &entry).map_err(|error| explain(&error))?;
    // Of a store that has no number at all, the number 0 is missing too.
    Ok(found.map_or(known + 1, |found| (known - found).max(1)))
}

struct Entry<'r> {
    missing: Missing,
    at: Timestamp,
    reason: &'r str,
}

fn check_integrity(options: &Options) -> Result<(), OpenError> {
    let path = &options.path;
    let connection = schema::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let said: rusqlite::Result<String> = schema::keep_log(&connection, true)
        .and_then(|()| connection.query_row(sql::INTEGRITY, [], |row| row.get(0)));
    match said.map_err(|error| OpenError::from_sqlite(path, &error))? {
        sound if sound == "ok" => Ok(()),
        detail => Err(OpenError::Corrupt { path: path.clone(), detail }),
    }
}

/// The next number is one that no trace of a lost commit reaches.
fn write(connection: &Connection, evidence: &Evidence, entry: &Entry<'_>) -> rusqlite::Result<()> {
    let Entry { missing: Missing { known, found }, at, reason } = entry;
    connection.execute_batch(sql::BEGIN)?;
    if let Some(mark) = Mark::read(connection)? {
        evidence.after_all(mark).write(connection)?;
    }
    let (known, found) = (schema::signed(*known), found.map(schema::signed));
    connection.execute(sql::ACCEPT_LOSS, params![at.unix_micros(), known, found, reason])?;
    connection.execute_batch(sql::COMMIT)
}
