//! Transactions of sqlx.

use std::ops::{Deref, DerefMut};

use onceward_core::{Change, Digest, Fence, SpoolId, StoreError, StoreFuture, Swap, Transactional};
use sqlx::{
    Connection as _, Database, Row as _, SqlStr, Sqlite, SqliteConnection, SqlitePool, Transaction,
    sqlite::SqliteRow,
};

use sqlx_core::transaction::TransactionManager as _;

use super::{
    SqliteStore,
    error::{at_commit, inside},
    inside::{Promises, not_open, path_of},
    rows::{Columns, Expected, Proposal, Row},
    sql,
    turns::Turn,
};

/// A transaction of sqlx that has waited in line for SQLite's one write lock: see
/// [`SqliteStore::begin`]. It derefs to the connection.
///
/// Dropping it rolls back.
///
/// ```
/// use onceward::store::sqlite::OwnTransaction;
///
/// async fn rename(mut shop: OwnTransaction, name: &str) -> Result<(), sqlx::Error> {
///     sqlx::query("UPDATE shop SET name = ?1").bind(name).execute(&mut *shop).await?;
///     shop.commit().await
/// }
/// ```
#[derive(Debug)]
pub struct OwnTransaction {
    transaction: Transaction<'static, Sqlite>,
    turn: Turn,
}

impl OwnTransaction {
    /// Commits, for one that does not end with a claim.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        let Self { transaction, turn } = self;
        let committed = transaction.commit().await;
        drop(turn);
        committed
    }

    /// Rolls back before the next one has its turn; dropping lets that happen a little later.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        let Self { transaction, turn } = self;
        let rolled_back = transaction.rollback().await;
        drop(turn);
        rolled_back
    }
}

impl Deref for OwnTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for OwnTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

impl SqliteStore {
    /// [`begin_blocking`](Self::begin_blocking) for a pool of sqlx. Needs tokio.
    ///
    /// A task that holds a transaction must not wait for a second connection of the same pool.
    ///
    /// ```
    /// # use onceward::store::sqlite::SqliteStore;
    /// use sqlx::SqlitePool;
    ///
    /// async fn rename(store: &SqliteStore, shop: &SqlitePool, name: &str) -> Result<(), sqlx::Error> {
    ///     let mut transaction = store.begin(shop).await?;
    ///     sqlx::query("UPDATE shop SET name = ?1").bind(name).execute(&mut *transaction).await?;
    ///     transaction.commit().await
    /// }
    /// ```
    pub async fn begin(&self, pool: &SqlitePool) -> Result<OwnTransaction, sqlx::Error> {
        // A connection first: a task that has its turn must not have to wait for one.
        let mut connection = pool.acquire().await?;
        // SQLite has rolled back by itself, sqlx did not notice and would never begin here again.
        while connection.is_in_transaction() {
            connection.close().await?;
            connection = pool.acquire().await?;
        }
        let turn = self.inner.inside.turn().await;
        let begun = Transaction::begin(connection, Some(SqlStr::from_static(sql::BEGIN))).await?;
        Ok(OwnTransaction { transaction: begun, turn })
    }
}

/// One that reads first and writes later fails when another connection has written in between: begin it
/// with [`SqliteStore::begin`], or with `pool.begin_with("BEGIN IMMEDIATE")`.
impl Transactional<SqliteConnection> for SqliteStore {
    fn swap_in<'a>(
        &'a self,
        connection: &'a mut SqliteConnection,
        change: &'a Change,
    ) -> StoreFuture<'a, Swap> {
        Box::pin(async move {
            self.ask(connection).await?;
            let swapped = self.swap_on(connection, change).await;
            swapped.unwrap_or_else(|error| Err(self.explain(error)))
        })
    }

    fn put_in<'a>(
        &'a self,
        connection: &'a mut SqliteConnection,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.ask(connection).await?;
            let chunk = self.inner.codec.seal_chunk(id, index, chunk);
            let put = sqlx::query(sql::PUT_CHUNK)
                .bind(&id.operation.0[..])
                .bind(&id.fence.as_bytes()[..])
                .bind(index)
                .bind(self.inner.inside.now().unix_micros())
                .bind(&*chunk);
            put.execute(connection).await.map(drop).map_err(|error| self.explain(error))
        })
    }

    /// After the commit: whatever was committed into a file that has no name is not durable.
    fn confirm<'a>(&'a self, _: &'a Digest, _: Fence) -> StoreFuture<'a, ()> {
        Box::pin(async { self.look_after_commit() })
    }
}

impl SqliteStore {
    /// Looks at what the connection promises, and whether a transaction is open on it: SQLite ends
    /// one by itself after some errors, and what is written then would commit alone.
    pub(super) async fn ask(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        match sqlx::query(sql::BEGIN_READING).execute(&mut *connection).await {
            Err(error) if is_within_a_transaction(&error) => {}
            Err(error) => return Err(self.explain(error)),
            // SQLite has rolled back by itself, and sqlx does not know: it will end what was just begun.
            // In a savepoint it would not.
            Ok(_) if depth(connection) == 1 => return Err(not_open()),
            Ok(_) => {
                let ended = sqlx::query(sql::ROLLBACK).execute(connection).await;
                return Err(ended.map_or_else(|error| self.explain(error), |_| not_open()));
            }
        }
        let promises = sqlx::query(sql::PROMISES).fetch_one(connection).await.and_then(|row| {
            let (synchronous, attached) = (row.try_get(0)?, row.try_get(2)?);
            Ok(Promises { synchronous, file: path_of(row.try_get(1)?), attached })
        });
        self.inner.inside.check(&promises.map_err(|error| self.explain(error))?)
    }

    async fn swap_on(
        &self,
        connection: &mut SqliteConnection,
        change: &Change,
    ) -> Result<Result<Swap, StoreError>, sqlx::Error> {
        let proposal = Proposal::of(change, &self.inner.codec);
        let now = self.inner.inside.now();
        let (digest, fence) = (&proposal.id.0[..], &proposal.fence.as_bytes()[..]);
        let query = sqlx::query(proposal.statement());
        let query = match &proposal.expected {
            Expected::Nothing { .. } => query.bind(digest).bind(fence),
            Expected::Fence(expected) => {
                query.bind(digest).bind(expected.as_bytes().to_vec()).bind(fence)
            }
        };
        let query = query
            .bind(proposal.state)
            .bind(proposal.started_at(now))
            .bind(now.unix_micros())
            .bind(proposal.expires_at(now));
        let query = match &proposal.expected {
            Expected::Nothing { scope, operation } => query.bind(scope).bind(operation),
            Expected::Fence(_) => query,
        };
        let written = query.bind(&proposal.body).execute(&mut *connection).await?;
        if written.rows_affected() == 0 {
            let stored = sqlx::query(sql::READ).bind(digest).fetch_optional(connection).await?;
            let stored = stored.map(|row| Ok::<_, sqlx::Error>(Row::new(columns(&row)?, now)));
            return Ok(self.decode(&change.id, stored.transpose()?).map(Swap::Conflict));
        }
        if let Some(note) = &proposal.note {
            let written = sqlx::query(sql::NOTE)
                .bind(digest)
                .bind(now.unix_micros())
                .bind(note.kind.as_str())
                .bind(&note.execution.as_bytes()[..])
                .bind(&note.actor)
                .bind(&note.reason);
            written.execute(connection).await?;
        }
        Ok(Ok(Swap::Stored { at: now }))
    }

    /// What an error inside the transaction means.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(super) fn explain(&self, error: sqlx::Error) -> StoreError {
        match as_sqlite(&error) {
            Some(error) => inside(&error, self.path()),
            None => {
                StoreError::Unavailable(format!("the transaction's connection failed: {error}"))
            }
        }
    }
}

/// What a failed commit means: it is in doubt until the record was read.
pub(crate) fn commit_error(error: &sqlx::Error) -> StoreError {
    match as_sqlite(error) {
        Some(error) => at_commit(&error),
        None => StoreError::Unavailable(format!("the transaction's connection failed: {error}")),
    }
}

/// How deep sqlx believes to be: 1 in a transaction, more in savepoints of it.
pub(crate) fn depth(connection: &SqliteConnection) -> usize {
    <Sqlite as Database>::TransactionManager::get_transaction_depth(connection)
}

/// SQLite has no other way to ask.
fn is_within_a_transaction(error: &sqlx::Error) -> bool {
    let message = error.as_database_error().map(sqlx::error::DatabaseError::message);
    message.is_some_and(|message| message.contains("within a transaction"))
}

fn columns(row: &SqliteRow) -> Result<Columns, sqlx::Error> {
    Ok(Columns {
        fence: row.try_get(0)?,
        started_at: row.try_get(1)?,
        updated_at: row.try_get(2)?,
        expires_at: row.try_get(3)?,
        body: row.try_get(4)?,
    })
}

pub(super) fn as_sqlite(error: &sqlx::Error) -> Option<rusqlite::Error> {
    let database = error.as_database_error()?;
    let code = database.code()?.parse().ok()?;
    let text = Some(database.message().to_owned());
    Some(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), text))
}
