//! Messages in and out of a transaction of the user's own: one function call, in one round trip.

use std::{error::Error, future::Future, time::Duration};

use onceward_core::{
    StoreError, StoreFuture, Timestamp,
    message::{Aggregate, Enqueue, MessageId, NewMessage, Receive},
};
use tokio_postgres::{
    Client, Row, Statement, Transaction,
    error::SqlState,
    types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked},
};
use uuid::Uuid;

use super::super::{
    Dialect, OwnTransaction, PostgresStore,
    error::{describe, store_error},
    rows::{Interval, micros, system_time},
};
use crate::store::sql::messages::headers_text;

/// Each name has its schema, and no parameter a cast: all of it is looked up for each call that is not prepared.
pub(super) const ENQUEUE: &str = "SELECT onceward.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// The types of its parameters.
pub(super) const ENQUEUE_TYPES: [Type; 9] = [
    Type::TEXT,
    Type::TEXT,
    Type::BYTEA,
    Type::JSONB,
    Type::UUID,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
];

pub(super) const FIRST_TIME: &str = "SELECT onceward.first_time($1, $2, $3)";

/// A message as the parameters of [`ENQUEUE`].
pub struct EnqueueCall<'a> {
    pub(super) message: &'a NewMessage,
    pub(super) aggregate: Option<&'a str>,
    pub(super) headers: String,
    pub(super) id: Uuid,
    pub(super) operation: Option<String>,
}

impl<'a> EnqueueCall<'a> {
    pub(super) fn of(message: &'a NewMessage) -> Result<Self, StoreError> {
        message.check().map_err(|error| StoreError::Refused(error.to_string()))?;
        Ok(Self {
            message,
            aggregate: message.aggregate.as_ref().map(Aggregate::as_str),
            headers: headers_text(&message.headers),
            // Made here, because a function of SQL takes longer for it.
            id: message.id.map_or_else(Uuid::now_v7, |id| Uuid::from_bytes(*id.as_bytes())),
            operation: message.operation.map(|operation| operation.to_string()),
        })
    }
}

/// A receipt as the parameters of [`FIRST_TIME`].
pub struct FirstTimeCall<'a> {
    pub(super) consumer: &'a str,
    pub(super) message: &'a str,
    pub(super) retain_micros: i64,
}

/// A connection of the user's own, by whichever driver.
pub trait MessageConnection: Send {
    /// Calls `onceward.enqueue`.
    fn enqueue(
        &mut self,
        call: &EnqueueCall<'_>,
    ) -> impl Future<Output = Result<Uuid, StoreError>> + Send;

    /// Calls `onceward.first_time`.
    fn first_time(
        &mut self,
        call: &FirstTimeCall<'_>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// On a connection without an open transaction the message is sent at once, alone.
impl<C: MessageConnection> Enqueue<C> for PostgresStore {
    fn enqueue_in<'a>(
        &'a self,
        connection: &'a mut C,
        message: &'a NewMessage,
    ) -> StoreFuture<'a, MessageId> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let id = connection.enqueue(&EnqueueCall::of(message)?).await?;
            Ok(MessageId::from_bytes(id.into_bytes()))
        })
    }
}

impl<C: MessageConnection> Receive<C> for PostgresStore {
    fn first_time_in<'a>(
        &'a self,
        connection: &'a mut C,
        consumer: &'a str,
        message: &'a str,
        retain: Duration,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            self.check_takes_messages()?;
            let retain_micros = micros(retain);
            connection.first_time(&FirstTimeCall { consumer, message, retain_micros }).await
        })
    }
}

impl PostgresStore {
    /// Refuses the dialects that have no functions.
    pub(super) fn check_takes_messages(&self) -> Result<(), StoreError> {
        match self.inner.how.dialect {
            Dialect::Postgres => Ok(()),
            Dialect::Wire => Err(StoreError::Unusable(
                "engines that only speak PostgreSQL's wire protocol have no outbox and no inbox, which need its \
                 snapshots and functions; nothing was written: keep messages in PostgreSQL or SQLite"
                    .to_owned(),
            )),
        }
    }
}

impl MessageConnection for Client {
    async fn enqueue(&mut self, call: &EnqueueCall<'_>) -> Result<Uuid, StoreError> {
        enqueue_on(self, call).await
    }

    async fn first_time(&mut self, call: &FirstTimeCall<'_>) -> Result<bool, StoreError> {
        first_time_on(self, call).await
    }
}

impl MessageConnection for Transaction<'_> {
    async fn enqueue(&mut self, call: &EnqueueCall<'_>) -> Result<Uuid, StoreError> {
        enqueue_on(self.client(), call).await
    }

    async fn first_time(&mut self, call: &FirstTimeCall<'_>) -> Result<bool, StoreError> {
        first_time_on(self.client(), call).await
    }
}

impl MessageConnection for OwnTransaction<'_> {
    async fn enqueue(&mut self, call: &EnqueueCall<'_>) -> Result<Uuid, StoreError> {
        enqueue_on(self.opened()?, call).await
    }

    async fn first_time(&mut self, call: &FirstTimeCall<'_>) -> Result<bool, StoreError> {
        first_time_on(self.opened()?, call).await
    }
}

async fn enqueue_on(client: &Client, call: &EnqueueCall<'_>) -> Result<Uuid, StoreError> {
    let answered = send_enqueue(client, None, call).await;
    answered.map(|()| call.id).map_err(|error| call_error(&error))
}

/// Calls `onceward.enqueue`. It is sent when this is polled for the first time, or not at all.
pub(super) async fn send_enqueue(
    client: &Client,
    prepared: Option<&Statement>,
    call: &EnqueueCall<'_>,
) -> Result<(), tokio_postgres::Error> {
    let EnqueueCall { message, aggregate, headers, id, operation } = call;
    let (topic, headers) = (message.topic.as_str(), JsonText(headers));
    let [not_before, expires_at] = [message.not_before, message.expires_at]
        .map(|time: Option<Timestamp>| time.map(system_time));
    let parameters: [&(dyn ToSql + Sync); 9] = [
        &topic,
        aggregate,
        &message.body,
        &headers,
        id,
        &not_before,
        &expires_at,
        operation,
        &message.trace,
    ];
    match prepared {
        Some(statement) => client.query_one(statement, &parameters).await.map(drop),
        None => {
            let typed: Vec<_> = parameters.into_iter().zip(ENQUEUE_TYPES).collect();
            client.query_typed_one(ENQUEUE, &typed).await.map(drop)
        }
    }
}

/// JSON as text, for a parameter of type `jsonb`.
#[derive(Debug)]
struct JsonText<'a>(&'a str);

impl ToSql for JsonText<'_> {
    fn to_sql(
        &self,
        _: &Type,
        buffer: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The version of the format.
        buffer.extend_from_slice(&[1]);
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}

async fn first_time_on(client: &Client, call: &FirstTimeCall<'_>) -> Result<bool, StoreError> {
    let FirstTimeCall { consumer, message, retain_micros } = call;
    let retain = Interval(*retain_micros);
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(consumer, Type::TEXT), (message, Type::TEXT), (&retain, Type::INTERVAL)];
    call_on(client, FIRST_TIME, &parameters).await
}

/// Unprepared: the connection may be behind a pooler.
async fn call_on<T: for<'r> FromSql<'r>>(
    client: &Client,
    text: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<T, StoreError> {
    let answered = client.query_typed_one(text, parameters).await;
    answered.and_then(|row: Row| row.try_get(0)).map_err(|error| call_error(&error))
}

/// What an error of a call means.
pub(super) fn call_error(error: &tokio_postgres::Error) -> StoreError {
    let code = error.code().map(SqlState::code);
    explained(code, describe(error)).unwrap_or_else(|| store_error(error))
}

/// What an error of the functions means, if it is one of theirs.
pub(super) fn explained(code: Option<&str>, text: String) -> Option<StoreError> {
    Some(match code? {
        "OW002" => StoreError::Refused(text),
        "23505" => StoreError::Repeated(text),
        "42501" => StoreError::Unusable(format!(
            "{text}; let the owner of the schema say: GRANT onceward_app TO this user"
        )),
        _ => return None,
    })
}
