//! The end of a claim in the user's own transaction: effect and record live and die together.
//!
//! [`Engine::settle_in`] only proposes: the transaction's commit decides. [`Engine::commit`] is both.
//! A commit whose answer is an error is not repeated and not guessed about: the record is read.

use std::{fmt, future::Future, time::Duration};

use onceward_core::{
    Claim, Digest, Ending, Fence, Found, Replay, Settled, Settlement, SettlementStep, Store,
    StoreError, Swap, Transactional,
};
use tokio::time::{sleep, timeout};

use crate::{
    Engine, crashpoint,
    engine::{fresh_fence, injected},
};

/// A transaction of the user's own, in the database where the records are.
///
/// Implemented for `sqlx::Transaction<'_, Sqlite>` (feature `sqlx`). The transactions of rusqlite
/// cannot be sent between threads and have methods of their own, whose names end in `_blocking`.
pub trait Transaction: Send {
    /// The connection that the transaction is open on.
    type Connection: Send + ?Sized;
    /// The store that knows such connections.
    type Store: Transactional<Self::Connection>;

    /// The connection.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Commits. An error may mean that it was done all the same.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

#[cfg(feature = "sqlx")]
impl Transaction for sqlx::Transaction<'_, sqlx::Sqlite> {
    type Connection = sqlx::SqliteConnection;
    type Store = crate::stores::sqlite::SqliteStore;

    fn connection(&mut self) -> &mut sqlx::SqliteConnection {
        self
    }

    async fn commit(self) -> Result<(), StoreError> {
        let committed = self.commit().await;
        committed.map_err(|error| crate::stores::sqlite::commit_error(&error))
    }
}

#[cfg(feature = "sqlx")]
impl Transaction for crate::stores::sqlite::OwnTransaction {
    type Connection = sqlx::SqliteConnection;
    type Store = crate::stores::sqlite::SqliteStore;

    fn connection(&mut self) -> &mut sqlx::SqliteConnection {
        self
    }

    async fn commit(self) -> Result<(), StoreError> {
        let committed = self.commit().await;
        committed.map_err(|error| crate::stores::sqlite::commit_error(&error))
    }
}

impl Engine {
    /// Proposes the end of a claim inside the user's transaction, whose commit decides.
    ///
    /// After an error the transaction must be rolled back: the claim may be over, and then another
    /// execution has the right to the effect.
    pub async fn settle_in<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: &mut T,
        ending: Ending,
    ) -> Result<(), CommitError> {
        self.propose_in(claim, transaction, claim.settle(ending, fresh_fence())).await
    }

    /// Ends a claim and commits: effect and record together, or neither.
    ///
    /// If the commit fails, the record is read to learn whether it was done. Dropping the future
    /// leaves the transaction committed or rolled back, never half of it.
    pub async fn commit<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: T,
        ending: Ending,
    ) -> Result<(), CommitError> {
        self.commit_with(claim, transaction, claim.settle(ending, fresh_fence())).await
    }

    pub(crate) async fn commit_with<T: Transaction>(
        &self,
        claim: &Claim,
        mut transaction: T,
        settlement: Settlement,
    ) -> Result<(), CommitError> {
        let fence = settlement.change().next.fence;
        self.propose_in(claim, &mut transaction, settlement).await?;
        let committed = crashpoint!("own.commit", transaction.commit().await, injected());
        match committed {
            Ok(()) => Ok(()),
            Err(error) => self.find_out(claim.id(), fence, error).await,
        }
    }

    pub(crate) async fn propose_in<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: &mut T,
        settlement: Settlement,
    ) -> Result<(), CommitError> {
        let store = self.store_of::<T::Store>()?;
        let mut proposal = Proposal::new(claim, settlement);
        loop {
            let (connection, change) = (transaction.connection(), proposal.settlement.change());
            let swap = crashpoint!("own.swap", store.swap_in(connection, change).await, injected());
            match proposal.next(swap)? {
                Some(next) => proposal = next,
                None => return Ok(()),
            }
        }
    }

    /// The store under its own type, which is what the user's connection asks for.
    pub(crate) fn store_of<S: Store>(&self) -> Result<&S, CommitError> {
        let store = self.store().as_any().and_then(|any| any.downcast_ref());
        store.ok_or(CommitError::WrongStore)
    }

    /// Reads whether a commit was done whose answer was an error.
    async fn find_out(
        &self,
        id: Digest,
        fence: Fence,
        error: StoreError,
    ) -> Result<(), CommitError> {
        let reading = async {
            loop {
                match self.read(&id).await {
                    Ok(found) => return found,
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        match timeout(Self::SETTLE_PATIENCE, reading).await {
            Ok(found) => judge(&found, fence, error),
            Err(_) => Err(CommitError::Doubtful(error)),
        }
    }
}

/// Whether a commit that failed was done all the same.
fn judge(found: &Found, fence: Fence, error: StoreError) -> Result<(), CommitError> {
    match found {
        Found::Record(stored) if stored.record.fence == fence => Ok(()),
        _ => Err(CommitError::NotCommitted(error)),
    }
}

/// A settlement on its way into a transaction.
struct Proposal<'a> {
    claim: &'a Claim,
    settlement: Settlement,
}

impl<'a> Proposal<'a> {
    fn new(claim: &'a Claim, settlement: Settlement) -> Self {
        Self { claim, settlement }
    }

    /// Takes the store's answer; `None`: it is proposed.
    fn next(self, swap: Result<Swap, StoreError>) -> Result<Option<Self>, CommitError> {
        match self.settlement.next(swap.map_err(CommitError::NotCommitted)?) {
            SettlementStep::Swap(settlement) => Ok(Some(Self { settlement, ..self })),
            SettlementStep::Done(Settled::Stored { .. }) => Ok(None),
            SettlementStep::Done(Settled::FencedOff(Found::Record(stored)))
                if stored.record.execution == self.claim.execution()
                    && Replay::of((*stored).clone()).is_some() =>
            {
                Err(CommitError::Twice)
            }
            SettlementStep::Done(Settled::FencedOff(_)) => Err(CommitError::LeaseLost),
        }
    }
}

/// A transaction of rusqlite may have been told to commit when it is dropped.
#[cfg(feature = "sqlite")]
pub(crate) fn rolled_back_unless_ok<T>(
    transaction: &impl crate::stores::sqlite::BlockingTransaction,
    result: Result<T, CommitError>,
) -> Result<T, CommitError> {
    if result.is_err() {
        roll_back(transaction);
    }
    result
}

#[cfg(feature = "sqlite")]
fn roll_back(transaction: &impl crate::stores::sqlite::BlockingTransaction) {
    let connection = transaction.connection();
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(%error, "a transaction could not be rolled back; it ends with its connection");
    }
}

#[cfg(feature = "sqlite")]
mod blocking {
    use super::{
        Claim, CommitError, Ending, Engine, Proposal, Settlement, crashpoint, fresh_fence,
        injected, judge, roll_back, rolled_back_unless_ok,
    };
    use crate::stores::sqlite::{BlockingTransaction, SqliteStore};

    impl Engine {
        /// [`settle_in`](Self::settle_in) for a transaction of rusqlite.
        pub fn settle_in_blocking(
            &self,
            claim: &Claim,
            transaction: &impl BlockingTransaction,
            ending: Ending,
        ) -> Result<(), CommitError> {
            self.propose_in_blocking(claim, transaction, claim.settle(ending, fresh_fence()))
        }

        /// [`commit`](Self::commit) for a transaction of rusqlite.
        pub fn commit_blocking(
            &self,
            claim: &Claim,
            transaction: impl BlockingTransaction,
            ending: Ending,
        ) -> Result<(), CommitError> {
            self.commit_with_blocking(claim, transaction, claim.settle(ending, fresh_fence()))
        }

        #[expect(clippy::needless_pass_by_value, reason = "committing uses it up")]
        pub(crate) fn commit_with_blocking(
            &self,
            claim: &Claim,
            transaction: impl BlockingTransaction,
            settlement: Settlement,
        ) -> Result<(), CommitError> {
            let fence = settlement.change().next.fence;
            let proposed = self.propose_in_blocking(claim, &transaction, settlement);
            rolled_back_unless_ok(&transaction, proposed)?;
            let (store, connection) = (self.store_of::<SqliteStore>()?, transaction.connection());
            let committed = crashpoint!("own.commit", store.commit_on(connection), injected());
            let Err(error) = committed else { return Ok(()) };
            // Inside the transaction its own proposal would be read.
            roll_back(&transaction);
            match store.read_on(connection, &claim.id()) {
                Ok(found) if connection.is_autocommit() => judge(&found, fence, error),
                _ => Err(CommitError::Doubtful(error)),
            }
        }

        pub(crate) fn propose_in_blocking(
            &self,
            claim: &Claim,
            transaction: &impl BlockingTransaction,
            settlement: Settlement,
        ) -> Result<(), CommitError> {
            let store = self.store_of::<SqliteStore>()?;
            let mut proposal = Proposal::new(claim, settlement);
            loop {
                let change = proposal.settlement.change();
                let swap = crashpoint!(
                    "own.swap",
                    store.swap_in_blocking(transaction.connection(), change),
                    injected()
                );
                match proposal.next(swap)? {
                    Some(next) => proposal = next,
                    None => return Ok(()),
                }
            }
        }
    }
}

/// Why an operation did not end in the user's transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// The claim is over: another execution took over, and has the right to the effect. Roll back.
    LeaseLost,
    /// This execution has ended the operation before; the first end counts. Roll back.
    Twice,
    /// The engine's store is not one that such a transaction can reach. Roll back.
    WrongStore,
    /// The body of the answer broke off, or does not end by itself. Roll back.
    AnswerBroke,
    /// The database refused; nothing was committed.
    NotCommitted(StoreError),
    /// The commit failed, and whether it was done cannot be read now.
    Doubtful(StoreError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseLost => formatter.write_str(
                "another execution took this operation over, and its effect counts; roll back",
            ),
            Self::Twice => formatter.write_str(
                "this execution has ended its operation before, and the first end counts; roll back \
                 and end it once",
            ),
            Self::WrongStore => formatter.write_str(
                "the records of this engine are not in such a database, so that they cannot be \
                 committed together; roll back and use a store in the same database",
            ),
            Self::AnswerBroke => formatter.write_str(
                "the body of the answer broke off, so that it cannot be kept; roll back",
            ),
            Self::NotCommitted(error) => write!(formatter, "nothing was committed: {error}"),
            Self::Doubtful(error) => write!(
                formatter,
                "it cannot be read now whether the transaction was committed: {error}"
            ),
        }
    }
}

impl std::error::Error for CommitError {}

/// The effect failed before it came to a commit: nothing was committed.
#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}

/// The effect failed before it came to a commit: nothing was committed.
#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}
