//! Messages in and out of a transaction of rusqlite.

use std::time::Duration;

use onceward_core::{
    StoreError, Timestamp,
    message::{Lane, MessageId, NewMessage},
};
use rusqlite::{Connection, ffi, params};

use super::{
    super::{SqliteStore, error::inside},
    sql,
};
use crate::{inbox::Inbox, store::sql::messages::headers_text};

/// A message as its columns.
pub(super) struct Columns<'a> {
    pub(super) id: MessageId,
    pub(super) lane: u8,
    pub(super) aggregate: String,
    pub(super) at: i64,
    pub(super) not_before: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) headers: String,
    pub(super) message: &'a NewMessage,
}

impl SqliteStore {
    /// [`enqueue_in`](onceward_core::message::Enqueue::enqueue_in) on a connection of rusqlite.
    ///
    /// ```
    /// # use onceward::{store::sqlite::SqliteStore, outbox::NewMessage};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut shop = rusqlite::Connection::open(&path)?;
    /// let transaction = store.begin_blocking(&mut shop)?;
    /// // … the order, on the same transaction …
    /// let placed = NewMessage::new("order.placed", "7")?.aggregate("order-7")?;
    /// store.enqueue_in_blocking(&transaction, &placed)?;
    /// transaction.commit()?; // this sends it
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_in_blocking(
        &self,
        connection: &Connection,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        let Columns { id, lane, aggregate, at, not_before, expires_at, headers, message } =
            self.columns(message)?;
        self.look_at(connection)?;
        let operation = message.operation.map(|digest| digest.0);
        let enqueued = connection.prepare_cached(sql::ENQUEUE).and_then(|mut statement| {
            statement.execute(params![
                lane,
                id.as_bytes(),
                message.topic.as_str(),
                aggregate,
                at,
                not_before,
                expires_at,
                operation,
                message.trace,
                headers,
                message.body
            ])
        });
        enqueued.map(|_| id).map_err(|error| self.explain_enqueue(&error, id))
    }

    /// [`first_time_in`](onceward_core::message::Receive::first_time_in) on a connection of rusqlite.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use onceward::store::sqlite::SqliteStore;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("billing.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut billing = rusqlite::Connection::open(&path)?;
    /// let week = Duration::from_secs(7 * 86_400);
    /// let transaction = store.begin_blocking(&mut billing)?;
    /// if store.first_time_in_blocking(&transaction, "billing", "0198c0de", week)? {
    ///     // … the effect, on the same transaction …
    /// }
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_time_in_blocking(
        &self,
        connection: &Connection,
        consumer: &str,
        message: &str,
        retain: Duration,
    ) -> Result<bool, StoreError> {
        check_receipt(consumer, message, retain)?;
        self.look_at(connection)?;
        let now = self.inner.inside.now();
        let until = now.plus(retain).unix_micros();
        let written = connection.prepare_cached(sql::FIRST_TIME).and_then(|mut statement| {
            statement.execute(params![consumer, message, now.unix_micros(), until])
        });
        written.map(|rows| rows > 0).map_err(|error| inside(&error, self.path()))
    }

    pub(super) fn columns<'a>(&self, message: &'a NewMessage) -> Result<Columns<'a>, StoreError> {
        message.check().map_err(|error| StoreError::Refused(error.to_string()))?;
        let id = message.id;
        let id = id.unwrap_or_else(|| MessageId::from_bytes(uuid::Uuid::now_v7().into_bytes()));
        let aggregate = match &message.aggregate {
            Some(aggregate) => aggregate.as_str().to_owned(),
            None => id.to_string(),
        };
        Ok(Columns {
            id,
            lane: Lane::of(aggregate.as_bytes()).number(),
            aggregate,
            at: self.inner.inside.now().unix_micros(),
            not_before: message.not_before.map(Timestamp::unix_micros),
            expires_at: message.expires_at.map(Timestamp::unix_micros),
            headers: headers_text(&message.headers),
            message,
        })
    }

    pub(super) fn explain_enqueue(&self, error: &rusqlite::Error, id: MessageId) -> StoreError {
        let code = error.sqlite_error().map(|error| error.extended_code);
        match code {
            Some(ffi::SQLITE_CONSTRAINT_UNIQUE) => StoreError::Repeated(format!(
                "message {id}; roll back, and give each message an id of its own or none"
            )),
            _ => inside(error, self.path()),
        }
    }
}

/// Refuses what would recognise nothing.
pub(super) fn check_receipt(
    consumer: &str,
    message: &str,
    retain: Duration,
) -> Result<(), StoreError> {
    Inbox::<SqliteStore>::check(consumer, message)?;
    match retain.is_zero() {
        false => Ok(()),
        true => Err(StoreError::Refused(
            "an inbox that retains nothing applies every repeat; nothing was recorded".to_owned(),
        )),
    }
}
