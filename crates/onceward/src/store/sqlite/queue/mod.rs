//! Messages in the same file: the outbox as producers and relays use it, and the inbox.
//!
//! SQLite has one writer at a time, so that messages get their numbers in the order of their commits: the number
//! of the last message that a lane has dealt with is its cursor, and none that commits late lies behind it. A lane is
//! one row, and a settlement changes it only if it has the step that the settlement expects.

mod enqueue;
mod inspect;
mod lanes;
mod page;
#[cfg(test)]
mod plan_tests;
mod repair;
mod rows;
mod settle;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx;
mod sweep;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use onceward_core::{
    StoreError, StoreFuture, Timestamp,
    message::{
        Changed, Cursor, InspectQueue, Lane, LeaseRequest, MessageFilter, MessageId, MessageNote,
        MessagePage, Page, Position, Queue, QueueCondition, RelayId, RepairMessage, Settled,
        Settlement, ShownMessage, SinkId, SinkName, StartFrom, Sweep,
    },
};
use rusqlite::Connection;

use super::{
    SqliteStore,
    error::stopped,
    session::{Applied, QueueChange, Work, Wrote},
};
use crate::store::sql::messages::ListPlace;

impl Queue for SqliteStore {
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId> {
        let name = name.clone();
        Box::pin(
            self.change(0, move |connection, now| lanes::open_sink(connection, &name, from, now)),
        )
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>> {
        let request = *request;
        Box::pin(async move {
            let leased =
                self.change(0, move |connection, now| lanes::lease(connection, &request, now));
            leased.await?
        })
    }

    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()> {
        Box::pin(self.change(0, move |connection, _| lanes::give_back(connection, sink, relay)))
    }

    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>> {
        Box::pin(async move {
            let places: Result<Arc<[_]>, StoreError> = positions.iter().map(place_of).collect();
            let places = places?;
            self.look(move |connection, now| page::waiting(connection, &places, now)).await
        })
    }

    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let place = place_of(position)?;
            self.look(move |connection, now| page::take(connection, place, limit, now)).await
        })
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled> {
        Box::pin(async move {
            let to = settle::end_of(settlement)?;
            let settlement = settlement.clone();
            let bytes = settlement.changes.len() * settle::CHANGE_BYTES;
            let settled = self.change(bytes, move |connection, now| {
                settle::settle(connection, &settlement, to, now)
            });
            settled.await
        })
    }

    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep> {
        Box::pin(self.sweep_messages(retain, limit))
    }
}

impl InspectQueue for SqliteStore {
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage> {
        Box::pin(async move {
            let (after, filter) = (ListPlace::after(filter)?, filter.clone());
            self.look(move |connection, now| inspect::list(connection, &filter, after, now)).await
        })
    }

    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>> {
        Box::pin(self.look(move |connection, _| inspect::show(connection, id)))
    }

    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed> {
        let repair = repair.clone();
        Box::pin(async move {
            let changed =
                self.change(0, move |connection, now| repair::repair(connection, &repair, now));
            changed.await?
        })
    }

    fn remove_sink<'a>(&'a self, sink: &'a SinkName) -> StoreFuture<'a, bool> {
        let sink = sink.clone();
        Box::pin(self.change(0, move |connection, _| repair::remove_sink(connection, &sink)))
    }

    fn condition(&self) -> StoreFuture<'_, QueueCondition> {
        Box::pin(self.look(inspect::condition))
    }
}

/// What a change has given, and whether it wrote.
struct Made<T> {
    value: T,
    wrote: Wrote,
}

impl<T> Made<T> {
    fn written(value: T) -> rusqlite::Result<Self> {
        Ok(Self { value, wrote: Wrote::Something })
    }

    fn unchanged(value: T) -> rusqlite::Result<Self> {
        Ok(Self { value, wrote: Wrote::Nothing })
    }
}

impl SqliteStore {
    /// What operators changed of a message, the newest thousand entries; also after it was swept.
    pub async fn message_trail(&self, id: MessageId) -> Result<Vec<MessageNote>, StoreError> {
        self.inner.readers.messages(move |connection, _| inspect::trail(connection, id)).await
    }

    /// Lets the writer make a change, in one commit with whatever else it writes at the time.
    async fn change<T: Send + 'static>(
        &self,
        bytes: usize,
        make: impl Fn(&Connection, Timestamp) -> rusqlite::Result<Made<T>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let given = Arc::new(Mutex::new(None));
        let place = Arc::clone(&given);
        let make = move |connection: &Connection, now| {
            let Made { value, wrote } = make(connection, now)?;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(wrote)
        };
        let work = Work::Queue(QueueChange { bytes, make: Box::new(make) });
        if let Applied::Full(detail) = self.inner.writer.write(work).await? {
            return Err(StoreError::Full(detail));
        }
        given.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(stopped)
    }

    /// Reads, after it gave their lanes to messages of producers that cannot compute them. One that comes in
    /// between is behind what is read.
    async fn look<T: Send + 'static>(
        &self,
        question: impl Fn(&Connection, Timestamp) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let (readers, again) = (&self.inner.readers, question.clone());
        let answer =
            readers.messages(move |connection, now| match page::has_no_lane(connection)? {
                true => Ok(None),
                false => question(connection, now).map(Some),
            });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
        self.change(0, |connection, _| lanes::give_lanes(connection)).await?;
        readers.messages(again).await
    }
}

fn cursor_at(seq: i64) -> Cursor {
    Cursor::new(&seq.to_string())
}

fn place_of(position: &Position) -> Result<page::Behind, StoreError> {
    Ok((position.sink, position.lane, seq_of(&position.cursor)?))
}

fn seq_of(cursor: &Cursor) -> Result<i64, StoreError> {
    cursor.as_str().parse().map_err(|_| {
        StoreError::Unusable(format!(
            "{:?} is not a place in the outbox of an SQLite file; nothing was changed: ask for the \
             positions again",
            cursor.as_str()
        ))
    })
}
