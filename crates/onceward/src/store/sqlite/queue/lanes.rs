//! Sinks, and who holds their lanes.

use onceward_core::{
    StoreError, Timestamp,
    message::{Lane, LeaseRequest, MessageId, Position, RelayId, SinkId, SinkName, StartFrom},
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Made, rows::LaneRow, sql};
use crate::engine::fresh_fence;

/// How many messages get their lanes in one transaction.
const MAX_LANES_GIVEN: u32 = 500;

pub(super) fn open_sink(
    connection: &Connection,
    name: &SinkName,
    from: StartFrom,
    now: Timestamp,
) -> rusqlite::Result<Made<SinkId>> {
    if let Some(sink) = sink(connection, name)? {
        return Made::unchanged(sink);
    }
    let begins_behind = match from {
        StartFrom::Now => last_number(connection)?,
        StartFrom::Oldest => 0,
    };
    let mut open = connection.prepare_cached(sql::OPEN_SINK)?;
    let sink: i16 =
        open.query_row(params![name.as_str(), begins_behind, now.unix_micros()], |row| row.get(0))?;
    let mut open = connection.prepare_cached(sql::OPEN_LANE)?;
    for lane in Lane::all() {
        open.execute(params![sink, lane.number(), fresh_fence().as_bytes(), begins_behind])?;
    }
    Made::written(SinkId(sink))
}

/// The number of a sink; `None`: there is none of this name.
pub(super) fn sink(connection: &Connection, name: &SinkName) -> rusqlite::Result<Option<SinkId>> {
    let mut sink = connection.prepare_cached(sql::SINK)?;
    sink.query_row([name.as_str()], |row| row.get(0).map(SinkId)).optional()
}

pub(super) fn lease(
    connection: &Connection,
    request: &LeaseRequest,
    now: Timestamp,
) -> rusqlite::Result<Made<Result<Vec<Position>, StoreError>>> {
    let LeaseRequest { sink, relay, lease } = *request;
    if let Err(error) = check(connection, sink)? {
        return Made::unchanged(Err(error));
    }
    let execute = |text, parameters: &[&dyn rusqlite::ToSql]| {
        connection.prepare_cached(text)?.execute(parameters)
    };
    execute(sql::FORGET_RELAYS, &[&sink.0, &now.unix_micros()])?;
    let until = now.plus(lease).unix_micros();
    execute(sql::RELAY_LIVES, &[&sink.0, relay.as_bytes(), &until])?;
    let relays: u32 =
        connection.prepare_cached(sql::COUNT_RELAYS)?.query_row([sink.0], |row| row.get(0))?;
    let share = u32::from(Lane::COUNT).div_ceil(relays.max(1)) as usize;
    let mut held = LaneRow::find(connection, sql::HELD_LANES, sink, relay.as_bytes())?;
    for mut row in held.drain(share.min(held.len())..) {
        row.give_to(connection, None)?;
    }
    let wanted = i64::try_from(share - held.len()).unwrap_or_default();
    for mut row in LaneRow::find(connection, sql::FREE_LANES, sink, wanted)? {
        row.give_to(connection, Some(relay))?;
        // Whatever the relay before still settles expects the step before this one.
        row.step(connection, fresh_fence(), row.cursor)?;
        held.push(row);
    }
    let positions = held.iter().map(|row| row.position(relay)).collect();
    Made::written(Ok(positions))
}

/// Whether the sink is there, and its lanes are where they can be.
fn check(connection: &Connection, sink: SinkId) -> rusqlite::Result<Result<(), StoreError>> {
    let mut exists = connection.prepare_cached(sql::SINK_EXISTS)?;
    if !exists.query_row([sink.0], |row| row.get(0))? {
        return Ok(Err(StoreError::Unusable(format!(
            "the sink with number {} was removed; nothing was changed: stop its relays, or open it again",
            sink.0
        ))));
    }
    Ok(match alarm(connection, sink)? {
        Some(alarm) => Err(StoreError::Unusable(alarm)),
        None => Ok(()),
    })
}

/// What is wrong with a sink whose lanes are further than any message: it would pass over new ones.
pub(super) fn alarm(connection: &Connection, sink: SinkId) -> rusqlite::Result<Option<String>> {
    let mut cursor = connection.prepare_cached(sql::LAST_CURSOR)?;
    let cursor: i64 = cursor.query_row([sink.0], |row| row.get(0))?;
    let last = last_number(connection)?;
    Ok((cursor > last).then(|| {
        format!(
            "sink {} has dealt with message {cursor}, though the last one that was enqueued is {last}: the file \
             was put together from several, or `sqlite_sequence` was changed, and messages would be passed over; \
             nothing was sent: set `seq` of `onceward_message` in `sqlite_sequence` to {cursor}, and look for \
             messages with smaller numbers that were not delivered",
            sink.0
        )
    }))
}

fn last_number(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached(sql::LAST_NUMBER)?.query_row([], |row| row.get(0))
}

pub(super) fn give_back(
    connection: &Connection,
    sink: SinkId,
    relay: RelayId,
) -> rusqlite::Result<Made<()>> {
    for text in [sql::GIVE_BACK_ALL, sql::FORGET_RELAY] {
        connection.prepare_cached(text)?.execute(params![sink.0, relay.as_bytes()])?;
    }
    Made::written(())
}

/// Computes the lanes of some messages that have none.
pub(super) fn give_lanes(connection: &Connection) -> rusqlite::Result<Made<()>> {
    let mut none = connection.prepare_cached(sql::NO_LANE)?;
    let rows = none.query_map([MAX_LANES_GIVEN], |row| {
        let (seq, id, aggregate): (i64, [u8; 16], Option<String>) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let aggregate = aggregate.unwrap_or_else(|| MessageId::from_bytes(id).to_string());
        Ok((seq, aggregate))
    })?;
    let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let mut give = connection.prepare_cached(sql::GIVE_LANE)?;
    for (seq, aggregate) in rows {
        give.execute(params![seq, Lane::of(aggregate.as_bytes()).number(), aggregate])?;
    }
    Made::written(())
}
