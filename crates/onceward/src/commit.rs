//! The end of a claim in the user's own transaction: effect and record live and die together.
//!
//! [`Engine::settle_in`] only proposes: the transaction's commit decides. [`Engine::commit`] is both.
//! A commit whose answer is an error is not repeated and not guessed about: the claim is renewed, and
//! what that meets tells.

use std::{fmt, future::Future};

use onceward_core::{
    Claim, Ending, Fence, Found, Settled, Settlement, SettlementStep, State, Store, StoreError,
    Swap, Transactional,
};
use tokio::time::timeout;

use crate::{
    Engine, crashpoint,
    engine::{Pause, fresh_fence, injected},
    telemetry,
};

/// A transaction of the user's own, in the database where the records are.
///
/// Implemented for `sqlx::Transaction<'_, Sqlite>` (feature `sqlx`). The transactions of rusqlite
/// cannot be sent between threads and have methods of their own, whose names end in `_blocking`.
///
/// ```
/// use onceward::{Claim, CommitError, Ending, Engine, Outcome, Transaction};
///
/// /// Works with every driver that the engine's store knows.
/// async fn paid<T: Transaction>(engine: &Engine, claim: &Claim, shop: T) -> Result<(), CommitError> {
///     engine.commit(claim, shop, Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))).await
/// }
/// ```
pub trait Transaction: Send {
    /// The connection that the transaction is open on.
    type Connection: Send + ?Sized;
    /// The store that knows such connections.
    type Store: Transactional<Self::Connection>;

    /// The connection.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Whether its commit is a real one, and not the end of a savepoint inside another transaction.
    fn is_outermost(&self) -> bool;

    /// Commits. An error may mean that it was done all the same.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

#[cfg(feature = "sqlx")]
mod of_sqlx {
    use sqlx::{Sqlite, SqliteConnection};

    use super::{StoreError, Transaction};
    use crate::stores::sqlite::{OwnTransaction, SqliteStore, commit_error, depth};

    impl Transaction for sqlx::Transaction<'_, Sqlite> {
        type Connection = SqliteConnection;
        type Store = SqliteStore;

        fn connection(&mut self) -> &mut SqliteConnection {
            self
        }

        fn is_outermost(&self) -> bool {
            depth(self) <= 1
        }

        async fn commit(self) -> Result<(), StoreError> {
            self.commit().await.map_err(|error| commit_error(&error))
        }
    }

    impl Transaction for OwnTransaction {
        type Connection = SqliteConnection;
        type Store = SqliteStore;

        fn connection(&mut self) -> &mut SqliteConnection {
            self
        }

        fn is_outermost(&self) -> bool {
            true
        }

        async fn commit(self) -> Result<(), StoreError> {
            self.commit().await.map_err(|error| commit_error(&error))
        }
    }
}

impl Engine {
    /// Proposes the end of a claim inside the user's transaction, whose commit decides.
    ///
    /// After an error the transaction must be rolled back: the claim may be over, and then another
    /// execution has the right to the effect.
    ///
    #[cfg_attr(feature = "sqlx", doc = "```")]
    #[cfg_attr(not(feature = "sqlx"), doc = "```ignore")]
    /// # use onceward::{stores::sqlite::SqliteStore, *};
    /// # async fn pay(engine: &Engine, store: &SqliteStore, shop: &sqlx::SqlitePool, claim: &Claim) -> Result<(), CommitError> {
    /// let mut transaction = store.begin(shop).await?;
    /// sqlx::query("INSERT INTO charge (cents) VALUES (500)").execute(&mut *transaction).await?;
    /// let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    /// engine.settle_in(claim, &mut transaction, ending).await?;
    /// transaction.commit().await?;                        // this decides
    /// # Ok(())
    /// # }
    /// ```
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
    /// If the commit fails, the claim is renewed to learn whether it was done: what the disk may still
    /// hold of it comes back only until somebody else commits. Dropping the future leaves the
    /// transaction committed or rolled back, never half of it.
    pub async fn commit<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: T,
        ending: Ending,
    ) -> Result<(), CommitError> {
        let settlement = claim.settle(ending, fresh_fence());
        let ended = telemetry::Ended::by(settlement.change());
        self.commit_with(claim, transaction, settlement).await?;
        telemetry::EXECUTIONS.add(ended);
        Ok(())
    }

    pub(crate) async fn commit_with<T: Transaction>(
        &self,
        claim: &Claim,
        mut transaction: T,
        settlement: Settlement,
    ) -> Result<(), CommitError> {
        let fence = settlement.change().next.fence;
        self.propose_in(claim, &mut transaction, settlement).await?;
        // Not before: a savepoint that was dropped is rolled back by the next statement.
        if !transaction.is_outermost() {
            return Err(CommitError::Savepoint);
        }
        let committed = crashpoint!("own.commit", transaction.commit().await, injected());
        match committed {
            Ok(()) => Ok(()),
            Err(error) => self.find_out(claim, fence, error).await,
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

    /// Finds out whether a commit was done whose answer was an error.
    async fn find_out(
        &self,
        claim: &Claim,
        fence: Fence,
        error: StoreError,
    ) -> Result<(), CommitError> {
        match timeout(Self::SETTLE_PATIENCE, self.renewed_or_met(claim)).await {
            Ok(Ok(swap)) => judge(claim, fence, swap, error),
            Ok(Err(_)) | Err(_) => Err(CommitError::Doubtful(error)),
        }
    }

    /// While the record is held, the commit in question may be under way.
    async fn renewed_or_met(&self, claim: &Claim) -> Result<Swap, StoreError> {
        let (renewal, mut pause) = (claim.renew(), Pause::default());
        loop {
            match self.propose(&renewal).await? {
                Swap::Held => pause.wait().await,
                swap => return Ok(swap),
            }
        }
    }
}

/// Whether a commit that failed was done all the same, by what its claim's renewal met.
///
/// A renewal that is stored proves that it was not, now and for ever: it has overwritten what the log
/// may have held of it.
fn judge(claim: &Claim, fence: Fence, renewed: Swap, error: StoreError) -> Result<(), CommitError> {
    match renewed {
        Swap::Stored { .. } => Err(CommitError::NotCommitted(error)),
        Swap::Conflict(Found::Record(stored)) if stored.record.fence == fence => Ok(()),
        Swap::Conflict(Found::Unreadable { fence: found, .. }) if found == fence => Ok(()),
        Swap::Conflict(Found::Record(stored)) if stored.record.execution != claim.execution() => {
            Err(CommitError::LeaseLost)
        }
        Swap::Conflict(_) | Swap::Held => Err(CommitError::Doubtful(error)),
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
        let swap = swap.map_err(CommitError::inside)?;
        if swap == Swap::Held {
            let detail = "another transaction that is still open holds the record".to_owned();
            return Err(CommitError::NotCommitted(StoreError::Unavailable(detail)));
        }
        match self.settlement.next(swap) {
            SettlementStep::Swap(settlement) => Ok(Some(Self { settlement, ..self })),
            SettlementStep::Done(Settled::Stored { .. }) => Ok(None),
            SettlementStep::Done(Settled::FencedOff(Found::Record(stored)))
                if stored.record.execution == self.claim.execution()
                    && stored.record.state != State::InProgress =>
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
        tracing::warn!(event = telemetry::event::NOT_ROLLED_BACK, %error, "a transaction could not be rolled back; it ends with its connection");
    }
}

#[cfg(feature = "sqlite")]
mod blocking {
    use super::{
        Claim, CommitError, Ending, Engine, Proposal, Settlement, crashpoint, fresh_fence,
        injected, judge, roll_back, rolled_back_unless_ok, telemetry,
    };
    use crate::stores::sqlite::{BlockingTransaction, SqliteStore};

    impl Engine {
        /// [`settle_in`](Self::settle_in) for a transaction of rusqlite.
        ///
        /// ```
        /// # use onceward::{stores::sqlite::SqliteStore, *};
        /// # fn pay(engine: &Engine, store: &SqliteStore, shop: &mut rusqlite::Connection, claim: &Claim) -> Result<(), CommitError> {
        /// let transaction = store.begin_blocking(shop)?;
        /// transaction.execute("INSERT INTO charge (cents) VALUES (500)", [])?;
        /// let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
        /// engine.settle_in_blocking(claim, &transaction, ending)?;
        /// transaction.commit()?;                              // this decides
        /// # Ok(())
        /// # }
        /// ```
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
            let settlement = claim.settle(ending, fresh_fence());
            let ended = telemetry::Ended::by(settlement.change());
            self.commit_with_blocking(claim, transaction, settlement)?;
            telemetry::EXECUTIONS.add(ended);
            Ok(())
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
            roll_back(&transaction);
            match store.renew_on(connection, &claim.renew()) {
                Ok(swap) => judge(claim, fence, swap, error),
                Err(_) => Err(CommitError::Doubtful(error)),
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
///
/// ```
/// use onceward::CommitError;
///
/// fn is_worth_another_try(error: &CommitError) -> bool {
///     matches!(error, CommitError::NotCommitted(_) | CommitError::Doubtful(_))
/// }
/// assert!(!is_worth_another_try(&CommitError::LeaseLost), "somebody else has done it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// The claim is over: another execution took over, and has the right to the effect. Roll back.
    LeaseLost,
    /// This execution has ended the operation before; the first end counts. Roll back.
    Twice,
    /// The engine's store is not one that such a transaction can reach. Roll back.
    WrongStore,
    /// It is a savepoint inside another transaction, whose commit is not the end. Commit the outer one.
    Savepoint,
    /// No transaction is open: SQLite has rolled it back by itself after an error that was not heeded.
    /// What was written since then is committed, and nobody knows what that is.
    NotOpen,
    /// The body of the answer broke off, or did not come at once. Roll back.
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
            Self::Savepoint => formatter.write_str(
                "this is a savepoint inside another transaction; propose the end with \
                 `complete_in` and commit the outer one",
            ),
            Self::NotOpen => formatter.write_str(
                "no transaction is open: SQLite has rolled it back by itself after an error, and \
                 what was written since then is committed already; heed the errors of statements",
            ),
            Self::AnswerBroke => formatter.write_str(
                "the body of the answer broke off or did not come at once, so that it cannot be \
                 kept; roll back",
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

impl CommitError {
    /// What an error inside the transaction means.
    fn inside(error: StoreError) -> Self {
        match error {
            StoreError::NotOpen(_) => Self::NotOpen,
            error => Self::NotCommitted(error),
        }
    }
}

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
