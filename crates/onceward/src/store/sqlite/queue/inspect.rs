//! What operators see of the outbox.

use std::collections::BTreeMap;

use onceward_core::{
    StoreError, Timestamp,
    message::{
        Aggregate, Lane, LaneCondition, MessageFilter, MessageId, MessageNote, MessagePage,
        MessageState, QueueCondition, RelayId, ShownMessage, SinkCondition, SinkId, Topic,
    },
};
use rusqlite::{Connection, Row, params, params_from_iter};

use super::{super::reader::flat, lanes, page::MAX_PAGE_BYTES, rows::columns, sql};
use crate::store::sql::messages::{
    ListPlace, MAX_TRAIL, kind_of, page_length, parked, sink_name, state_of,
};

/// How many messages one page of a list looks at, so that other reads do not wait long.
const MAX_LOOKED_AT: usize = 10_000;

/// Up to how many are counted.
const MAX_COUNTED: u32 = 100_000;

pub(super) fn list(
    connection: &Connection,
    filter: &MessageFilter,
    after: ListPlace,
    now: Timestamp,
) -> Result<MessagePage, StoreError> {
    let limit = page_length(filter);
    let Some(wanted) = Wanted::of(connection, filter, now)? else {
        return Ok(MessagePage::default());
    };
    let (text, parameters) = wanted.statement();
    let parameters = std::iter::once(after.seq).chain(parameters);
    let mut statement = flat(connection.prepare_cached(text))?;
    let mut rows = flat(statement.query(params_from_iter(parameters)))?;
    let (mut page, mut bytes, mut looked_at) = (MessagePage::default(), 0, 0);
    while let Some(row) = flat(rows.next())? {
        let place = ListPlace { seq: flat(row.get(0))?, sink: flat(row.get(1))? };
        if place <= after {
            continue;
        }
        looked_at += 1;
        if wanted.has(row)?
            && let Some(shown) = shown(connection, place)?
        {
            bytes += shown.message.body.len();
            page.messages.push(shown);
        }
        let is_full = page.messages.len() >= limit as usize || bytes >= MAX_PAGE_BYTES;
        if is_full || looked_at == MAX_LOOKED_AT {
            page.next = Some(place.text());
            break;
        }
    }
    Ok(page)
}

/// What a filter asks for.
struct Wanted<'a> {
    sink: Option<SinkId>,
    filter: &'a MessageFilter,
    before: Option<Timestamp>,
}

impl<'a> Wanted<'a> {
    /// `None`: there is no such sink.
    fn of(
        connection: &Connection,
        filter: &'a MessageFilter,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let sink = match &filter.sink {
            None => None,
            Some(name) => match flat(lanes::sink(connection, name))? {
                None => return Ok(None),
                sink => sink,
            },
        };
        Ok(Some(Self { sink, filter, before: filter.older.map(|age| now.minus(age)) }))
    }

    /// The shortest way to what is wanted, and its parameters behind the place.
    fn statement(&self) -> (&'static str, Vec<i64>) {
        let parked = |one, other| (sql::LIST_PARKED, vec![one, other]);
        match (self.filter.state, &self.filter.aggregate) {
            (Some(MessageState::Dead), _) => parked(parked::DEAD, parked::SKIPPED),
            (Some(MessageState::Held), _) => parked(parked::HELD, parked::NONE),
            (Some(MessageState::Scheduled), _) => parked(parked::SCHEDULED, parked::NONE),
            (Some(MessageState::Expired), _) => parked(parked::EXPIRED, parked::NONE),
            (Some(MessageState::Discarded), _) => parked(parked::DISCARDED, parked::NONE),
            (Some(MessageState::Waiting | MessageState::Delivered) | None, Some(aggregate)) => {
                let lane = Lane::of(aggregate.as_str().as_bytes());
                (sql::LIST_LANE, vec![lane.number().into()])
            }
            (Some(MessageState::Waiting | MessageState::Delivered) | None, None) => {
                (sql::LIST, Vec::new())
            }
        }
    }

    /// Takes a row of one of those statements.
    fn has(&self, row: &Row<'_>) -> Result<bool, StoreError> {
        let is = |index, wanted: Option<&str>| match wanted {
            Some(wanted) => Ok(flat(row.get_ref(index))?.as_str() == Ok(wanted)),
            None => Ok::<_, StoreError>(true),
        };
        let (sink, at): (i16, i64) = (flat(row.get(1))?, flat(row.get(4))?);
        let state = state_in(row, 5)?;
        Ok(self.sink.is_none_or(|wanted| sink == wanted.0)
            && is(2, self.filter.topic.as_ref().map(Topic::as_str))?
            && is(3, self.filter.aggregate.as_ref().map(Aggregate::as_str))?
            && self.before.is_none_or(|before| at <= before.unix_micros())
            && self.filter.state.is_none_or(|wanted| state == wanted))
    }
}

/// Takes two columns: whether the lane has passed the message, and as what it is parked.
pub(super) fn state_in(row: &Row<'_>, first: usize) -> Result<MessageState, StoreError> {
    let (is_passed, number) = (flat(row.get(first))?, flat(row.get::<_, Option<i64>>(first + 1))?);
    match (number, is_passed) {
        (None, true) => Ok(MessageState::Delivered),
        (None, false) => Ok(MessageState::Waiting),
        (Some(number), _) => state_of(number),
    }
}

/// `None`: it was swept, or the sink removed.
fn shown(connection: &Connection, place: ListPlace) -> Result<Option<ShownMessage>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::SHOWN))?;
    let mut rows = flat(statement.query(params![place.seq, place.sink]))?;
    let Some(row) = flat(rows.next())? else { return Ok(None) };
    let state = state_in(row, 11)?;
    let due = match state {
        MessageState::Waiting | MessageState::Scheduled => flat(row.get::<_, Option<i64>>(14))?,
        _ => None,
    };
    Ok(Some(ShownMessage {
        message: flat(columns(row))?.message()?,
        sink: sink_name(&flat(row.get::<_, String>(10))?)?,
        state,
        attempts: flat(row.get::<_, Option<u32>>(13))?.unwrap_or_default(),
        due: due.map(Timestamp::from_unix_micros),
        why: flat(row.get::<_, Option<String>>(15))?.unwrap_or_default(),
    }))
}

pub(super) fn show(
    connection: &Connection,
    id: MessageId,
) -> Result<Vec<ShownMessage>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::SINKS_OF))?;
    let places = statement
        .query_map([id.as_bytes()], |row| Ok(ListPlace { seq: row.get(0)?, sink: row.get(1)? }));
    let places: Vec<_> = flat(flat(places)?.collect::<rusqlite::Result<_>>())?;
    places.into_iter().filter_map(|place| shown(connection, place).transpose()).collect()
}

pub(super) fn trail(
    connection: &Connection,
    id: MessageId,
) -> Result<Vec<MessageNote>, StoreError> {
    let mut statement = flat(connection.prepare_cached(sql::TRAIL))?;
    let mut rows = flat(statement.query(params![id.as_bytes(), MAX_TRAIL]))?;
    let mut notes = Vec::new();
    while let Some(row) = flat(rows.next())? {
        let (sink, kind): (String, String) = (flat(row.get(1))?, flat(row.get(2))?);
        notes.push(MessageNote {
            at: Timestamp::from_unix_micros(flat(row.get(0))?),
            sink: sink_name(&sink)?,
            kind: kind_of(&kind)?,
            actor: flat(row.get(3))?,
            reason: flat(row.get(4))?,
        });
    }
    Ok(notes)
}

pub(super) fn condition(
    connection: &Connection,
    now: Timestamp,
) -> Result<QueueCondition, StoreError> {
    let age = |at: Option<i64>| at.map(|at| now.since(Timestamp::from_unix_micros(at)));
    let mut statement = flat(connection.prepare_cached(sql::COUNT_MESSAGES))?;
    let (messages, oldest): (u32, _) =
        flat(statement.query_row([MAX_COUNTED], |row| Ok((row.get(0)?, row.get(1)?))))?;
    let parked = Parked::count(connection)?;
    let mut condition = QueueCondition {
        messages: u64::from(messages),
        oldest: age(oldest),
        ..QueueCondition::default()
    };
    let mut statement = flat(connection.prepare_cached(sql::SINKS))?;
    let mut rows = flat(statement.query([]))?;
    while let Some(row) = flat(rows.next())? {
        let (id, name) = (SinkId(flat(row.get(0))?), flat(row.get::<_, String>(1))?);
        let mut ahead = Ahead::count(connection, id, now)?;
        let of = |state| parked.of(id, state);
        let states =
            [parked::WAITING, parked::HELD, parked::DEAD, parked::SCHEDULED, parked::SKIPPED];
        for state in states {
            ahead.count += of(state).0;
            ahead.oldest = [ahead.oldest, of(state).1].into_iter().flatten().min();
        }
        condition.alarm = condition.alarm.take().or(flat(lanes::alarm(connection, id))?);
        condition.sinks.push(SinkCondition {
            name: sink_name(&name)?,
            id,
            lag: ahead.count.into(),
            oldest_waiting: age(ahead.oldest),
            waiting: of(parked::WAITING).0.into(),
            scheduled: of(parked::SCHEDULED).0.into(),
            held: of(parked::HELD).0.into(),
            dead: (of(parked::DEAD).0 + of(parked::SKIPPED).0).into(),
            lanes: ahead.lanes,
        });
    }
    Ok(condition)
}

/// How many are parked as what, and when the oldest was enqueued.
struct Parked(BTreeMap<(SinkId, i64), (u32, Option<i64>)>);

impl Parked {
    fn count(connection: &Connection) -> Result<Self, StoreError> {
        let mut statement = flat(connection.prepare_cached(sql::COUNT_PARKED))?;
        let mut counts = BTreeMap::new();
        for state in parked::WAITING..=parked::SKIPPED {
            let mut rows = flat(statement.query(params![state, MAX_COUNTED]))?;
            while let Some(row) = flat(rows.next())? {
                let sink = SinkId(flat(row.get(0))?);
                counts.insert((sink, state), (flat(row.get(1))?, flat(row.get(2))?));
            }
        }
        Ok(Self(counts))
    }

    fn of(&self, sink: SinkId, state: i64) -> (u32, Option<i64>) {
        self.0.get(&(sink, state)).copied().unwrap_or_default()
    }
}

/// What the lanes of a sink have before them.
struct Ahead {
    count: u32,
    oldest: Option<i64>,
    lanes: Vec<LaneCondition>,
}

impl Ahead {
    fn count(connection: &Connection, sink: SinkId, now: Timestamp) -> Result<Self, StoreError> {
        let mut ahead = Self { count: 0, oldest: None, lanes: Vec::new() };
        let mut count = flat(connection.prepare_cached(sql::COUNT_AHEAD))?;
        let mut lanes = flat(connection.prepare_cached(sql::LANES))?;
        let mut rows = flat(lanes.query(params![sink.0, now.unix_micros()]))?;
        while let Some(row) = flat(rows.next())? {
            let (number, cursor): (u8, i64) = (flat(row.get(0))?, flat(row.get(1))?);
            let relay = flat(row.get::<_, Option<[u8; 16]>>(2))?.map(RelayId::from_random);
            let left = MAX_COUNTED.saturating_sub(ahead.count);
            let (more, oldest): (u32, Option<i64>) =
                flat(count.query_row(params![number, cursor, left], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                }))?;
            ahead.count += more;
            ahead.oldest = [ahead.oldest, oldest].into_iter().flatten().min();
            ahead.lanes.extend(Lane::from_number(number).map(|lane| LaneCondition { lane, relay }));
        }
        Ok(ahead)
    }
}
