//! Messages in and out of a transaction of sqlx.

use onceward_core::{StoreError, Timestamp};
use sqlx::{
    Encode, PgConnection, Postgres, Type,
    encode::IsNull,
    error::{BoxDynError, DatabaseError},
    postgres::{
        PgArgumentBuffer, PgTypeInfo,
        types::{Oid, PgInterval},
    },
};
use uuid::Uuid;

use super::{
    super::sqlx::store_error,
    inside::{EnqueueCall, FIRST_TIME, FirstTimeCall, MessageConnection, explained},
};

/// With a cast, because this driver has no text as a `jsonb`.
const ENQUEUE: &str = "
    SELECT onceward.enqueue($1, $2, $3, $4::pg_catalog.text::pg_catalog.jsonb, $5, $6, $7, $8, $9)";

impl MessageConnection for PgConnection {
    async fn enqueue(&mut self, call: &EnqueueCall<'_>) -> Result<Uuid, StoreError> {
        let EnqueueCall { message, aggregate, headers, id, operation } = call;
        // Not kept: the connection may be behind a pooler.
        let query = sqlx::query_scalar(ENQUEUE)
            .bind(message.topic.as_str())
            .bind(*aggregate)
            .bind(&message.body[..])
            .bind(headers.as_str())
            .bind(*id)
            .bind(message.not_before.map(Time))
            .bind(message.expires_at.map(Time))
            .bind(operation.as_deref())
            .bind(message.trace.as_deref())
            .persistent(false);
        query.fetch_one(self).await.map_err(|error| inside_error(&error))
    }

    async fn first_time(&mut self, call: &FirstTimeCall<'_>) -> Result<bool, StoreError> {
        let retain = PgInterval { months: 0, days: 0, microseconds: call.retain_micros };
        let query = sqlx::query_scalar(FIRST_TIME)
            .bind(call.consumer)
            .bind(call.message)
            .bind(retain)
            .persistent(false);
        query.fetch_one(self).await.map_err(|error| inside_error(&error))
    }
}

fn inside_error(error: &sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(DatabaseError::code);
    explained(code.as_deref(), error.to_string()).unwrap_or_else(|| store_error(error))
}

/// A time as the server's `timestamptz`, which this driver has only for other crates' types.
struct Time(Timestamp);

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        // Not by its name, which the driver would ask the server for.
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        /// Microseconds from 1970 to 2000, from which PostgreSQL counts.
        const BEGINNING: i64 = 946_684_800 * 1_000_000;
        let micros = self.0.unix_micros().saturating_sub(BEGINNING);
        buffer.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }
}
