//! Transactions of sqlx.

use std::time::Duration;

use onceward_core::{BoxFuture, Change, Digest, Fence, SpoolId, StoreError, Swap, Transactional};
use sqlx::{
    Database, PgConnection, Postgres, Row as _, Transaction,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use sqlx_core::transaction::TransactionManager as _;

use super::{
    Dialect, OpenError, PostgresStore,
    inside::{ChangeForm, Met, SWAP, Value},
    number,
    rows::{Interval, uuid_of},
    sql,
};
use crate::{
    crashpoint,
    engine::{CommitOutcome, commit::is_refusal},
};

/// sqlx waits for each answer before it sends the next statement, so that the end of a claim and its
/// commit are two round trips here.
impl Transactional<PgConnection> for PostgresStore {
    fn swap_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_with_sqlx(connection, change, ChangeForm::Swap))
    }

    fn claim_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        change: &'a Change,
        patience: Duration,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_with_sqlx(connection, change, ChangeForm::Claim(patience)))
    }

    fn confirm<'a>(
        &'a self,
        id: &'a Digest,
        fence: Fence,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.confirmed(id, fence))
    }

    fn put_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let chunk = self.inner.codec.seal_chunk(id, index, chunk);
            let put = sqlx::query(sql::PUT_CHUNK.text)
                .bind(&id.operation.0[..])
                .bind(uuid_of(id.fence))
                .bind(number(index)?)
                .bind(&*chunk)
                .persistent(false);
            put.execute(connection).await.map(drop).map_err(|error| store_error(&error))
        })
    }
}

impl PostgresStore {
    async fn swap_with_sqlx(
        &self,
        connection: &mut PgConnection,
        change: &Change,
        how: ChangeForm,
    ) -> Result<Swap, StoreError> {
        if self.inner.how.dialect == Dialect::Wire {
            let text = "transactions of sqlx need the functions that only PostgreSQL has; use \
                        tokio-postgres with this dialect";
            return Err(StoreError::Unusable(text.to_owned()));
        }
        match self.met_with_sqlx(connection, change, how).await {
            Ok(met) => self.judge(&change.id, met).await,
            Err(error) => explained(&error),
        }
    }

    async fn met_with_sqlx(
        &self,
        connection: &mut PgConnection,
        change: &Change,
        how: ChangeForm,
    ) -> Result<Met, sqlx::Error> {
        let work = self.work(change);
        let values = self.values(&work, how);
        // Not kept: the connection may be behind a pooler.
        let query = values.iter().fold(sqlx::query(SWAP), bind).persistent(false);
        met_in(&query.fetch_one(connection).await?)
    }

    /// Makes a change and commits. Gives the transaction back if the change is not simply made.
    pub(crate) async fn swap_then_commit<'t>(
        &self,
        mut transaction: Transaction<'t, Postgres>,
        change: &Change,
    ) -> Result<CommitOutcome, Transaction<'t, Postgres>> {
        if self.inner.how.dialect == Dialect::Wire {
            return Err(transaction);
        }
        let met = crashpoint!(
            "own.swap",
            self.met_with_sqlx(&mut transaction, change, ChangeForm::Swap).await,
            sqlx::Error::WorkerCrashed
        );
        let met = match met {
            Ok(met) if met.was_made => met,
            Ok(_) => return Err(transaction),
            // No commit was sent, so that dropping the transaction rolls it back.
            Err(error) => {
                return Ok(
                    explained(&error).map_or_else(CommitOutcome::Failed, |_| CommitOutcome::Held)
                );
            }
        };
        // Not before: a savepoint that was dropped is rolled back by the next statement.
        if depth(&transaction) > 1 {
            return Ok(CommitOutcome::Savepoint);
        }
        let committed =
            crashpoint!("own.commit", transaction.commit().await, sqlx::Error::WorkerCrashed);
        Ok(match committed {
            Ok(()) => {
                CommitOutcome::Committed { at: met.at(), must_be_confirmed: met.has_standbys }
            }
            Err(error) if is_refused(&error) => CommitOutcome::Failed(store_error(&error)),
            Err(error) => {
                CommitOutcome::Doubtful { error: sqlx_commit_error(&error), was_made: true }
            }
        })
    }
}

fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    value: &'q Value<'q>,
) -> Query<'q, Postgres, PgArguments> {
    match value {
        Value::Bytes(value) => query.bind(*value),
        Value::Uuid(value) => query.bind(*value),
        Value::Short(value) => query.bind(*value),
        Value::Int(value) => query.bind(*value),
        Value::Long(value) => query.bind(*value),
        Value::Flag(value) => query.bind(*value),
        Value::Text(value) => query.bind(*value),
        // Only the statements for other engines take lengths, and this driver does not send them.
        Value::Length(value) => query.bind(value.map(|Interval(micros)| micros)),
    }
}

fn met_in(row: &PgRow) -> Result<Met, sqlx::Error> {
    Ok(Met {
        was_made: row.try_get(0)?,
        fence: row.try_get(1)?,
        started_at: row.try_get(2)?,
        updated_at: row.try_get(3)?,
        expires_at: row.try_get(4)?,
        body: row.try_get(5)?,
        read_at: row.try_get(6)?,
        has_standbys: row.try_get(7)?,
    })
}

/// What an error inside the transaction means.
fn explained(error: &sqlx::Error) -> Result<Swap, StoreError> {
    match code(error).as_deref() {
        Some("55P03") => Ok(Swap::Held),
        _ => Err(store_error(error)),
    }
}

fn store_error(error: &sqlx::Error) -> StoreError {
    let text = error.to_string();
    match code(error).as_deref() {
        Some("42501") => StoreError::Unusable(OpenError::NotAllowed(text).to_string()),
        Some("42P01" | "3F000" | "42883") => StoreError::Unusable(format!(
            "{text}; the transaction is in another database than the records, or their tables are older \
             than this software: run `onceward migrate --store …`"
        )),
        _ => StoreError::Unavailable(text),
    }
}

/// Whether the server itself has said that it did not do it.
fn is_refused(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| is_refusal(&code))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// What a failed commit means: it is in doubt until the record was read.
pub(crate) fn sqlx_commit_error(error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// How deep sqlx believes to be: 1 in a transaction, more in savepoints of it.
pub(crate) fn depth(connection: &PgConnection) -> usize {
    <Postgres as Database>::TransactionManager::get_transaction_depth(connection)
}
