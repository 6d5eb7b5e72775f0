//! Transactions of tokio-postgres.

use std::{
    future::Future as _,
    ops::Deref,
    pin::pin,
    task::{Context, Waker},
};

use onceward_core::{Change, SpoolId, StoreError, Swap};
use tokio_postgres::{
    Client, Row as PgRow, Transaction,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    Dialect, PostgresStore,
    error::{Trouble, describe, store_error},
    inside::{ChangeForm, OwnConnection, SWAP, SwapAnswer, Value, answer_in},
    rows::{ChangeKind, Interval, Read, Work, timestamp, uuid_of},
    sql,
};
use crate::{
    crashpoint,
    engine::{CommitOutcome, commit::is_refusal, injected},
};

impl OwnConnection for Transaction<'_> {
    async fn swap(
        &mut self,
        store: &PostgresStore,
        change: &Change,
        form: ChangeForm,
    ) -> Result<Swap, StoreError> {
        store.swap_on(self.client(), change, form).await
    }

    async fn put(&mut self, id: &SpoolId, index: i32, chunk: &[u8]) -> Result<(), StoreError> {
        put_on(self.client(), id, index, chunk).await
    }
}

/// Begins the transaction, if this is the first that is sent.
impl OwnConnection for OwnTransaction<'_> {
    async fn swap(
        &mut self,
        store: &PostgresStore,
        change: &Change,
        form: ChangeForm,
    ) -> Result<Swap, StoreError> {
        match self.stage {
            Stage::New => {
                self.stage = Stage::Open;
                let begin = self.client.batch_execute("BEGIN");
                let swap = store.swap_on(self.client, change, form);
                let (begun, swap) = tokio::join!(biased; begin, swap);
                begun.map_err(|error| store_error(&error))?;
                swap
            }
            Stage::Open => store.swap_on(self.client, change, form).await,
            Stage::Over => {
                Err(StoreError::NotOpen("it was committed or rolled back before".to_owned()))
            }
        }
    }

    async fn put(&mut self, id: &SpoolId, index: i32, chunk: &[u8]) -> Result<(), StoreError> {
        put_on(self.client, id, index, chunk).await
    }
}

/// A transaction that begins with a claim, in one round trip: see
/// [`Engine::begin_in`](crate::Engine::begin_in). It derefs to the connection.
///
/// Dropping it rolls back.
///
/// ```
/// use onceward::store::postgres::OwnTransaction;
///
/// async fn charge(shop: &OwnTransaction<'_>, cents: i32) -> Result<u64, tokio_postgres::Error> {
///     shop.execute("INSERT INTO charge (cents) VALUES ($1)", &[&cents]).await
/// }
/// ```
#[must_use = "dropping it rolls back"]
pub struct OwnTransaction<'c> {
    client: &'c mut Client,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent.
    New,
    Open,
    /// It was committed, or rolled back.
    Over,
}

impl<'c> OwnTransaction<'c> {
    /// Begins with the first statement of the store.
    pub(crate) fn new(client: &'c mut Client) -> Self {
        Self { client, stage: Stage::New }
    }

    /// One whose `BEGIN` the caller sends.
    pub(super) fn begun(client: &'c mut Client) -> Self {
        Self { client, stage: Stage::Open }
    }

    /// It was committed, and there is nothing to roll back.
    pub(super) fn ended(mut self) {
        self.stage = Stage::Over;
    }

    /// Commits, for one that does not end with a claim.
    pub async fn commit(mut self) -> Result<(), tokio_postgres::Error> {
        self.stage = Stage::Over;
        self.client.batch_execute("COMMIT").await
    }

    /// Rolls back, and says whether that went well.
    pub async fn rollback(mut self) -> Result<(), tokio_postgres::Error> {
        self.stage = Stage::Over;
        self.client.batch_execute("ROLLBACK").await
    }

    /// The connection, if the transaction is open.
    pub(super) fn opened(&self) -> Result<&Client, StoreError> {
        match self.stage {
            Stage::Open => Ok(self.client),
            Stage::New | Stage::Over => {
                Err(StoreError::NotOpen("it was committed or rolled back before".to_owned()))
            }
        }
    }

    pub(crate) fn is_over(&mut self) {
        self.stage = Stage::Over;
    }
}

impl Deref for OwnTransaction<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl Drop for OwnTransaction<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Open {
            // Polled once it is sent; this does not wait for the answer.
            let rollback = pin!(self.client.batch_execute("ROLLBACK"));
            let _ = rollback.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// What is larger is not sent: the server takes no message of this size, and a driver that notices it
/// would send the commit alone.
const LARGEST: usize = 1 << 30;

impl PostgresStore {
    /// Sends a change, and the commit right behind it. If the change is not made it is an error inside
    /// the transaction, so that the server makes a rollback of the commit.
    ///
    /// `None`: this dialect has no such function.
    pub(crate) async fn swap_and_commit(
        &self,
        client: &Client,
        change: &Change,
        commit: &str,
    ) -> Option<CommitOutcome> {
        if self.inner.how.dialect == Dialect::Wire {
            return None;
        }
        if client.is_closed() {
            let text = "the connection was closed before the commit was sent";
            return Some(CommitOutcome::Failed(StoreError::Unavailable(text.to_owned())));
        }
        let work = self.work(change);
        if work.proposal.body.len() >= LARGEST {
            let text = "the answer is too large for a record; keep it beside, or do not keep it";
            return Some(CommitOutcome::Failed(StoreError::Unusable(text.to_owned())));
        }
        let values = self.values(&work, ChangeForm::Last);
        // Both are sent before the first is answered, in this order.
        let (answer, committed) =
            tokio::join!(biased; call_swap(client, &values), client.batch_execute(commit));
        let committed = committed.map_err(|error| match is_refused(&error) {
            true => CommitOutcome::Failed(store_error(&error)),
            false => CommitOutcome::Doubtful { error: commit_error(&error), was_made: true },
        });
        let doubtful = || CommitOutcome::Doubtful { error: injected(), was_made: true };
        let committed = crashpoint!("own.commit", committed, doubtful());
        Some(match (answer, committed) {
            (Ok(answer), Ok(())) => {
                CommitOutcome::Committed { at: answer.at(), must_be_confirmed: answer.has_standbys }
            }
            (Ok(_), Err(together)) => together,
            (Err(error), _) => refused(&error),
        })
    }

    async fn swap_on(
        &self,
        client: &Client,
        change: &Change,
        form: ChangeForm,
    ) -> Result<Swap, StoreError> {
        let work = self.work(change);
        if self.inner.how.dialect == Dialect::Wire {
            return self.swap_plainly(client, &work).await;
        }
        match call_swap(client, &self.values(&work, form)).await {
            Ok(answer) => self.judge(&change.id, answer).await,
            Err(error) => explained(&error),
        }
    }

    /// For engines without functions.
    async fn swap_plainly(&self, client: &Client, work: &Work) -> Result<Swap, StoreError> {
        let values = self.values(work, ChangeForm::Swap);
        let [id, expected, fence, execution, state, anew, _, _, _, _, rest @ ..] = &values;
        let [scope, operation, body, kind, by, actor, reason, ..] = rest;
        // The function takes numbers, the statements intervals.
        let [ttl, retain, sweep] = &[work.ttl_micros(), work.retain_micros, work.sweep_micros]
            .map(|micros| Value::Length(micros.map(Interval)));
        let changed = match work.kind {
            ChangeKind::Claim => {
                let claim =
                    [id, fence, execution, state, ttl, sweep, retain, scope, operation, body];
                query(client, sql::CLAIM.text, claim).await
            }
            ChangeKind::End | ChangeKind::Change => {
                let change = [
                    id, expected, fence, execution, state, anew, ttl, retain, sweep, body, kind,
                    by, actor, reason,
                ];
                query(client, sql::CHANGE.text, change).await
            }
        };
        let changed = match changed {
            Ok(rows) => rows,
            Err(error) => return explained(&error),
        };
        if let Some(row) = changed.first() {
            let at = row.try_get(1).map_err(|error| store_error(&error))?;
            return Ok(Swap::Stored { at: timestamp(at) });
        }
        let stored = query(client, sql::READ_ONE_PLAIN.text, [id]).await;
        let stored = stored.map_err(|error| store_error(&error))?;
        let read = stored.first().map(Read::of).transpose()?;
        Ok(Swap::Conflict(self.believed(&work.proposal.id, read).await?))
    }
}

async fn put_on(client: &Client, id: &SpoolId, index: i32, chunk: &[u8]) -> Result<(), StoreError> {
    let (fence, index) = (Value::Uuid(Some(uuid_of(id.fence))), Value::Int(Some(index)));
    let values = [&Value::Bytes(&id.operation.0), &fence, &index, &Value::Bytes(chunk)];
    let put = query(client, sql::PUT_CHUNK.text, values).await;
    put.map(drop).map_err(|error| store_error(&error))
}

async fn call_swap(
    client: &Client,
    values: &[Value<'_>; 21],
) -> Result<SwapAnswer, tokio_postgres::Error> {
    let typed: Vec<_> = values.iter().map(Value::typed).collect();
    let row = client.query_typed_one(SWAP, &typed).await?;
    Ok(answer_in!(row))
}

async fn query<'a>(
    client: &Client,
    text: &str,
    values: impl IntoIterator<Item = &'a Value<'a>>,
) -> Result<Vec<PgRow>, tokio_postgres::Error> {
    let typed: Vec<_> = values.into_iter().map(Value::typed).collect();
    client.query_typed(text, &typed).await
}

impl Value<'_> {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Bytes(value) => (value, Type::BYTEA),
            Self::Uuid(value) => (value, Type::UUID),
            Self::Short(value) => (value, Type::INT2),
            Self::Int(value) => (value, Type::INT4),
            Self::Long(value) => (value, Type::INT8),
            Self::Flag(value) => (value, Type::BOOL),
            Self::Text(value) => (value, Type::TEXT),
            Self::Length(value) => (value, Type::INTERVAL),
        }
    }
}

/// Whether the server itself has said that it did not do it.
fn is_refused(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| is_refusal(code.code()))
}

/// What an error means of which nothing but the server's own word is certain.
fn refused(error: &tokio_postgres::Error) -> CommitOutcome {
    match error.code().map(SqlState::code) {
        Some("OW001") => CommitOutcome::Conflict,
        Some("OW003") => CommitOutcome::Savepoint,
        // Both may still be on their way, or in the buffers of a server that does not know.
        _ if !is_refused(error) => {
            CommitOutcome::Doubtful { error: commit_error(error), was_made: false }
        }
        _ => match Trouble::of(error) {
            Trouble::Held => CommitOutcome::Held,
            trouble => CommitOutcome::Failed(trouble.into_error()),
        },
    }
}

/// What an error inside the transaction means.
fn explained(error: &tokio_postgres::Error) -> Result<Swap, StoreError> {
    match Trouble::of(error) {
        Trouble::Held => Ok(Swap::Held),
        trouble => Err(trouble.into_error()),
    }
}

/// What a failed commit means: it is in doubt until the record was read.
pub(crate) fn commit_error(error: &tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(describe(error))
}
