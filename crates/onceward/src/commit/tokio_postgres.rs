//! Transactions of tokio-postgres: the end of a claim and the commit go in one round trip.

use onceward_core::{Change, StoreError};
use tokio_postgres::Transaction as PgTransaction;

use super::{CommitError, Together, Transaction};
use crate::stores::postgres::{OwnTransaction, PostgresStore, commit_error};

/// Commits and begins another one, which is empty and is rolled back when the driver's transaction is
/// dropped. That one knows of no commit but its own, and would end a transaction that is not there; and
/// it may be a savepoint, after which its outer transaction must not go on without one.
pub(super) const LAST_OF_MANY: &str = "COMMIT AND CHAIN";

impl<'t> Transaction for PgTransaction<'t> {
    type Connection = Self;
    type Store = PostgresStore;

    fn connection(&mut self) -> &mut Self {
        self
    }

    /// The driver does not tell; the store does: see [`Together::Savepoint`].
    fn is_outermost(&self) -> bool {
        true
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.commit().await.map_err(|error| commit_error(&error))
    }

    async fn commit_with(self, store: &PostgresStore, change: &Change) -> Result<Together, Self> {
        let together = store.swap_and_commit(self.client(), change, LAST_OF_MANY).await;
        together.ok_or(self)
    }
}

impl<'c> Transaction for OwnTransaction<'c> {
    type Connection = Self;
    type Store = PostgresStore;

    fn connection(&mut self) -> &mut Self {
        self
    }

    fn is_outermost(&self) -> bool {
        true
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.commit().await.map_err(|error| commit_error(&error))
    }

    async fn commit_with(self, store: &PostgresStore, change: &Change) -> Result<Together, Self> {
        // In this order: from here on there is nothing to roll back.
        let together = store.swap_and_commit(self.begun(), change, "COMMIT").await;
        together.ok_or(self)
    }
}

/// The effect failed before it came to a commit: nothing was committed.
impl From<tokio_postgres::Error> for CommitError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::NotCommitted(StoreError::Unavailable(crate::stores::postgres::describe(&error)))
    }
}
