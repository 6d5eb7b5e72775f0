//! One step of a lane.

use onceward_core::{
    StoreError,
    message::{Advance, ParkChange, Position, Settled, Settlement},
};
use uuid::Uuid;

use super::{
    super::{
        PostgresStore,
        error::store_error,
        link::Parameters,
        rows::{Interval, micros, uuid_of},
    },
    change,
    cursor::LanePlace,
    lane_number, rows, sql,
};
use crate::store::sql::messages::ParkedColumns;

/// Where a lane is to go.
struct Move {
    /// The target that was read with; `None`: the lane stays.
    opened: Option<String>,
    /// Up to there; `None`: past the target.
    done: Option<i64>,
}

impl Move {
    const STAY: Self = Self { opened: None, done: None };

    fn of(from: &LanePlace, advance: &Advance) -> Result<Self, StoreError> {
        let (cursor, done) = match advance {
            Advance::Stay => return Ok(Self::STAY),
            Advance::Through { opened, place } => (opened, Some(place.0)),
            Advance::Past(end) => (end, None),
        };
        let to = LanePlace::read(cursor)?;
        Ok(match (to.target, done) {
            (Some(target), done) => {
                Self { opened: Some(target.snapshot), done: done.or(Some(to.done)) }
            }
            (None, None) if to.base != from.base => Self { opened: Some(to.base), done: None },
            // Only parked messages were read.
            (None, _) => Self::STAY,
        })
    }
}

/// What becomes of messages, a column each.
#[derive(Default)]
struct Changes {
    seqs: Vec<i64>,
    ids: Vec<Uuid>,
    were_parked: Vec<bool>,
    states: Vec<Option<i16>>,
    attempts: Vec<Option<i32>>,
    waits: Vec<Option<Interval>>,
    whys: Vec<Option<String>>,
}

impl Changes {
    fn of(changes: &[ParkChange]) -> Self {
        let mut columns = Self::default();
        for change in changes {
            let parked = ParkedColumns::of(&change.to);
            let parked = parked.as_ref();
            columns.seqs.push(change.place.0);
            columns.ids.push(Uuid::from_bytes(*change.id.as_bytes()));
            columns.were_parked.push(change.was_parked);
            columns.states.push(parked.and_then(|parked| i16::try_from(parked.state).ok()));
            let attempts = parked.map(|parked| parked.attempts);
            columns.attempts.push(attempts.map(|one| i32::try_from(one).unwrap_or(i32::MAX)));
            let wait = parked.and_then(|parked| parked.wait);
            columns.waits.push(wait.map(|wait| Interval(micros(wait))));
            // A zero cannot be stored as text.
            columns.whys.push(parked.map(|parked| parked.why.replace('\0', " ")));
        }
        columns
    }
}

impl PostgresStore {
    pub(super) async fn settle_lane(&self, settlement: &Settlement) -> Result<Settled, StoreError> {
        self.check_takes_messages()?;
        let Settlement { from, fence, advance, changes } = settlement;
        let place = LanePlace::read(&from.cursor)?;
        let Move { opened, done } = Move::of(&place, advance)?;
        let Changes { seqs, ids, were_parked, states, attempts, waits, whys } =
            Changes::of(changes);
        let step = i64::try_from(from.step).unwrap_or(i64::MAX);
        let link = self.inner.relays.link_of(from.lane).await?;
        let (sink, lane, relay) = (from.sink.0, lane_number(from.lane), super::uuid_of(from.relay));
        let (expected, next) = (uuid_of(from.fence), uuid_of(*fence));
        let parameters: Parameters<'_> = &[
            &sink,
            &lane,
            &relay,
            &step,
            &expected,
            &next,
            &opened,
            &done,
            &seqs,
            &ids,
            &were_parked,
            &states,
            &attempts,
            &waits,
            &whys,
        ];
        let settled = change(&link, &sql::SETTLE, parameters).await?;
        let Some(row) = settled.first() else { return Ok(Settled::Fenced(None)) };
        let was_made = row.try_get(0).map_err(|error| store_error(&error))?;
        let (position, found) = rows::position(row, 1, from.sink, from.lane, from.relay)?;
        Ok(match was_made {
            true => Settled::Moved(position),
            false => {
                let is_there = place.is_at(&found, opened.as_deref());
                let position = Position { cursor: from.cursor.clone(), ..position };
                Settled::Fenced(is_there.then_some(position))
            }
        })
    }
}
