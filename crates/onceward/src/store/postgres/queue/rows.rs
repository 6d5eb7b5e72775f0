//! Rows of the outbox as the driver gives them.

use std::time::SystemTime;

use onceward_core::{
    StoreError, Timestamp,
    message::{Lane, Message, Position, RelayId, SinkId},
};
use tokio_postgres::{Row, types::FromSql};
use uuid::Uuid;

use super::{
    super::{
        error::store_error,
        rows::{fence_of, timestamp},
    },
    cursor::{LanePlace, Target},
};
use crate::store::sql::messages::{MessageColumns, damaged};

type Taken<T> = Result<T, tokio_postgres::Error>;

/// The only value of the only row.
pub(super) fn one<T: for<'r> FromSql<'r>>(rows: &[Row]) -> Result<T, StoreError> {
    let Some(row) = rows.first() else {
        return Err(StoreError::Unusable("a function of the outbox gave no answer".to_owned()));
    };
    row.try_get(0).map_err(|error| store_error(&error))
}

pub(super) fn lane(row: &Row, column: usize) -> Result<Lane, StoreError> {
    let number: i16 = row.try_get(column).map_err(|error| store_error(&error))?;
    let lane = u8::try_from(number).ok().and_then(Lane::from_number);
    lane.ok_or_else(|| StoreError::Unusable(format!("there is no lane {number}")))
}

/// A lane with its step, and up to where it had nothing to take.
pub(super) fn held_position(
    row: &Row,
    sink: SinkId,
    relay: RelayId,
) -> Result<(Position, Option<(String, i64)>), StoreError> {
    let (position, _) = position(row, 1, sink, lane(row, 0)?, relay)?;
    let taken = || -> Taken<_> { Ok((row.try_get(8)?, row.try_get(9)?)) };
    let (base, floor): (Option<String>, Option<i64>) =
        taken().map_err(|error| store_error(&error))?;
    Ok((position, base.zip(floor)))
}

/// A step and its place, from this column on. A target of which nothing was settled is left out of the cursor: the
/// lane is where it was.
pub(super) fn position(
    row: &Row,
    first: usize,
    sink: SinkId,
    lane: Lane,
    relay: RelayId,
) -> Result<(Position, LanePlace), StoreError> {
    let taken = || -> Taken<(i64, Uuid, LanePlace)> {
        let target: Option<String> = row.try_get(first + 4)?;
        let floor = row.try_get(first + 5)?;
        let place = LanePlace {
            base: row.try_get(first + 2)?,
            floor: row.try_get(first + 3)?,
            target: target.map(|snapshot| Target { snapshot, floor }),
            done: row.try_get(first + 6)?,
        };
        Ok((row.try_get(first)?, row.try_get(first + 1)?, place))
    };
    let (step, fence, place) = taken().map_err(|error| store_error(&error))?;
    let cursor = match place.done {
        0 => LanePlace { target: None, ..place.clone() }.cursor(),
        _ => place.cursor(),
    };
    let (step, fence) = (step.unsigned_abs(), fence_of(fence));
    Ok((Position { sink, lane, relay, step, fence, cursor }, place))
}

/// A message in ten columns, from this one on.
pub(super) fn message(row: &Row, first: usize) -> Result<Message, StoreError> {
    let time = |column: usize| -> Taken<Option<Timestamp>> {
        Ok(row.try_get::<_, Option<SystemTime>>(column)?.map(timestamp))
    };
    let taken = || -> Taken<Option<MessageColumns>> {
        let Some(at) = time(first + 5)? else { return Ok(None) };
        Ok(Some(MessageColumns {
            id: row.try_get::<_, Uuid>(first)?.into_bytes().to_vec(),
            topic: row.try_get(first + 1)?,
            aggregate: row.try_get(first + 2)?,
            body: row.try_get(first + 3)?,
            headers: row.try_get(first + 4)?,
            at,
            not_before: time(first + 6)?,
            expires_at: time(first + 7)?,
            operation: row.try_get(first + 8)?,
            trace: row.try_get(first + 9)?,
        }))
    };
    taken().map_err(|error| store_error(&error))?.ok_or_else(|| damaged("no time"))?.message()
}
