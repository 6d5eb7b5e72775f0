//! The end of a claim in the user's own transaction: effect and record live and die together.
//!
//! [`Engine::settle_in`] only proposes: the transaction's commit decides. [`Engine::commit`] is both.
//! A commit whose answer is an error is not repeated and not guessed about: the claim is renewed, and
//! what that meets tells.

#[cfg(feature = "sqlite")]
mod blocking;
#[cfg(feature = "deadpool")]
mod deadpool;
mod error;
#[cfg(all(feature = "sqlx", feature = "postgres"))]
mod sqlx_postgres;
#[cfg(all(feature = "sqlx", feature = "sqlite"))]
mod sqlx_sqlite;
#[cfg(feature = "postgres")]
mod tokio_postgres;
mod transaction;

use std::{ops::ControlFlow, time::Duration};

use onceward_core::{
    Admission, Claim, Ending, Fence, Found, Request, Settled, Settlement, SettlementStep, State,
    Step, Store, StoreError, Swap, Timestamp, Transactional as _, Verdict,
};
use tokio::time::timeout;

#[cfg(all(feature = "sqlite", feature = "tower"))]
pub(crate) use blocking::rolled_back_unless_ok;
pub use error::CommitError;
#[cfg(feature = "postgres")]
pub(crate) use error::is_refusal;
pub use transaction::{CommitOutcome, Transaction};

use super::{Pause, fresh_execution, fresh_fence, held, injected, newer_fingerprint};
use crate::{Engine, crashpoint, telemetry};

/// A commit without an answer.
struct DoubtfulCommit {
    error: StoreError,
    /// Whether the change before it was answered.
    was_made: bool,
}

/// A commit with an answer.
struct Committed {
    /// The store's time of the end, if the store gave it with the commit.
    at: Option<Timestamp>,
    must_be_confirmed: bool,
}

impl Engine {
    /// Proposes the end of a claim inside the user's transaction, whose commit decides.
    ///
    /// After an error the transaction must be rolled back: the claim may be over, and then another
    /// execution has the right to the effect.
    ///
    #[cfg_attr(all(feature = "sqlx", feature = "sqlite"), doc = "```")]
    #[cfg_attr(not(all(feature = "sqlx", feature = "sqlite")), doc = "```ignore")]
    /// # use onceward::{*, store::sqlite::SqliteStore, protocol::*};
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
    /// hold of it comes back only until the next commit. Dropping the future leaves the
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

    /// Gives the store's time of the end, if the store gave it with the commit;
    /// otherwise the caller must read what was committed.
    pub(crate) async fn commit_with<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: T,
        settlement: Settlement,
    ) -> Result<Option<Timestamp>, CommitError> {
        let (store, fence) = (self.store_of::<T::Store>()?, settlement.change().next.fence);
        let committed = match transaction.commit_with(store, settlement.change()).await {
            Ok(together) => self.judge_together(together, claim, settlement).await?,
            Err(transaction) => self.commit_after(claim, transaction, settlement).await?,
        };
        let committed = match committed {
            Ok(committed) => committed,
            Err(doubt) => {
                self.find_out(claim, fence, doubt).await?;
                Committed { at: None, must_be_confirmed: true }
            }
        };
        if committed.must_be_confirmed {
            store.confirm(&claim.id(), fence).await.map_err(CommitError::Doubtful)?;
        }
        Ok(committed.at)
    }

    /// For drivers that wait for one answer before they send the next statement.
    async fn commit_after<T: Transaction>(
        &self,
        claim: &Claim,
        mut transaction: T,
        settlement: Settlement,
    ) -> Result<Result<Committed, DoubtfulCommit>, CommitError> {
        self.propose_in(claim, &mut transaction, settlement).await?;
        // Not before: a savepoint that was dropped is rolled back by the next statement.
        if !transaction.is_outermost() {
            return Err(CommitError::Savepoint);
        }
        let committed = crashpoint!("own.commit", transaction.commit().await, injected());
        // Not every driver tells a savepoint from a transaction.
        let done = Committed { at: None, must_be_confirmed: true };
        Ok(committed.map(|()| done).map_err(|error| DoubtfulCommit { error, was_made: true }))
    }

    /// What a change and a commit that were sent at once have become.
    async fn judge_together(
        &self,
        together: CommitOutcome,
        claim: &Claim,
        settlement: Settlement,
    ) -> Result<Result<Committed, DoubtfulCommit>, CommitError> {
        let swap = match together {
            CommitOutcome::Committed { at, must_be_confirmed } => {
                return Ok(Ok(Committed { at: Some(at), must_be_confirmed }));
            }
            CommitOutcome::Doubtful { error, was_made } => {
                return Ok(Err(DoubtfulCommit { error, was_made }));
            }
            CommitOutcome::Savepoint => return Err(CommitError::Savepoint),
            CommitOutcome::Failed(error) => return Err(CommitError::inside(error)),
            CommitOutcome::Held => Swap::Held,
            // The transaction is over; only the store can still be asked what it met.
            CommitOutcome::Conflict => {
                match timeout(Self::SETTLE_PATIENCE, self.store().get(&claim.id())).await {
                    Ok(Ok(found)) => Swap::Conflict(found),
                    Ok(Err(_)) | Err(_) => return Err(CommitError::LeaseLost),
                }
            }
        };
        match answered(claim, settlement, Ok(swap))? {
            ControlFlow::Break(at) => Ok(Ok(Committed { at: Some(at), must_be_confirmed: true })),
            ControlFlow::Continue(_) => {
                let text = "the outcome was declared unknown meanwhile, or the record was held";
                Err(CommitError::NotCommitted(StoreError::Unavailable(text.to_owned())))
            }
        }
    }

    pub(crate) async fn propose_in<T: Transaction>(
        &self,
        claim: &Claim,
        transaction: &mut T,
        mut settlement: Settlement,
    ) -> Result<(), CommitError> {
        let store = self.store_of::<T::Store>()?;
        loop {
            let (connection, change) = (transaction.connection(), settlement.change());
            let swap = crashpoint!("own.swap", store.swap_in(connection, change).await, injected());
            match answered(claim, settlement, swap)? {
                ControlFlow::Continue(next) => settlement = next,
                ControlFlow::Break(_) => return Ok(()),
            }
        }
    }

    /// Asks inside the user's transaction whether a request may run: claim, effect and end in one
    /// commit. After another verdict than [`Verdict::Run`] the caller must roll back.
    ///
    /// A claim that another open transaction is about to make is waited for no longer than
    /// `patience`, and then the verdict is [`Verdict::Busy`]. No other transaction sees the claim before
    /// the commit, so that it need not be renewed; a rollback leaves nothing of it. Not on SQLite, where
    /// an open transaction would keep all others from writing.
    ///
    /// ```
    /// # use onceward::{*, engine::Transaction, protocol::*};
    /// use std::time::Duration;
    ///
    /// /// `None`: another execution runs it, or has.
    /// async fn pay<T: Transaction>(engine: &Engine, request: Request, mut shop: T) -> Result<Option<()>, CommitError> {
    ///     let patience = Duration::from_millis(50);
    ///     let Verdict::Run(claim) = engine.admit_in(request, &mut shop, patience).await? else { return Ok(None) };
    ///     // … the effect, on the same transaction …
    ///     let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    ///     engine.commit(&claim, shop, paid).await.map(Some)
    /// }
    /// ```
    pub async fn admit_in<T: Transaction>(
        &self,
        request: Request,
        transaction: &mut T,
        patience: Duration,
    ) -> Result<Verdict, CommitError> {
        let store = self.store_of::<T::Store>()?;
        let mut admission = Admission::new(request, fresh_fence(), fresh_execution());
        loop {
            let (connection, change) = (transaction.connection(), admission.change());
            let swap = store.claim_in(connection, change, patience).await;
            match admission.next(swap.map_err(CommitError::inside)?) {
                Step::Swap(next) => admission = next,
                Step::Newer { version } => {
                    return Err(CommitError::NotCommitted(newer_fingerprint(version)));
                }
                Step::Done(verdict) => {
                    if let Verdict::Run(claim) = &verdict {
                        telemetry::CLAIMS.add(telemetry::Claimed::of(claim));
                    }
                    return Ok(verdict);
                }
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
        doubt: DoubtfulCommit,
    ) -> Result<(), CommitError> {
        match timeout(Self::SETTLE_PATIENCE, self.renewed_or_met(claim)).await {
            Ok(Ok(swap)) => judge(claim, fence, swap, doubt),
            Ok(Err(_)) | Err(_) => Err(CommitError::Doubtful(doubt.error)),
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
/// If the change was made inside the transaction, a renewal that is stored proves that it was not, now and
/// for ever: the transaction held the record while it lived, and what the log may have held of it is
/// overwritten. A change without an answer may still be on its way, and a renewal keeps the fence that
/// it expects.
///
/// A record of another execution is there because that one took over, unless it is older than this claim: then the
/// claim itself was made in the transaction, which may still be under way.
fn judge(
    claim: &Claim,
    fence: Fence,
    renewed: Swap,
    doubt: DoubtfulCommit,
) -> Result<(), CommitError> {
    let DoubtfulCommit { error, was_made } = doubt;
    match renewed {
        Swap::Stored { .. } if was_made => Err(CommitError::NotCommitted(error)),
        Swap::Conflict(Found::Record(stored)) if stored.record.fence == fence => Ok(()),
        Swap::Conflict(Found::Unreadable { fence: found, .. }) if found == fence => Ok(()),
        Swap::Conflict(Found::Record(stored))
            if stored.record.execution != claim.execution()
                && stored.updated_at > claim.claimed_at() =>
        {
            Err(CommitError::LeaseLost)
        }
        Swap::Stored { .. } | Swap::Conflict(_) | Swap::Held => Err(CommitError::Doubtful(error)),
    }
}

/// Takes the store's answer to a settlement inside the transaction: it is made, or it goes on.
fn answered(
    claim: &Claim,
    settlement: Settlement,
    swap: Result<Swap, StoreError>,
) -> Result<ControlFlow<Timestamp, Settlement>, CommitError> {
    let swap = swap.map_err(CommitError::inside)?;
    if swap == Swap::Held {
        return Err(CommitError::NotCommitted(held()));
    }
    match settlement.next(swap) {
        SettlementStep::Swap(settlement) => Ok(ControlFlow::Continue(settlement)),
        SettlementStep::Done(Settled::Stored { at }) => Ok(ControlFlow::Break(at)),
        SettlementStep::Done(Settled::FencedOff(Found::Record(stored)))
            if stored.record.execution == claim.execution()
                && stored.record.state != State::InProgress =>
        {
            Err(CommitError::Twice)
        }
        SettlementStep::Done(Settled::FencedOff(_)) => Err(CommitError::LeaseLost),
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::{
        Admission, Claim, Effect, Execution, Fence, Fingerprint, Found, Key, OperationId,
        OperationName, Record, Request, Scope, Step, StoreError, Stored, Swap, Terms, Timestamp,
        Verdict,
    };

    use super::{CommitError, DoubtfulCommit, judge};

    const CLAIMED_AT: Timestamp = Timestamp::from_unix_micros(1_000_000);

    fn claim(number: u8) -> (Claim, Record) {
        let name = OperationName::new("pay").expect("a name");
        let key = Key::new("k").expect("a key");
        let request = Request {
            operation: OperationId::new(Scope::global(), name, key),
            fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
            terms: Terms::of(Effect::Transactional).build().expect("terms"),
        };
        let fence = Fence::from_random([number; 16]);
        let admission = Admission::new(request, fence, Execution::from_bytes([number; 16]));
        let record = admission.change().next.clone();
        match admission.next(Swap::Stored { at: CLAIMED_AT }) {
            Step::Done(Verdict::Run(claim)) => (claim, record),
            other => panic!("it does not run: {other:?}"),
        }
    }

    fn classified(renewed: Swap, was_made: bool) -> Result<(), CommitError> {
        let doubt = DoubtfulCommit { error: lost(), was_made };
        judge(&claim(1).0, Fence::from_random([9; 16]), renewed, doubt)
    }

    fn lost() -> StoreError {
        StoreError::Unavailable("lost".to_owned())
    }

    fn met(record: Record, updated_at: Timestamp) -> Swap {
        let stored = Stored { record, updated_at, read_at: updated_at, suspect: false };
        Swap::Conflict(Found::Record(Box::new(stored)))
    }

    #[test]
    fn a_renewal_proves_that_nothing_was_committed_only_if_the_end_was_made() {
        let renewed = Swap::Stored { at: CLAIMED_AT };
        assert_eq!(classified(renewed.clone(), true), Err(CommitError::NotCommitted(lost())));
        assert_eq!(classified(renewed, false), Err(CommitError::Doubtful(lost())));
    }

    #[test]
    fn the_record_of_another_is_a_take_over_only_if_it_is_newer_than_the_claim() {
        let later = Timestamp::from_unix_micros(1_000_001);
        for was_made in [true, false] {
            assert_eq!(classified(met(claim(2).1, later), was_made), Err(CommitError::LeaseLost));
            let older = classified(met(claim(2).1, CLAIMED_AT), was_made);
            assert_eq!(older, Err(CommitError::Doubtful(lost())), "the claim is not committed yet");
            let committed = Record { fence: Fence::from_random([9; 16]), ..claim(1).1 };
            assert_eq!(classified(met(committed, later), was_made), Ok(()));
            let nothing = classified(Swap::Conflict(Found::Nothing), was_made);
            assert_eq!(nothing, Err(CommitError::Doubtful(lost())));
        }
    }
}
