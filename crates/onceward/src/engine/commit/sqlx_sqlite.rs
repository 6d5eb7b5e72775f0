//! Transactions of sqlx on SQLite.

use onceward_core::StoreError;
use sqlx::{Sqlite, SqliteConnection};

use super::Transaction;
use crate::store::sqlite::{OwnTransaction, SqliteStore, commit_error, depth};

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
