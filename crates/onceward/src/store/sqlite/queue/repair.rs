//! What operators change in the outbox.

use onceward_core::{
    StoreError, Timestamp,
    message::{Changed, Lane, MessageState, RepairKind, RepairMessage, SinkId, SinkName},
};
use rusqlite::{Connection, params};

use super::{Made, inspect::state_in, lanes, rows::LaneRow, settle::set_head, sql};
use crate::engine::fresh_fence;

/// A message at a sink.
struct Place {
    seq: i64,
    lane: u8,
    aggregate: String,
    state: Result<MessageState, StoreError>,
}

pub(super) fn repair(
    connection: &Connection,
    repair: &RepairMessage,
    now: Timestamp,
) -> rusqlite::Result<Made<Result<Changed, StoreError>>> {
    let Some(sink) = lanes::sink(connection, &repair.sink)? else {
        return Made::unchanged(Ok(Changed::Absent));
    };
    let Some(Place { seq, lane, aggregate, state }) = find(connection, sink, repair)? else {
        return Made::unchanged(Ok(Changed::Absent));
    };
    let state = match state {
        Ok(state) => state,
        Err(error) => return Made::unchanged(Err(error)),
    };
    let (text, states): (_, &[MessageState]) = match repair.kind {
        RepairKind::Redrive => {
            (sql::REDRIVE, &[MessageState::Dead, MessageState::Held, MessageState::Waiting])
        }
        RepairKind::Discard => (
            sql::DISCARD,
            &[
                MessageState::Dead,
                MessageState::Held,
                MessageState::Waiting,
                MessageState::Scheduled,
            ],
        ),
    };
    // A message that waits may also be one that its lane has not reached: it has no entry.
    let has_entry =
        || connection.prepare_cached(text)?.execute(params![sink.0, seq, now.unix_micros()]);
    if !states.contains(&state) || has_entry()? == 0 {
        return Made::unchanged(Ok(Changed::Refused(state)));
    }
    set_head(connection, sink, &aggregate)?;
    // A relay that is at this lane reads again before it changes anything.
    if let Some(lane) = Lane::from_number(lane)
        && let Some(mut row) = LaneRow::read(connection, sink, lane)?
    {
        row.step(connection, fresh_fence(), row.cursor)?;
    }
    let RepairMessage { id, sink, kind, actor, reason } = repair;
    connection.prepare_cached(sql::NOTE)?.execute(params![
        id.as_bytes(),
        sink.as_str(),
        now.unix_micros(),
        kind.as_str(),
        actor,
        reason
    ])?;
    Made::written(Ok(Changed::Done))
}

fn find(
    connection: &Connection,
    sink: SinkId,
    repair: &RepairMessage,
) -> rusqlite::Result<Option<Place>> {
    let mut statement = connection.prepare_cached(sql::FIND)?;
    let mut rows = statement.query(params![repair.id.as_bytes(), sink.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (seq, lane, aggregate) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(Some(Place { seq, lane, aggregate, state: state_in(row, 3) }))
}

/// All of it at once: rarely is much parked.
pub(super) fn remove_sink(
    connection: &Connection,
    name: &SinkName,
) -> rusqlite::Result<Made<bool>> {
    let Some(sink) = lanes::sink(connection, name)? else {
        return Made::unchanged(false);
    };
    for text in sql::REMOVE_SINK {
        connection.prepare_cached(text)?.execute([sink.0])?;
    }
    Made::written(true)
}
