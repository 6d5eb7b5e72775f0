//! Messages in and out of a transaction of sqlx.

use std::time::Duration;

use onceward_core::{
    StoreFuture,
    message::{Enqueue, MessageId, NewMessage, Receive},
};
use sqlx::SqliteConnection;

use super::{
    super::{SqliteStore, sqlx::as_sqlite},
    enqueue::{Columns, check_receipt},
    sql,
};

impl Enqueue<SqliteConnection> for SqliteStore {
    fn enqueue_in<'a>(
        &'a self,
        connection: &'a mut SqliteConnection,
        message: &'a NewMessage,
    ) -> StoreFuture<'a, MessageId> {
        Box::pin(async move {
            let Columns { id, lane, aggregate, at, not_before, expires_at, headers, message } =
                self.columns(message)?;
            self.ask(connection).await?;
            let query = sqlx::query(sql::ENQUEUE)
                .bind(lane)
                .bind(&id.as_bytes()[..])
                .bind(message.topic.as_str())
                .bind(aggregate)
                .bind(at)
                .bind(not_before)
                .bind(expires_at)
                .bind(message.operation.map(|digest| digest.0.to_vec()))
                .bind(&message.trace)
                .bind(headers)
                .bind(&message.body);
            query.execute(connection).await.map(|_| id).map_err(|error| match as_sqlite(&error) {
                Some(error) => self.explain_enqueue(&error, id),
                None => self.explain(error),
            })
        })
    }
}

impl Receive<SqliteConnection> for SqliteStore {
    fn first_time_in<'a>(
        &'a self,
        connection: &'a mut SqliteConnection,
        consumer: &'a str,
        message: &'a str,
        retain: Duration,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            check_receipt(consumer, message, retain)?;
            self.ask(connection).await?;
            let now = self.inner.inside.now();
            let query = sqlx::query(sql::FIRST_TIME)
                .bind(consumer)
                .bind(message)
                .bind(now.unix_micros())
                .bind(now.plus(retain).unix_micros());
            let written = query.execute(connection).await.map_err(|error| self.explain(error))?;
            Ok(written.rows_affected() > 0)
        })
    }
}
