//! Transactions of sqlx on PostgreSQL.

use onceward_core::StoreError;
use sqlx::{PgConnection, Postgres};

use super::Transaction;
use crate::stores::postgres::{PostgresStore, depth, sqlx_commit_error};

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
}
