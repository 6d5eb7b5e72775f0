//! What a relay finds at a position.

use std::collections::{BTreeMap, BTreeSet};

use onceward_core::{
    StoreError, Timestamp,
    message::{Due, Fresh, Lane, Page, Place, SinkId},
};
use rusqlite::{Connection, Row, params};

use super::{
    super::reader::flat,
    cursor_at,
    rows::{columns, message},
    sql,
};

/// How many bytes of bodies one page has, unless its first message is larger.
pub(super) const MAX_PAGE_BYTES: usize = 8 << 20;

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

/// The statements see the file one after the other. Whatever a settlement or an operator changes between them makes a
/// step, so that nothing that comes of this page is stored.
pub(super) fn take(
    connection: &Connection,
    (sink, lane, behind): Behind,
    limit: u32,
    now: Timestamp,
) -> Result<Page, StoreError> {
    let mut room = Room { messages: limit as usize, bytes: MAX_PAGE_BYTES, is_over: false };
    let mut due: Vec<Due> = Vec::new();
    for (place, attempts) in due_entries(connection, (sink, lane), limit, now)? {
        // One that is gone was swept, and its entry with it.
        let Some(message) = message(connection, place.0)? else { continue };
        if !room.takes(message.body.len()) {
            break;
        }
        due.push(Due { place, message, attempts });
    }
    let fresh = fresh(connection, (sink, lane, behind), &due, &mut room)?;
    let end = fresh.last().map_or(behind, |last| last.place.0);
    Ok(Page {
        read_at: now,
        fresh,
        due,
        opened: cursor_at(behind),
        end: cursor_at(end),
        is_full: room.is_over,
    })
}

/// What a page still takes.
struct Room {
    messages: usize,
    bytes: usize,
    /// Something did not fit.
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

/// Parked messages that may be tried, one more than the limit if there are, in their order.
fn due_entries(
    connection: &Connection,
    (sink, lane): (SinkId, Lane),
    limit: u32,
    now: Timestamp,
) -> Result<Vec<(Place, u32)>, StoreError> {
    let wanted = limit as usize + 1;
    let mut statement = flat(connection.prepare_cached(sql::DUE))?;
    let parameters = params![sink.0, lane.number(), now.unix_micros(), i64::from(limit) + 1];
    let mut aggregates = flat(statement.query(parameters))?;
    let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
    while entries.len() < wanted
        && let Some(row) = flat(aggregates.next())?
    {
        let aggregate: String = flat(row.get(0))?;
        // One with several scheduled messages comes several times.
        if !seen.contains(&aggregate) {
            let room = wanted - entries.len();
            entries.extend(due_of(connection, (sink, &aggregate), room, now)?);
            seen.insert(aggregate);
        }
    }
    entries.sort_unstable_by_key(|(place, _)| *place);
    Ok(entries)
}

/// What may be tried of one aggregate: the waiting ones up to the first that is not due, and, if there is no such one,
/// those that were scheduled.
fn due_of(
    connection: &Connection,
    (sink, aggregate): (SinkId, &str),
    limit: usize,
    now: Timestamp,
) -> Result<Vec<(Place, u32)>, StoreError> {
    let parameters = params![sink.0, aggregate, now.unix_micros(), limit as i64];
    let entry = |row: &Row<'_>| Ok::<_, rusqlite::Error>((Place(row.get(0)?), row.get(1)?));
    let mut entries = Vec::new();
    let mut chain = flat(connection.prepare_cached(sql::CHAIN))?;
    let mut rows = flat(chain.query(parameters))?;
    while let Some(row) = flat(rows.next())?
        && flat(row.get(2))?
    {
        entries.push(flat(entry(row))?);
    }
    let mut scheduled = flat(connection.prepare_cached(sql::SCHEDULED))?;
    for row in flat(scheduled.query_map(parameters, entry))? {
        entries.push(flat(row)?);
    }
    entries.sort_unstable_by_key(|(place, _)| *place);
    entries.truncate(limit);
    Ok(entries)
}

fn fresh(
    connection: &Connection,
    (sink, lane, behind): Behind,
    due: &[Due],
    room: &mut Room,
) -> Result<Vec<Fresh>, StoreError> {
    // Of each aggregate the page has all that blocks it up to its last one here.
    let last: BTreeMap<_, _> = due.iter().map(|due| (&due.message.aggregate, due.place)).collect();
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
        let (place, message) = (Place(flat(row.get(10))?), columns.message()?);
        let blocks = flat(row.get::<_, Option<i64>>(11))?.map(Place);
        let is_blocked = blocks > last.get(&message.aggregate).copied();
        fresh.push(Fresh { place, message, is_blocked });
    }
    Ok(fresh)
}
