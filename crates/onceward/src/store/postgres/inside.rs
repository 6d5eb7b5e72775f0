//! The same swap inside a transaction of the user's own: the record ends in the effect's commit.
//!
//! Nothing of it is prepared: the connection may be behind a pooler. In the dialect of PostgreSQL a
//! function does all of it in one round trip: it changes the row only under the expected fence, waits for
//! another transaction only so long, and raises a `synchronous_commit` that would lose what is
//! acknowledged. Others get the statements that the store itself uses.

use std::{future::Future, time::Duration};

use onceward_core::{
    Change, Digest, Fence, Found, SpoolId, Started, StoreError, StoreFuture, Swap, Timestamp,
    Transactional,
};
use uuid::Uuid;

#[cfg(feature = "tower")]
use super::Dialect;
use super::{
    PostgresStore, number,
    rows::{ChangeKind, Interval, Work, fence_of, uuid_of},
};
use crate::store::sql::rows::{Row, Times};

/// How long a claim waits for another transaction that holds its record, by default.
const CLAIM_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) const SWAP: &str = "SELECT * FROM onceward.swap($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                               $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

/// How a change is made inside a transaction.
#[derive(Clone, Copy)]
pub enum ChangeForm {
    /// Like the store's own. An end waits as the user's connection is set to: only a renewal, or another
    /// end of the same claim, can be in its way.
    Swap,
    /// A claim that no other transaction sees before it has ended.
    Claim(Duration),
    /// A commit is right behind it.
    Last,
}

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

/// What the function answered, as any driver gives it.
pub(super) struct SwapAnswer {
    pub(super) was_made: bool,
    pub(super) fence: Option<Uuid>,
    pub(super) started_at: Option<i64>,
    pub(super) updated_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) read_at: Option<i64>,
    pub(super) has_standbys: bool,
}

/// Reads what the function answered, by whichever driver.
macro_rules! answer_in {
    ($row:expr) => {
        SwapAnswer {
            was_made: $row.try_get(0)?,
            fence: $row.try_get(1)?,
            started_at: $row.try_get(2)?,
            updated_at: $row.try_get(3)?,
            expires_at: $row.try_get(4)?,
            body: $row.try_get(5)?,
            read_at: $row.try_get(6)?,
            has_standbys: $row.try_get(7)?,
        }
    };
}
pub(super) use answer_in;

impl SwapAnswer {
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

/// A connection on which a transaction of the user's own is open, by whichever driver.
pub trait OwnConnection: Send {
    /// Makes a change.
    fn swap(
        &mut self,
        store: &PostgresStore,
        change: &Change,
        form: ChangeForm,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// Writes one chunk of a large answer, sealed where the store seals.
    fn put(
        &mut self,
        id: &SpoolId,
        index: i32,
        chunk: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Any isolation level will do; at REPEATABLE READ and above a renewal that came in between makes the
/// end fail, and with it the transaction.
impl<C: OwnConnection> Transactional<C> for PostgresStore {
    fn swap_in<'a>(&'a self, connection: &'a mut C, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(connection.swap(self, change, ChangeForm::Swap))
    }

    fn claim_in<'a>(
        &'a self,
        connection: &'a mut C,
        change: &'a Change,
        patience: Duration,
    ) -> StoreFuture<'a, Swap> {
        Box::pin(connection.swap(self, change, ChangeForm::Claim(patience)))
    }

    /// A commit whose wait for the standby was cancelled counts as done, with a warning that only
    /// the driver of the connection gets; and its server may have been replaced meanwhile. A read
    /// passes the barrier, on the server that counts.
    fn confirm<'a>(&'a self, id: &'a Digest, fence: Fence) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match stored_fence(&self.read(id).await?) == Some(fence) {
                true => Ok(()),
                false => Err(StoreError::Unavailable(
                    "the commit was acknowledged, but what it wrote is not there; the server was \
                     replaced meanwhile, or only a savepoint has ended"
                        .to_owned(),
                )),
            }
        })
    }

    fn put_in<'a>(
        &'a self,
        connection: &'a mut C,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let chunk = self.inner.codec.seal_chunk(id, index, chunk);
            connection.put(id, number(index)?, &chunk).await
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
            ChangeForm::Swap => proposal.is_claim.then_some(CLAIM_TIMEOUT),
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
            Value::Flag(work.kind == ChangeKind::End),
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

    /// What a swap found, believed as a read is.
    pub(super) async fn judge(&self, id: &Digest, answer: SwapAnswer) -> Result<Swap, StoreError> {
        if answer.was_made {
            return Ok(Swap::Stored { at: answer.at() });
        }
        let has_standbys = answer.has_standbys;
        let Some(row) = answer.row() else { return Ok(Swap::Conflict(Found::Nothing)) };
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

    /// Whether a handler can make its claims in its own transaction here.
    #[cfg(feature = "tower")]
    pub(crate) fn takes_claims(&self) -> bool {
        self.inner.how.dialect == Dialect::Postgres
    }
}

fn stored_fence(found: &Found) -> Option<Fence> {
    match found {
        Found::Record(stored) => Some(stored.record.fence),
        Found::Unreadable { fence, .. } => Some(*fence),
        Found::Nothing => None,
    }
}
