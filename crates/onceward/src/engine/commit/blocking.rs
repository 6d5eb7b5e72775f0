//! Transactions of rusqlite, where blocking is allowed.

use std::ops::ControlFlow;

use onceward_core::{Claim, Ending, Settlement};

use super::{CommitError, DoubtfulCommit, Engine, answered, judge};
use crate::{
    crashpoint,
    engine::{fresh_fence, injected},
    store::sqlite::{BlockingTransaction, SqliteStore},
    telemetry,
};

impl Engine {
    /// [`settle_in`](Self::settle_in) for a transaction of rusqlite.
    ///
    /// ```
    /// # use onceward::{*, store::sqlite::SqliteStore, protocol::*};
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
            Ok(swap) => judge(claim, fence, swap, DoubtfulCommit { error, was_made: true }),
            Err(_) => Err(CommitError::Doubtful(error)),
        }
    }

    pub(crate) fn propose_in_blocking(
        &self,
        claim: &Claim,
        transaction: &impl BlockingTransaction,
        mut settlement: Settlement,
    ) -> Result<(), CommitError> {
        let store = self.store_of::<SqliteStore>()?;
        loop {
            let (connection, change) = (transaction.connection(), settlement.change());
            let swap =
                crashpoint!("own.swap", store.swap_in_blocking(connection, change), injected());
            match answered(claim, settlement, swap)? {
                ControlFlow::Continue(next) => settlement = next,
                ControlFlow::Break(_) => return Ok(()),
            }
        }
    }
}

/// A transaction of rusqlite may be set to commit when it is dropped.
pub(crate) fn rolled_back_unless_ok<T>(
    transaction: &impl BlockingTransaction,
    result: Result<T, CommitError>,
) -> Result<T, CommitError> {
    if result.is_err() {
        roll_back(transaction);
    }
    result
}

fn roll_back(transaction: &impl BlockingTransaction) {
    let connection = transaction.connection();
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(event = telemetry::event::NOT_ROLLED_BACK, %error, "a transaction could not be rolled back; it ends with its connection");
    }
}
