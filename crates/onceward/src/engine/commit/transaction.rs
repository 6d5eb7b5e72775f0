//! What the engine needs of a driver's transaction.

use std::future::Future;

use onceward_core::{Change, StoreError, Timestamp, Transactional};

/// A transaction of the user's own, in the database where the records are.
///
/// Implemented for `tokio_postgres::Transaction<'_>` (feature `postgres`), for that of
/// `deadpool_postgres` (feature `deadpool`), and with feature `sqlx` for `sqlx::Transaction<'_, Sqlite>`
/// and `sqlx::Transaction<'_, Postgres>`. The transactions of rusqlite cannot be sent between threads
/// and have methods of their own, whose names end in `_blocking`.
///
/// ```
/// use onceward::{CommitError, Ending, Engine, Outcome, protocol::Claim, engine::Transaction};
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

    /// Makes this change and commits, both sent at once; gives itself back if its driver cannot do so.
    ///
    /// Nothing may be committed if the change is not made, whatever the caller does then; and when
    /// the future is dropped, both are done or neither.
    fn commit_with(
        self,
        store: &Self::Store,
        change: &Change,
    ) -> impl Future<Output = Result<CommitOutcome, Self>> + Send
    where
        Self: Sized,
    {
        let _ = (store, change);
        async { Err(self) }
    }
}

/// What became of a change and a commit that were sent at once: see [`Transaction::commit_with`].
///
/// ```
/// use onceward::engine::CommitOutcome;
///
/// fn is_certain(together: &CommitOutcome) -> bool {
///     !matches!(together, CommitOutcome::Doubtful { .. })
/// }
/// assert!(is_certain(&CommitOutcome::Conflict), "nothing was committed");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitOutcome {
    /// Both are done.
    Committed {
        /// The store's time of the change.
        at: Timestamp,
        /// Whether that server's word alone is not enough: see [`Transactional::confirm`].
        must_be_confirmed: bool,
    },
    /// Something else is stored than the change expects; nothing was committed.
    Conflict,
    /// Another transaction that is still open holds the record; nothing was committed.
    Held,
    /// It is a savepoint inside another transaction; that one was rolled back.
    Savepoint,
    /// The change failed; nothing was committed.
    Failed(StoreError),
    /// The server did not answer: both may have been done.
    Doubtful {
        /// What came instead of an answer.
        error: StoreError,
        /// Whether the change was made, and only the commit has no answer: while that may come, the
        /// transaction holds the record.
        was_made: bool,
    },
}
