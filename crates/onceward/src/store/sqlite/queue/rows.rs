//! Rows about messages, as rusqlite gives them.

use onceward_core::{
    Fence, StoreError, Timestamp,
    message::{Lane, Message, Position, RelayId, SinkId},
};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::{super::reader::flat, cursor_at, sql};
use crate::store::sql::messages::MessageColumns;

/// Takes the columns of [`sql::MESSAGE`], which come first in a row.
pub(super) fn columns(row: &Row<'_>) -> rusqlite::Result<MessageColumns> {
    let time = |index| row.get::<_, Option<i64>>(index);
    Ok(MessageColumns {
        id: row.get(0)?,
        topic: row.get(1)?,
        aggregate: row.get(2)?,
        at: Timestamp::from_unix_micros(row.get(3)?),
        not_before: time(4)?.map(Timestamp::from_unix_micros),
        expires_at: time(5)?.map(Timestamp::from_unix_micros),
        operation: row.get(6)?,
        trace: row.get(7)?,
        headers: row.get(8)?,
        body: row.get(9)?,
    })
}

/// `None`: it was swept meanwhile.
pub(super) fn message(connection: &Connection, seq: i64) -> Result<Option<Message>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::MESSAGE))?;
    let columns = flat(statement.query_row([seq], columns).optional())?;
    columns.map(MessageColumns::message).transpose()
}

/// Of how many steps a lane knows the fence, so that a settlement whose reply was lost is recognised behind
/// steps of operators.
const KNOWN_STEPS: usize = 8;

/// A lane of a sink as it is stored.
pub(super) struct LaneRow {
    sink: SinkId,
    lane: Lane,
    step: i64,
    /// Those of the last steps, the newest first.
    fences: Vec<u8>,
    pub(super) cursor: i64,
    pub(super) relay: Option<RelayId>,
}

impl LaneRow {
    /// `None`: the sink was removed.
    pub(super) fn read(
        connection: &Connection,
        sink: SinkId,
        lane: Lane,
    ) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(sql::LANE)?;
        let row = statement.query_row(params![sink.0, lane.number()], |row| Self::of(row, sink));
        row.optional()
    }

    /// The lanes that a statement finds for a sink.
    pub(super) fn find(
        connection: &Connection,
        text: &str,
        sink: SinkId,
        parameter: impl ToSql,
    ) -> rusqlite::Result<Vec<Self>> {
        let mut statement = connection.prepare_cached(text)?;
        let rows = statement.query_map(params![sink.0, parameter], |row| Self::of(row, sink))?;
        rows.collect()
    }

    fn of(row: &Row<'_>, sink: SinkId) -> rusqlite::Result<Self> {
        let number: u8 = row.get(0)?;
        let no_lane = || rusqlite::Error::IntegralValueOutOfRange(0, number.into());
        Ok(Self {
            sink,
            lane: Lane::from_number(number).ok_or_else(no_lane)?,
            step: row.get(1)?,
            fences: row.get(2)?,
            cursor: row.get(3)?,
            relay: row.get::<_, Option<[u8; 16]>>(4)?.map(RelayId::from_random),
        })
    }

    /// The fence of a step; `None`: it has not been made, or is long past.
    pub(super) fn fence_of(&self, step: u64) -> Option<Fence> {
        let newest = u64::try_from(self.step).ok()?;
        let past = usize::try_from(newest.checked_sub(step)?).ok()?;
        self.fences.as_chunks().0.get(past).copied().map(Fence::from_random)
    }

    /// Appends a step, which leaves the lane here.
    pub(super) fn step(
        &mut self,
        connection: &Connection,
        fence: Fence,
        cursor: i64,
    ) -> rusqlite::Result<()> {
        (self.step, self.cursor) = (self.step + 1, cursor);
        self.fences.splice(0..0, *fence.as_bytes());
        self.fences.truncate(KNOWN_STEPS * fence.as_bytes().len());
        let mut step = connection.prepare_cached(sql::STEP)?;
        step.execute(params![self.sink.0, self.lane.number(), self.fences, cursor]).map(drop)
    }

    /// Gives the lane to a relay, or to none.
    pub(super) fn give_to(
        &mut self,
        connection: &Connection,
        relay: Option<RelayId>,
    ) -> rusqlite::Result<()> {
        self.relay = relay;
        let bytes = relay.as_ref().map(RelayId::as_bytes);
        let mut give = connection.prepare_cached(sql::GIVE_LANE_TO)?;
        give.execute(params![self.sink.0, self.lane.number(), bytes]).map(drop)
    }

    pub(super) fn position(&self, relay: RelayId) -> Position {
        let step = u64::try_from(self.step).unwrap_or_default();
        // A lane has one fence at least, since its sink was opened.
        let fence = self.fence_of(step).unwrap_or(Fence::from_random([0; 16]));
        let (sink, lane, cursor) = (self.sink, self.lane, cursor_at(self.cursor));
        Position { sink, lane, relay, step, fence, cursor }
    }
}
