//! What operators see of the outbox and change in it.

use std::time::{Duration, SystemTime};

use onceward_core::{
    StoreError, StoreFuture,
    message::{
        Aggregate, Changed, InspectQueue, Lane, LaneCondition, MessageFilter, MessageId,
        MessagePage, MessageState, QueueCondition, RelayId, RepairMessage, ShownMessage,
        SinkCondition, SinkId, SinkName, Topic,
    },
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    super::{
        PostgresStore,
        error::store_error,
        link::Link,
        rows::{Interval, micros, timestamp},
    },
    change, rows, sql,
};
use crate::{
    engine::fresh_fence,
    store::sql::messages::{damaged, parked, state_of},
};

/// What a message is at a sink where it is not parked, as the functions say it.
const DELIVERED: i16 = 7;
const TO_COME: i16 = 8;

/// How long a page is, if the asker does not say.
const PAGE: u32 = 100;

impl InspectQueue for PostgresStore {
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let link = self.operator_link().await?;
            Asked::of(filter)?.page(&link).await
        })
    }

    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let link = self.operator_link().await?;
            let id = Uuid::from_bytes(*id.as_bytes());
            Ok(Asked { id: Some(id), ..Asked::default() }.page(&link).await?.messages)
        })
    }

    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let RepairMessage { id, sink, kind, actor, reason } = repair;
            let (id, fence) =
                (Uuid::from_bytes(*id.as_bytes()), super::super::rows::uuid_of(fresh_fence()));
            let link = self.inner.rare_writes.link().await?;
            let (sink, kind) = (sink.as_str(), kind.as_str());
            let repaired =
                change(&link, &sql::REPAIR, &[&sink, &id, &kind, &fence, actor, reason]).await?;
            match rows::one::<i16>(&repaired)? {
                -1 => Ok(Changed::Done),
                -2 => Ok(Changed::Absent),
                -3 => Ok(Changed::Busy),
                state => Ok(Changed::Refused(shown_state(state)?)),
            }
        })
    }

    fn remove_sink<'a>(&'a self, sink: &'a SinkName) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let link = self.inner.rare_writes.link().await?;
            rows::one(&change(&link, &sql::REMOVE_SINK, &[&sink.as_str()]).await?)
        })
    }

    fn condition(&self) -> StoreFuture<'_, QueueCondition> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let link = self.operator_link().await?;
            let whole = link.ask("SELECT * FROM onceward.outbox_condition()", &[]).await?;
            let sinks = link.ask("SELECT * FROM onceward.sink_conditions()", &[]).await?;
            condition(&whole, &sinks)
        })
    }
}

/// A filter as the parameters of the function.
#[derive(Default)]
struct Asked<'a> {
    id: Option<Uuid>,
    sink: Option<&'a str>,
    states: Option<Vec<i16>>,
    topic: Option<&'a str>,
    aggregate: Option<&'a str>,
    older: Option<Interval>,
    after: (i64, i16),
    limit: u32,
}

impl<'a> Asked<'a> {
    fn of(filter: &'a MessageFilter) -> Result<Self, StoreError> {
        let after = match &filter.after {
            None => (0, 0),
            Some(after) => place(after)?,
        };
        Ok(Self {
            id: None,
            sink: filter.sink.as_ref().map(SinkName::as_str),
            states: filter.state.map(numbers_of),
            topic: filter.topic.as_ref().map(Topic::as_str),
            aggregate: filter.aggregate.as_ref().map(Aggregate::as_str),
            older: filter.older.map(|older| Interval(micros(older))),
            after,
            limit: filter.limit,
        })
    }

    async fn page(self, link: &Link) -> Result<MessagePage, StoreError> {
        let limit = if self.limit == 0 { PAGE } else { self.limit.min(MessageFilter::MAX_PAGE) };
        let most = i32::try_from(limit).unwrap_or(i32::MAX).saturating_add(1);
        let parameters: [(&(dyn ToSql + Sync), Type); 9] = [
            (&self.id, Type::UUID),
            (&self.sink, Type::TEXT),
            (&self.states, Type::INT2_ARRAY),
            (&self.topic, Type::TEXT),
            (&self.aggregate, Type::TEXT),
            (&self.older, Type::INTERVAL),
            (&self.after.0, Type::INT8),
            (&self.after.1, Type::INT2),
            (&most, Type::INT4),
        ];
        let question = "SELECT * FROM onceward.list_messages($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let rows = link.ask(question, &parameters).await?;
        let Some((head, rows)) = rows.split_first() else { return Ok(MessagePage::default()) };
        page_of(head, rows, limit as usize)
    }
}

/// Where a page of a list ended: a message and a sink.
fn place(after: &str) -> Result<(i64, i16), StoreError> {
    let numbers = after.split_once('.').map(|(seq, sink)| (seq.parse(), sink.parse()));
    match numbers {
        Some((Ok(seq), Ok(sink))) => Ok((seq, sink)),
        _ => Err(StoreError::Refused(format!(
            "{after:?} is not where a page of this list ended; begin again without it"
        ))),
    }
}

fn numbers_of(state: MessageState) -> Vec<i16> {
    let numbers: &[i64] = match state {
        MessageState::Waiting => &[parked::WAITING, TO_COME as i64],
        MessageState::Scheduled => &[parked::SCHEDULED],
        MessageState::Delivered => &[DELIVERED as i64],
        MessageState::Dead => &[parked::DEAD, parked::SKIPPED],
        MessageState::Discarded => &[parked::DISCARDED],
        MessageState::Expired => &[parked::EXPIRED],
        MessageState::Held => &[parked::HELD],
    };
    numbers.iter().map(|number| i16::try_from(*number).unwrap_or_default()).collect()
}

fn shown_state(number: i16) -> Result<MessageState, StoreError> {
    match number {
        DELIVERED => Ok(MessageState::Delivered),
        TO_COME => Ok(MessageState::Waiting),
        number => state_of(i64::from(number)).ok_or_else(|| {
            StoreError::Newer(format!(
                "a message is in state {number}, which this software does not know; finish the upgrade"
            ))
        }),
    }
}

fn page_of(head: &Row, rows: &[Row], limit: usize) -> Result<MessagePage, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let place = |row: &Row| -> Result<String, StoreError> {
        let (seq, sink): (i64, i16) =
            (row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
        Ok(format!("{seq}.{sink}"))
    };
    let picked: i64 = rows.first().map_or(Ok(0), |row| row.try_get(3)).map_err(failed)?;
    let listed = &rows[..rows.len().min(limit)];
    let is_cut = usize::try_from(picked).is_ok_and(|picked| picked > listed.len());
    let is_full: Option<bool> = head.try_get(0).map_err(failed)?;
    let next = match listed.last() {
        Some(last) if is_cut => Some(place(last)?),
        _ if is_full == Some(true) => Some(place(head)?),
        _ => None,
    };
    let messages = listed.iter().map(shown).collect::<Result<_, _>>()?;
    Ok(MessagePage { messages, next })
}

fn shown(row: &Row) -> Result<ShownMessage, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let name: String = row.try_get(4).map_err(failed)?;
    let due: Option<SystemTime> = row.try_get(7).map_err(failed)?;
    Ok(ShownMessage {
        message: rows::message(row, 9)?,
        sink: SinkName::new(&name).map_err(|_| damaged("a sink"))?,
        state: shown_state(row.try_get(5).map_err(failed)?)?,
        attempts: row.try_get::<_, i32>(6).map_err(failed)?.unsigned_abs(),
        due: due.map(timestamp),
        why: row.try_get(8).map_err(failed)?,
    })
}

fn condition(whole: &[Row], sinks: &[Row]) -> Result<QueueCondition, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let Some(whole) = whole.first() else {
        return Err(StoreError::Unusable("the outbox says nothing about itself".to_owned()));
    };
    Ok(QueueCondition {
        messages: count(whole, 0)?,
        oldest: age(whole, 1)?,
        sinks: sinks.iter().map(sink_condition).collect::<Result<_, _>>()?,
        alarm: whole.try_get(2).map_err(failed)?,
    })
}

fn sink_condition(row: &Row) -> Result<SinkCondition, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let name: String = row.try_get(1).map_err(failed)?;
    let relays: Vec<Option<Uuid>> = row.try_get(8).map_err(failed)?;
    let (waiting, scheduled) = (count(row, 4)?, count(row, 5)?);
    let (held, dead) = (count(row, 6)?, count(row, 7)?);
    let held_by = |relay: Uuid| RelayId::from_random(relay.into_bytes());
    Ok(SinkCondition {
        name: SinkName::new(&name).map_err(|_| damaged("a sink"))?,
        id: SinkId(row.try_get(0).map_err(failed)?),
        lag: count(row, 2)? + waiting + scheduled + held + dead,
        oldest_waiting: age(row, 3)?,
        waiting,
        scheduled,
        held,
        dead,
        lanes: Lane::all()
            .zip(relays)
            .map(|(lane, relay)| LaneCondition { lane, relay: relay.map(held_by) })
            .collect(),
    })
}

fn count(row: &Row, column: usize) -> Result<u64, StoreError> {
    let count: i64 = row.try_get(column).map_err(|error| store_error(&error))?;
    Ok(u64::try_from(count).unwrap_or_default())
}

fn age(row: &Row, column: usize) -> Result<Option<Duration>, StoreError> {
    let micros: Option<i64> = row.try_get(column).map_err(|error| store_error(&error))?;
    Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default())))
}
