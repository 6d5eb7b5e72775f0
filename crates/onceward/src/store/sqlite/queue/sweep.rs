//! Deletes messages that are over, a piece at a time, so that other changes hardly wait.

use std::time::Duration;

use onceward_core::{StoreError, Timestamp, message::Sweep};
use rusqlite::{Connection, params};

use super::{super::SqliteStore, Made, sql};

/// How many messages one transaction looks at.
const PIECE: u32 = 250;

/// What one piece of a sweep has done.
struct Piece {
    deleted: u32,
    /// Where the next one goes on; `None`: what follows is too young, or nothing does.
    next: Option<i64>,
}

impl SqliteStore {
    pub(super) async fn sweep_messages(
        &self,
        retain: Duration,
        limit: u32,
    ) -> Result<Sweep, StoreError> {
        let watch = self.inner.codec.watch();
        watch.look();
        watch.check_for_sweep()?;
        let mut sweep = Sweep::default();
        let mut next = Some(0);
        while let Some(behind) = next
            && sweep.messages < limit
        {
            let room = limit - sweep.messages;
            let piece = self
                .change(0, move |connection, now| {
                    delete(connection, behind, room, now.minus(retain))
                })
                .await?;
            sweep.messages += piece.deleted;
            next = piece.next;
        }
        Ok(sweep)
    }
}

fn delete(
    connection: &Connection,
    behind: i64,
    limit: u32,
    before: Timestamp,
) -> rusqlite::Result<Made<Piece>> {
    let done = Piece { deleted: 0, next: None };
    let mut has_sink = connection.prepare_cached(sql::HAS_SINK)?;
    if !has_sink.query_row([], |row| row.get(0))? {
        // Nothing was delivered: the first sink may want all of it.
        return Made::unchanged(done);
    }
    let mut sweepable = connection.prepare_cached(sql::SWEEPABLE)?;
    let rows = sweepable.query_map(params![behind, before.unix_micros(), PIECE], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
    })?;
    let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let is_last = rows.len() < PIECE as usize || rows.iter().any(|(_, is_old, _)| !is_old);
    let mut piece = Piece { next: rows.last().map(|(seq, ..)| *seq).filter(|_| !is_last), ..done };
    for (seq, is_old, may_go) in rows {
        if !is_old || piece.deleted == limit {
            break;
        }
        if may_go {
            connection.prepare_cached(sql::DELETE_MESSAGE)?.execute([seq])?;
            connection.prepare_cached(sql::FORGET_PARKED)?.execute([seq])?;
            piece.deleted += 1;
        }
    }
    match piece.deleted {
        0 => Made::unchanged(piece),
        _ => Made::written(piece),
    }
}
