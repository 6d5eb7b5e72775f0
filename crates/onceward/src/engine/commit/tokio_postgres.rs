//! Transactions of tokio-postgres: the end of a claim and the commit go in one round trip.

use std::time::Duration;

use onceward_core::{Change, Request, StoreError, Verdict};
use tokio_postgres::{Client, Transaction as PgTransaction};

use super::{CommitError, CommitOutcome, Engine, Transaction, is_refusal};
use crate::store::postgres::{OwnTransaction, PostgresStore, commit_error};

/// Commits and begins another one, which is empty and is rolled back when the driver's transaction is
/// dropped. That one knows of no commit but its own, and would end a transaction that is not there; and
/// it may be a savepoint, after which its outer transaction must not go on without one.
pub(super) const LAST_OF_MANY: &str = "COMMIT AND CHAIN";

/// Transactions that are the driver's own, or wrap one.
macro_rules! driver_transaction {
    ($driver:ident) => {
        impl<'t> Transaction for $driver<'t> {
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
    };
}
#[cfg(feature = "deadpool")]
pub(super) use driver_transaction;

driver_transaction!(PgTransaction);

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

    async fn commit_with(
        mut self,
        store: &PostgresStore,
        change: &Change,
    ) -> Result<CommitOutcome, Self> {
        let together = store.swap_and_commit(&self, change, "COMMIT").await;
        // After a failure nothing may have been sent, and then it is still to be rolled back.
        if !matches!(together, None | Some(CommitOutcome::Failed(_))) {
            self.is_over();
        }
        together.ok_or(self)
    }
}

impl Engine {
    /// Begins a transaction on this connection with a claim, in one round trip: see
    /// [`admit_in`](Self::admit_in).
    ///
    /// ```
    /// # use onceward::{*, protocol::*};
    /// use std::time::Duration;
    /// use tokio_postgres::Client;
    ///
    /// /// Three round trips: the claim, the effect, the end.
    /// async fn pay(engine: &Engine, request: Request, shop: &mut Client) -> Result<Option<()>, CommitError> {
    ///     let (shop, verdict) = engine.begin_in(request, shop, Duration::from_millis(50)).await?;
    ///     let Verdict::Run(claim) = verdict else { return Ok(None) };
    ///     shop.execute("INSERT INTO charge (cents) VALUES (500)", &[]).await?;
    ///     let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    ///     engine.commit(&claim, shop, paid).await.map(Some)
    /// }
    /// ```
    pub async fn begin_in<'c>(
        &self,
        request: Request,
        client: &'c mut Client,
        patience: Duration,
    ) -> Result<(OwnTransaction<'c>, Verdict), CommitError> {
        let mut transaction = OwnTransaction::new(client);
        let verdict = self.admit_in(request, &mut transaction, patience).await?;
        Ok((transaction, verdict))
    }
}

/// Nothing was committed if the server says so. An error that is not its word may be that of a commit,
/// and then it is in doubt.
impl From<tokio_postgres::Error> for CommitError {
    fn from(error: tokio_postgres::Error) -> Self {
        let is_certain = error.code().is_some_and(|code| is_refusal(code.code()));
        let error = StoreError::Unavailable(crate::store::postgres::describe(&error));
        match is_certain {
            true => Self::NotCommitted(error),
            false => Self::Doubtful(error),
        }
    }
}
