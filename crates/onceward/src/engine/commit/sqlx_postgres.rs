//! Transactions of sqlx on PostgreSQL.

use onceward_core::{Change, StoreError};
use sqlx::{PgConnection, Postgres};

use super::{CommitOutcome, Transaction};
use crate::store::postgres::{PostgresStore, depth, sqlx_commit_error};

impl Transaction for sqlx::Transaction<'_, Postgres> {
    type Connection = PgConnection;
    type Store = PostgresStore;

    fn connection(&mut self) -> &mut PgConnection {
        self
    }

    fn is_outermost(&self) -> bool {
        depth(self) <= 1
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.commit().await.map_err(|error| sqlx_commit_error(&error))
    }

    /// Two round trips, because this driver waits for each answer; but what the first one tells of the
    /// server is heeded.
    async fn commit_with(
        self,
        store: &PostgresStore,
        change: &Change,
    ) -> Result<CommitOutcome, Self> {
        store.swap_then_commit(self, change).await
    }
}
