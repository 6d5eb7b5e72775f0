//! One step of a lane.

use std::collections::BTreeSet;

use onceward_core::{
    StoreError, Timestamp,
    message::{Advance, ParkChange, Position, Settled, Settlement, SinkId},
};
use rusqlite::{Connection, params};

use super::{Made, cursor_at, rows::LaneRow, seq_of, sql};
use crate::store::sql::messages::ParkedColumns;

/// What one change counts for in the writer's queue, about.
pub(super) const CHANGE_BYTES: usize = 256;

/// Where the lane is after this settlement; `None`: where it was.
pub(super) fn end_of(settlement: &Settlement) -> Result<Option<i64>, StoreError> {
    match &settlement.advance {
        Advance::Stay => Ok(None),
        Advance::Through { place, .. } => Ok(Some(place.0)),
        Advance::Past(cursor) => seq_of(cursor).map(Some),
    }
}

pub(super) fn settle(
    connection: &Connection,
    settlement: &Settlement,
    to: Option<i64>,
    now: Timestamp,
) -> rusqlite::Result<Made<Settled>> {
    let Settlement { from, fence, changes, .. } = settlement;
    let Some(mut row) = LaneRow::read(connection, from.sink, from.lane)? else {
        return Made::unchanged(Settled::Fenced(None));
    };
    let newest = row.position(from.relay);
    if row.fence_of(from.step + 1) == Some(*fence) {
        // Its reply was lost, and others may have made steps since. A lane that is another relay's by now is shown as it was:
        // what comes next from there misses.
        let made = match row.relay == Some(from.relay) {
            true => newest,
            false => {
                let cursor = to.map_or(from.cursor.clone(), cursor_at);
                Position { step: from.step + 1, fence: *fence, cursor, ..newest }
            }
        };
        return Made::unchanged(Settled::Moved(made));
    }
    if newest.step != from.step || newest.fence != from.fence {
        let is_here = row.relay == Some(from.relay) && newest.cursor == from.cursor;
        return Made::unchanged(Settled::Fenced(is_here.then_some(newest)));
    }
    for change in changes {
        park(connection, from.sink, change, now)?;
    }
    let aggregates: BTreeSet<_> = changes.iter().map(|change| change.aggregate.as_str()).collect();
    for aggregate in aggregates {
        set_head(connection, from.sink, aggregate)?;
    }
    let cursor = to.unwrap_or(row.cursor).max(row.cursor);
    row.step(connection, *fence, cursor)?;
    Made::written(Settled::Moved(row.position(from.relay)))
}

fn park(
    connection: &Connection,
    sink: SinkId,
    change: &ParkChange,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let ParkChange { place, id, was_parked, to, .. } = change;
    let Some(ParkedColumns { state, attempts, wait, why }) = ParkedColumns::of(to) else {
        let mut unpark = connection.prepare_cached(sql::UNPARK)?;
        return unpark.execute(params![sink.0, place.0, id.as_bytes()]).map(drop);
    };
    // Without a time it is never due by itself.
    let due = wait.map_or(i64::MAX, |wait| now.plus(wait).unix_micros());
    let text = if *was_parked { sql::PARK_AGAIN } else { sql::PARK };
    let parameters =
        params![sink.0, place.0, id.as_bytes(), state, attempts, due, now.unix_micros(), why];
    connection.prepare_cached(text)?.execute(parameters).map(drop)
}

/// After a change of its parked messages: the first one that blocks an aggregate, and no other, is found by its
/// time.
pub(super) fn set_head(
    connection: &Connection,
    sink: SinkId,
    aggregate: &str,
) -> rusqlite::Result<()> {
    let mut head = connection.prepare_cached(sql::HEAD)?;
    let head: Option<i64> = head.query_row(params![sink.0, aggregate], |row| row.get(0))?;
    let mut clear = connection.prepare_cached(sql::CLEAR_OTHER_HEADS)?;
    clear.execute(params![sink.0, aggregate, head.unwrap_or_default()])?;
    connection.prepare_cached(sql::SET_HEAD)?.execute(params![sink.0, head]).map(drop)
}
