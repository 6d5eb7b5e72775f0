//! Transactions of deadpool-postgres, which wrap those of tokio-postgres.

use deadpool_postgres::Transaction as PooledTransaction;
use onceward_core::{Change, StoreError};
use tokio_postgres::Transaction as PgTransaction;

use super::{
    CommitError, CommitOutcome, Transaction,
    tokio_postgres::{LAST_OF_MANY, driver_transaction},
};
use crate::store::postgres::{PostgresStore, commit_error};

driver_transaction!(PooledTransaction);

/// The effect failed before it came to a commit: nothing was committed.
impl From<deadpool_postgres::PoolError> for CommitError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}
