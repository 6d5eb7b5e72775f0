//! Transactions of sqlx.

use onceward_core::{Change, SpoolId, StoreError, Swap};
use sqlx::{
    Database, PgConnection, Postgres, Row as _, Transaction, postgres::PgArguments, query::Query,
};
use sqlx_core::transaction::TransactionManager as _;

use super::{
    Dialect, OpenError, PostgresStore,
    inside::{ChangeForm, OwnConnection, SWAP, SwapAnswer, Value, answer_in},
    rows::{Interval, uuid_of},
    sql,
};
use crate::{
    crashpoint,
    engine::{CommitOutcome, commit::is_refusal},
};

/// sqlx waits for each answer before it sends the next statement, so that the end of a claim and its
/// commit are two round trips here.
impl OwnConnection for PgConnection {
    async fn swap(
        &mut self,
        store: &PostgresStore,
        change: &Change,
        form: ChangeForm,
    ) -> Result<Swap, StoreError> {
        if store.inner.how.dialect == Dialect::Wire {
            let text = "transactions of sqlx need the functions that only PostgreSQL has; use \
                        tokio-postgres with this dialect";
            return Err(StoreError::Unusable(text.to_owned()));
        }
        match store.call_swap_with_sqlx(self, change, form).await {
            Ok(answer) => store.judge(&change.id, answer).await,
            Err(error) => explained(&error),
        }
    }

    async fn put(&mut self, id: &SpoolId, index: i32, chunk: &[u8]) -> Result<(), StoreError> {
        let put = sqlx::query(sql::PUT_CHUNK.text)
            .bind(&id.operation.0[..])
            .bind(uuid_of(id.fence))
            .bind(index)
            .bind(chunk)
            .persistent(false);
        put.execute(self).await.map(drop).map_err(|error| store_error(&error))
    }
}

impl PostgresStore {
    async fn call_swap_with_sqlx(
        &self,
        connection: &mut PgConnection,
        change: &Change,
        form: ChangeForm,
    ) -> Result<SwapAnswer, sqlx::Error> {
        let work = self.work(change);
        let values = self.values(&work, form);
        // Not kept: the connection may be behind a pooler.
        let query = values.iter().fold(sqlx::query(SWAP), bind).persistent(false);
        let row = query.fetch_one(connection).await?;
        Ok(answer_in!(row))
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
        let answer = crashpoint!(
            "own.swap",
            self.call_swap_with_sqlx(&mut transaction, change, ChangeForm::Swap).await,
            sqlx::Error::WorkerCrashed
        );
        let answer = match answer {
            Ok(answer) if answer.was_made => answer,
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
                CommitOutcome::Committed { at: answer.at(), must_be_confirmed: answer.has_standbys }
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

/// What an error inside the transaction means.
fn explained(error: &sqlx::Error) -> Result<Swap, StoreError> {
    match code(error).as_deref() {
        Some("55P03") => Ok(Swap::Held),
        _ => Err(store_error(error)),
    }
}

pub(super) fn store_error(error: &sqlx::Error) -> StoreError {
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
