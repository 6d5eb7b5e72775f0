//! What operators see of the outbox and change in it.

use std::time::{Duration, SystemTime};

use onceward_core::{
    StoreError, StoreFuture,
    message::{
        Aggregate, Changed, InspectQueue, Lane, LaneCondition, MessageFilter, MessageId,
        MessageNote, MessagePage, MessageState, QueueCondition, RelayId, RepairMessage,
        ShownMessage, SinkCondition, SinkId, SinkName, Topic,
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
    store::sql::messages::{
        ListPlace, MAX_TRAIL, kind_of, page_length, parked, sink_name, state_of,
    },
};

/// What a message is at a sink where it is not parked, as the functions say it.
const DELIVERED: i16 = 7;
const TO_COME: i16 = 8;

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
            Ok(Asked { id: Some(id), ..Asked::of(&MessageFilter::default())? }
                .page(&link)
                .await?
                .messages)
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

impl PostgresStore {
    /// What operators changed of a message, the newest thousand entries; also after it was swept.
    pub async fn message_trail(&self, id: MessageId) -> Result<Vec<MessageNote>, StoreError> {
        self.check_takes_messages()?;
        let link = self.operator_link().await?;
        let question = "SELECT at, sink, kind, actor, reason FROM (
                SELECT * FROM onceward.message_trail WHERE id OPERATOR(pg_catalog.=) $1
                ORDER BY seq DESC LIMIT $2
            ) latest ORDER BY seq";
        let id = Uuid::from_bytes(*id.as_bytes());
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&id, Type::UUID), (&MAX_TRAIL, Type::INT8)];
        link.ask(question, &parameters).await?.iter().map(note).collect()
    }
}

fn note(row: &Row) -> Result<MessageNote, StoreError> {
    let taken = || {
        let (at, sink): (SystemTime, String) = (row.try_get(0)?, row.try_get(1)?);
        Ok((at, sink, row.try_get::<_, String>(2)?, row.try_get(3)?, row.try_get(4)?))
    };
    let (at, sink, kind, actor, reason) =
        taken().map_err(|error: tokio_postgres::Error| store_error(&error))?;
    Ok(MessageNote {
        at: timestamp(at),
        sink: sink_name(&sink)?,
        kind: kind_of(&kind)?,
        actor,
        reason,
    })
}

/// A filter as the parameters of the function.
struct Asked<'a> {
    id: Option<Uuid>,
    sink: Option<&'a str>,
    states: Option<Vec<i16>>,
    topic: Option<&'a str>,
    aggregate: Option<&'a str>,
    older: Option<Interval>,
    after: ListPlace,
    limit: u32,
}

impl<'a> Asked<'a> {
    fn of(filter: &'a MessageFilter) -> Result<Self, StoreError> {
        Ok(Self {
            id: None,
            sink: filter.sink.as_ref().map(SinkName::as_str),
            states: filter.state.map(numbers_of),
            topic: filter.topic.as_ref().map(Topic::as_str),
            aggregate: filter.aggregate.as_ref().map(Aggregate::as_str),
            older: filter.older.map(|older| Interval(micros(older))),
            after: ListPlace::after(filter)?,
            limit: page_length(filter),
        })
    }

    async fn page(self, link: &Link) -> Result<MessagePage, StoreError> {
        let most = i32::try_from(self.limit).unwrap_or(i32::MAX).saturating_add(1);
        let parameters: [(&(dyn ToSql + Sync), Type); 9] = [
            (&self.id, Type::UUID),
            (&self.sink, Type::TEXT),
            (&self.states, Type::INT2_ARRAY),
            (&self.topic, Type::TEXT),
            (&self.aggregate, Type::TEXT),
            (&self.older, Type::INTERVAL),
            (&self.after.seq, Type::INT8),
            (&self.after.sink, Type::INT2),
            (&most, Type::INT4),
        ];
        let question = "SELECT * FROM onceward.list_messages($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let rows = link.ask(question, &parameters).await?;
        let Some((head, rows)) = rows.split_first() else { return Ok(MessagePage::default()) };
        page_of(head, rows, self.limit as usize)
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
        number => state_of(number.into()),
    }
}

fn page_of(head: &Row, rows: &[Row], limit: usize) -> Result<MessagePage, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&error);
    let place = |row: &Row| -> Result<String, StoreError> {
        let (seq, sink) = (row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
        Ok(ListPlace { seq, sink }.text())
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
        sink: sink_name(&name)?,
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
        name: sink_name(&name)?,
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
