//! The same swap inside a transaction of the user's own: the record ends in the effect's commit.
//!
//! Nothing of it is prepared: the connection may be behind a pooler. In the dialect of PostgreSQL a
//! function does all of it in one round trip: it changes the row only under the expected fence, waits for
//! another transaction only so long, and raises a `synchronous_commit` that would lose what is
//! acknowledged. Others get the statements that the store itself uses.

use std::{
    future::Future as _,
    ops::Deref,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use onceward_core::{
    BoxFuture, Change, Digest, Fence, Found, SpoolId, Started, StoreError, Swap, Timestamp,
    Transactional,
};
use tokio_postgres::{
    Client, Row as PgRow, Transaction,
    error::SqlState,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    Dialect, PostgresStore,
    error::{Trouble, describe, store_error},
    number,
    rows::{Interval, Kind, Work, fence_of, timestamp, uuid_of},
    sql,
};
use crate::{
    crashpoint,
    engine::{CommitOutcome, commit::is_refusal, injected},
    store::sql::rows::{Row, Times},
};

/// How long a claim waits for another transaction that holds its record, by default.
const CLAIM_PATIENCE: Duration = Duration::from_millis(50);

pub(super) const SWAP: &str = "SELECT * FROM onceward.swap($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                               $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

/// How a change is made inside a transaction.
#[derive(Clone, Copy)]
pub(super) enum ChangeForm {
    /// Like the store's own. An end waits as the user's connection is set to: only a renewal, or another
    /// end of the same claim, can be in its way.
    Swap,
    /// A claim that no other transaction sees before it has ended.
    Claim(Duration),
    /// A commit is right behind it.
    Last,
}

/// What is larger is not sent: the server takes no message of this size, and a driver that notices it
/// would send the commit alone.
const LARGEST: usize = 1 << 30;

/// A parameter, for drivers that bind it each in its own way.
pub(super) enum Value<'a> {
    Bytes(&'a [u8]),
    Uuid(Option<Uuid>),
    Short(i16),
    Int(Option<i32>),
    Long(Option<i64>),
    Flag(bool),
    Text(Option<&'a str>),
    Length(Option<Interval>),
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

/// What the function found, as any driver gives it.
pub(super) struct Met {
    pub(super) was_made: bool,
    pub(super) fence: Option<Uuid>,
    pub(super) started_at: Option<i64>,
    pub(super) updated_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) read_at: Option<i64>,
    pub(super) has_standbys: bool,
}

impl Met {
    fn of(row: &PgRow) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
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

    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.updated_at.unwrap_or_default())
    }

    /// `None`: nothing is stored.
    fn row(self) -> Option<Row> {
        let fence = self.fence?;
        let micros = Timestamp::from_unix_micros;
        let times = Times {
            started_at: micros(self.started_at.unwrap_or_default()),
            updated_at: micros(self.updated_at.unwrap_or_default()),
            expires_at: self.expires_at.map(micros),
        };
        Some(Row {
            fence: fence_of(fence),
            times: Some(times),
            body: self.body.unwrap_or_default(),
            read_at: micros(self.read_at.unwrap_or_default()),
        })
    }
}

impl PostgresStore {
    /// The parameters of [`SWAP`].
    pub(super) fn values<'a>(&self, work: &'a Work, how: ChangeForm) -> [Value<'a>; 21] {
        let (proposal, (scope, operation)) = (&work.proposal, work.names());
        let note = proposal.note.as_ref();
        let by = note.map(|note| Uuid::from_bytes(*note.execution.as_bytes()));
        let patience = match how {
            ChangeForm::Claim(patience) => Some(patience),
            ChangeForm::Swap => proposal.is_claim.then_some(CLAIM_PATIENCE),
            ChangeForm::Last => None,
        };
        // Zero would be for ever.
        let in_millis =
            |patience: Duration| i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let patience = patience.map(|patience| in_millis(patience).max(1));
        [
            Value::Bytes(&proposal.id.0),
            Value::Uuid(work.expected().map(uuid_of)),
            Value::Uuid(Some(uuid_of(proposal.fence))),
            Value::Uuid(Some(Uuid::from_bytes(*proposal.execution.as_bytes()))),
            Value::Short(work.state()),
            Value::Flag(proposal.started == Started::Now),
            Value::Long(work.ttl_micros()),
            Value::Long(work.retain_micros),
            Value::Long(work.sweep_micros),
            Value::Flag(work.kind == Kind::End),
            Value::Text(Some(scope)),
            Value::Text(Some(operation)),
            Value::Bytes(&proposal.body),
            Value::Text(note.map(|note| note.kind.as_str())),
            Value::Uuid(by),
            Value::Text(note.and_then(|note| note.actor.as_deref())),
            Value::Text(note.and_then(|note| note.reason.as_deref())),
            Value::Int(patience),
            Value::Flag(!matches!(how, ChangeForm::Claim(_))),
            Value::Flag(matches!(how, ChangeForm::Last)),
            Value::Flag(!self.inner.how.accepts_relaxed),
        ]
    }

    /// What a swap met, believed as a read is.
    pub(super) async fn judge(&self, id: &Digest, met: Met) -> Result<Swap, StoreError> {
        if met.was_made {
            return Ok(Swap::Stored { at: met.at() });
        }
        let has_standbys = met.has_standbys;
        let Some(row) = met.row() else { return Ok(Swap::Conflict(Found::Nothing)) };
        if !has_standbys {
            return Ok(Swap::Conflict(row.decode(id, &self.inner.codec)?));
        }
        // The server of this connection may be an old primary that was replaced.
        let found = self.read(id).await?;
        match stored_fence(&found) == Some(row.fence) {
            true => Ok(Swap::Conflict(found)),
            // To propose another change here would meet the same again.
            false => Err(StoreError::Unavailable(
                "the server of the transaction has another record than the store: another process has \
                 just changed it, or the transaction is on a server that was replaced"
                    .to_owned(),
            )),
        }
    }

    pub(super) fn work(&self, change: &Change) -> Work {
        Work::of(change, &self.inner.codec)
    }

    async fn swap_on(
        &self,
        client: &Client,
        change: &Change,
        how: ChangeForm,
    ) -> Result<Swap, StoreError> {
        let work = self.work(change);
        if self.inner.how.dialect == Dialect::Wire {
            return self.swap_plainly(client, &work).await;
        }
        match met(client, &self.values(&work, how)).await {
            Ok(met) => self.judge(&change.id, met).await,
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
            Kind::Claim => {
                let claim =
                    [id, fence, execution, state, ttl, sweep, retain, scope, operation, body];
                query(client, sql::CLAIM.text, claim).await
            }
            Kind::End | Kind::Change => {
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
        let read = stored.first().map(super::rows::Read::of).transpose()?;
        Ok(Swap::Conflict(self.believed(&work.proposal.id, read).await?))
    }

    async fn put_on(
        &self,
        client: &Client,
        id: &SpoolId,
        index: u32,
        chunk: &[u8],
    ) -> Result<(), StoreError> {
        let chunk = self.inner.codec.seal_chunk(id, index, chunk);
        let (fence, index) =
            (Value::Uuid(Some(uuid_of(id.fence))), Value::Int(Some(number(index)?)));
        let values = [&Value::Bytes(&id.operation.0), &fence, &index, &Value::Bytes(&chunk)];
        let put = query(client, sql::PUT_CHUNK.text, values).await;
        put.map(drop).map_err(|error| store_error(&error))
    }

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
        let (met, committed) =
            tokio::join!(biased; met(client, &values), client.batch_execute(commit));
        let committed = committed.map_err(|error| match is_refused(&error) {
            true => CommitOutcome::Failed(store_error(&error)),
            false => CommitOutcome::Doubtful { error: commit_error(&error), was_made: true },
        });
        let doubtful = || CommitOutcome::Doubtful { error: injected(), was_made: true };
        let committed = crashpoint!("own.commit", committed, doubtful());
        Some(match (met, committed) {
            (Ok(met), Ok(())) => {
                CommitOutcome::Committed { at: met.at(), must_be_confirmed: met.has_standbys }
            }
            (Ok(_), Err(together)) => together,
            (Err(error), _) => refused(&error),
        })
    }

    /// Whether a handler can make its claims in its own transaction here.
    #[cfg(feature = "tower")]
    pub(crate) fn takes_claims(&self) -> bool {
        self.inner.how.dialect == Dialect::Postgres
    }

    /// A commit whose wait for the standby was cancelled counts as done, with a warning that only
    /// the driver of the connection gets; and its server may have been replaced meanwhile. A read
    /// passes the barrier, on the server that counts.
    pub(super) async fn confirmed(&self, id: &Digest, fence: Fence) -> Result<(), StoreError> {
        match stored_fence(&self.read(id).await?) == Some(fence) {
            true => Ok(()),
            false => Err(StoreError::Unavailable(
                "the commit was acknowledged, but what it wrote is not there; the server was replaced \
                 meanwhile, or only a savepoint has ended"
                    .to_owned(),
            )),
        }
    }
}

fn stored_fence(found: &Found) -> Option<Fence> {
    match found {
        Found::Record(stored) => Some(stored.record.fence),
        Found::Unreadable { fence, .. } => Some(*fence),
        Found::Nothing => None,
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

async fn met(client: &Client, values: &[Value<'_>; 21]) -> Result<Met, tokio_postgres::Error> {
    let typed: Vec<_> = values.iter().map(Value::typed).collect();
    Met::of(&client.query_typed_one(SWAP, &typed).await?)
}

async fn query<'a>(
    client: &Client,
    text: &str,
    values: impl IntoIterator<Item = &'a Value<'a>>,
) -> Result<Vec<PgRow>, tokio_postgres::Error> {
    let typed: Vec<_> = values.into_iter().map(Value::typed).collect();
    client.query_typed(text, &typed).await
}

/// Any isolation level will do; at REPEATABLE READ and above a renewal that came in between makes the
/// end fail, and with it the transaction.
impl Transactional<Transaction<'_>> for PostgresStore {
    fn swap_in<'a>(
        &'a self,
        transaction: &'a mut Transaction<'_>,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_on(transaction.client(), change, ChangeForm::Swap))
    }

    fn claim_in<'a>(
        &'a self,
        transaction: &'a mut Transaction<'_>,
        change: &'a Change,
        patience: Duration,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_on(transaction.client(), change, ChangeForm::Claim(patience)))
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
        transaction: &'a mut Transaction<'_>,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.put_on(transaction.client(), id, index, chunk))
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

impl Transactional<OwnTransaction<'_>> for PostgresStore {
    fn swap_in<'a>(
        &'a self,
        transaction: &'a mut OwnTransaction<'_>,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_first(transaction, change, ChangeForm::Swap))
    }

    fn claim_in<'a>(
        &'a self,
        transaction: &'a mut OwnTransaction<'_>,
        change: &'a Change,
        patience: Duration,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.swap_first(transaction, change, ChangeForm::Claim(patience)))
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
        transaction: &'a mut OwnTransaction<'_>,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.put_on(transaction.client, id, index, chunk))
    }
}

impl PostgresStore {
    /// Begins the transaction, if this is the first that is sent.
    async fn swap_first(
        &self,
        transaction: &mut OwnTransaction<'_>,
        change: &Change,
        how: ChangeForm,
    ) -> Result<Swap, StoreError> {
        match transaction.stage {
            Stage::New => {
                transaction.stage = Stage::Open;
                let begin = transaction.client.batch_execute("BEGIN");
                let swap = self.swap_on(transaction.client, change, how);
                let (begun, swap) = tokio::join!(biased; begin, swap);
                begun.map_err(|error| store_error(&error))?;
                swap
            }
            Stage::Open => self.swap_on(transaction.client, change, how).await,
            Stage::Over => Err(over()),
        }
    }
}

fn over() -> StoreError {
    StoreError::NotOpen("it was committed or rolled back before".to_owned())
}
