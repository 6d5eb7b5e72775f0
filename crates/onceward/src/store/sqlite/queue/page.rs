//! What a relay finds at a position.

use onceward_core::{
    StoreError, Timestamp,
    message::{Due, Fresh, Lane, Page, Place, SinkId},
};
use rusqlite::{Connection, params};

use super::{
    super::reader::flat,
    cursor_at,
    rows::{columns, message},
    sql,
};
use crate::store::sql::messages::parked;

/// How many bytes of bodies one page has, unless its first message is larger.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// A sink, a lane, and the number up to which everything there was dealt with.
pub(super) type Behind = (SinkId, Lane, i64);

pub(super) fn has_no_lane(connection: &Connection) -> Result<bool, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::HAS_NO_LANE))?;
    flat(statement.query_row([], |row| row.get(0)))
}

pub(super) fn waiting(
    connection: &Connection,
    places: &[Behind],
    now: Timestamp,
) -> Result<Vec<Lane>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::WAITING))?;
    let mut lanes = Vec::new();
    for (sink, lane, behind) in places {
        let parameters = params![sink.0, lane.number(), behind, now.unix_micros()];
        if flat(statement.query_row(parameters, |row| row.get(0)))? {
            lanes.push(*lane);
        }
    }
    Ok(lanes)
}

/// The statements see the file one after the other. Whatever a settlement or an operator changes between them has made a step,
/// so that nothing that comes of this page is stored.
pub(super) fn take(
    connection: &Connection,
    (sink, lane, behind): Behind,
    limit: u32,
    now: Timestamp,
) -> Result<Page, StoreError> {
    let mut room = Room { messages: limit as usize, bytes: MAX_PAGE_BYTES, is_over: false };
    let mut due = Vec::new();
    for entry in due_entries(connection, sink, lane, limit, now)? {
        let Some(message) = message(connection, entry.place.0)? else { continue };
        if !room.takes(message.body.len()) {
            break;
        }
        due.push(Due { place: entry.place, message, attempts: entry.attempts });
    }
    let is_full = room.is_over || room.messages == 0;
    room.messages = limit as usize;
    let fresh = fresh(connection, (sink, lane, behind), &mut room)?;
    let end = fresh.last().map_or(behind, |last| last.place.0);
    Ok(Page {
        read_at: now,
        fresh,
        due,
        opened: cursor_at(behind),
        end: cursor_at(end),
        is_full: is_full || room.is_over,
    })
}

/// What a page still takes.
struct Room {
    messages: usize,
    bytes: usize,
    is_over: bool,
}

impl Room {
    fn takes(&mut self, bytes: usize) -> bool {
        let is_first = self.bytes == MAX_PAGE_BYTES;
        if self.messages == 0 || (bytes > self.bytes && !is_first) {
            self.is_over = true;
            return false;
        }
        self.messages -= 1;
        self.bytes = self.bytes.saturating_sub(bytes.max(1));
        true
    }
}

struct DueEntry {
    place: Place,
    attempts: u32,
}

/// Parked messages that may be tried: of each aggregate the first one, if it is due, and what waits behind it and is
/// due as well.
fn due_entries(
    connection: &Connection,
    sink: SinkId,
    lane: Lane,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<DueEntry>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::DUE))?;
    let parameters = params![sink.0, lane.number(), now.unix_micros(), limit];
    let heads = flat(statement.query_map(parameters, |row| {
        let entry = DueEntry { place: Place(row.get(0)?), attempts: row.get(2)? };
        Ok((entry, row.get::<_, i64>(1)?, row.get::<_, String>(3)?))
    }))?;
    let heads: Vec<_> = flat(heads.collect::<rusqlite::Result<_>>())?;
    let mut room = (limit as usize).saturating_sub(heads.len());
    let mut entries = Vec::with_capacity(heads.len());
    for (head, state, aggregate) in heads {
        if state == parked::WAITING && room > 0 {
            let behind = due_behind(connection, (sink, &aggregate, head.place), room, now)?;
            room -= behind.len();
            entries.extend(behind);
        }
        entries.push(head);
    }
    entries.sort_unstable_by_key(|entry| entry.place);
    Ok(entries)
}

fn due_behind(
    connection: &Connection,
    (sink, aggregate, head): (SinkId, &str, Place),
    limit: usize,
    now: Timestamp,
) -> Result<Vec<DueEntry>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::BEHIND))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters = params![sink.0, aggregate, head.0, now.unix_micros(), limit];
    let mut rows = flat(statement.query(parameters))?;
    let mut entries = Vec::new();
    while let Some(row) = flat(rows.next())? {
        if !flat(row.get::<_, bool>(2))? {
            break;
        }
        let (place, attempts) = (Place(flat(row.get(0))?), flat(row.get(1))?);
        entries.push(DueEntry { place, attempts });
    }
    Ok(entries)
}

fn fresh(
    connection: &Connection,
    (sink, lane, behind): Behind,
    room: &mut Room,
) -> Result<Vec<Fresh>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::FRESH))?;
    // One more tells whether there is more.
    let limit = i64::try_from(room.messages).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = flat(statement.query(params![sink.0, lane.number(), behind, limit]))?;
    let mut fresh = Vec::new();
    while let Some(row) = flat(rows.next())? {
        let columns = flat(columns(row))?;
        if !room.takes(columns.body.len()) {
            break;
        }
        let (place, is_blocked) = (Place(flat(row.get(10))?), flat(row.get(11))?);
        fresh.push(Fresh { place, message: columns.message()?, is_blocked });
    }
    Ok(fresh)
}
