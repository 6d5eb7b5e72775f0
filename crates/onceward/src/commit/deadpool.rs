//! Transactions of deadpool-postgres, which wrap those of tokio-postgres.

use deadpool_postgres::Transaction as PooledTransaction;
use onceward_core::{Change, StoreError};
use tokio_postgres::Transaction as PgTransaction;

use super::{CommitError, CommitOutcome, Transaction, tokio_postgres::LAST_OF_MANY};
use crate::stores::postgres::{PostgresStore, commit_error};

impl<'t> Transaction for PooledTransaction<'t> {
    type Connection = PgTransaction<'t>;
    type Store = PostgresStore;

    fn connection(&mut self) -> &mut PgTransaction<'t> {
        self
    }

    /// The driver does not tell; the store does: see [`CommitOutcome::Savepoint`].
    fn is_outermost(&self) -> bool {
        true
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.commit().await.map_err(|error| commit_error(&error))
    }

    async fn commit_with(
        self,
        store: &PostgresStore,
        change: &Change,
    ) -> Result<CommitOutcome, Self> {
        let together = store.swap_and_commit(self.client(), change, LAST_OF_MANY).await;
        together.ok_or(self)
    }
}

/// The effect failed before it came to a commit: nothing was committed.
impl From<deadpool_postgres::PoolError> for CommitError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}
