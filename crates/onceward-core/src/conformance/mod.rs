//! The executable meaning of [`Store`]: a suite that every backend runs unchanged.
//!
//! It needs no executor of its own. A backend gives a [`Bench`] and a function that runs a future to its
//! end, like that of tokio's runtime, and gets one `#[test]` for each rule:
//!
//! ```
//! onceward_core::store_conformance!(MyBench::new(), block_on);
//! onceward_core::inspect_conformance!(MyBench::new(), block_on); // if it has `Inspect` and `Trail`
//! onceward_core::spool_conformance!(MyBench::new(), block_on); // if it has `Spool`
//! ```
//!
//! For an outbox there are [`queue_conformance!`](crate::queue_conformance) with [`QueueBench`], and for an
//! inbox [`inbox_conformance!`](crate::inbox_conformance) with [`InboxBench`].
//!
//! A rule that is broken panics with a message that names it.

use alloc::{boxed::Box, format, vec::Vec};
use core::{
    future::{Future, poll_fn},
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use crate::{
    Admission, Claim, Digest, Effect, Ending, Execution, Fence, Fingerprint, Found, Key,
    OperationId, OperationName, Outcome, Record, Request, Scope, Settled, Settlement,
    SettlementStep, Step, Store, Stored, Terms, Timestamp, Ttl, Verdict,
};

mod admission;
mod claims;
mod inspect;
mod queue;
mod races;
mod resolve;
mod retention;
mod spool;

pub use admission::*;
pub use claims::*;
pub use inspect::*;
pub use queue::*;
pub use races::*;
pub use resolve::*;
pub use retention::*;
pub use spool::*;

/// What the suite needs from the author of a store.
pub trait Bench: Clone + Send + Sync + 'static {
    /// The store under test, cheap to clone: clones are the same store.
    type Store: Store + Clone;

    /// Opens an empty store.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Closes the store and opens it again, as a restart does; `None`: it forgets, and says so.
    fn reopen(&self, store: Self::Store) -> impl Future<Output = Option<Self::Store>> + Send;

    /// Moves all stored times of one record back, so that it is that much older.
    fn age(
        &self,
        store: &Self::Store,
        id: &Digest,
        by: Duration,
    ) -> impl Future<Output = ()> + Send;

    /// Runs a task beside the others, on real threads if there are any.
    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send;

    /// Asks whether a request may run; here by the bare protocol, elsewhere through a driver.
    fn admit(&self, store: &Self::Store, request: Request) -> impl Future<Output = Verdict> + Send {
        drive(store, Admission::new(request, fresh_fence(), Execution::from_bytes(fresh_bytes())))
    }

    /// Ends a claim; here by the bare protocol, elsewhere through a driver.
    fn settle(
        &self,
        store: &Self::Store,
        claim: &Claim,
        ending: Ending,
    ) -> impl Future<Output = Settled> + Send {
        drive_settlement(store, claim.settle(ending, fresh_fence()))
    }
}

/// Makes one `#[test]` for each rule of [`Store`].
///
/// ```
/// use onceward_core::store_conformance;
///
/// store_conformance!(MyBench::new(), block_on); // a `Bench`, and what runs a future to its end
/// ```
#[macro_export]
macro_rules! store_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::conformance_tests! { $bench, $block_on:
            first_request_claims_and_is_read_back
            duplicate_of_a_running_operation_is_busy
            ended_operations_are_replayed_verbatim
            other_fingerprint_is_a_mismatch_in_every_live_state
            retryable_failure_is_claimed_again
            released_key_binds_nothing
            expired_record_is_absent
            abandoned_external_effect_is_unknown
            abandoned_transactional_effect_is_taken_over
            abandoned_repeatable_effect_is_taken_over_only_within
            unknown_stays_unknown
            operations_differ_by_scope_name_and_key
            unknown_fingerprint_version_is_not_compared
            ending_a_claim_moves_its_fence
            fenced_off_owner_changes_nothing
            renewal_keeps_the_fence_and_restarts_the_lease
            late_truth_wins_over_unknown
            late_cause_replaces_an_older_one
            late_owner_settles_a_computed_unknown
            repeated_change_is_recognised_by_its_fence
            recognised_claim_past_its_lease_is_renewed_first
            rerun_of_a_repeatable_effect_cannot_release_the_key
            applied_resolution_ends_an_unknown_outcome
            never_resolution_frees_the_key_but_not_too_early
            resolution_of_a_running_operation_is_refused
            forced_resolution_fences_a_running_owner_off
            operators_release_gives_the_key_back
            release_of_what_may_have_happened_needs_force
            times_are_counted_by_the_stores_clock
            claim_long_past_its_lease_is_still_returned
            sweep_deletes_only_ended_records_past_the_margin
            sweep_keeps_to_its_limit
            records_survive_a_reopen
            large_records_are_kept_whole
            of_200_first_requests_one_runs
            of_200_claims_over_an_old_record_one_runs
            of_200_claims_during_a_sweep_one_runs
            of_200_settlements_one_is_stored
            of_owner_and_zombie_only_the_owner_settles
            distinct_operations_do_not_disturb_each_other
        }
    };
}

/// Makes one `#[test]` for each rule of [`Inspect`](crate::Inspect) and [`Trail`](crate::Trail).
///
/// ```
/// use onceward_core::inspect_conformance;
///
/// inspect_conformance!(MyBench::new(), block_on); // a `Bench`, and what runs a future to its end
/// ```
#[macro_export]
macro_rules! inspect_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::conformance_tests! { $bench, $block_on:
            list_shows_every_record_once_over_pages
            list_filters_by_what_a_record_means_now
            list_finds_a_key_in_every_scope_and_operation
            list_order_is_stable_while_records_come_and_change
            purge_deletes_only_ended_records
            trail_tells_exceptional_changes_only
        }
    };
}

/// Makes one `#[test]` for each rule of [`Spool`](crate::Spool).
///
/// ```
/// use onceward_core::spool_conformance;
///
/// spool_conformance!(MyBench::new(), block_on); // a `Bench`, and what runs a future to its end
/// ```
#[macro_export]
macro_rules! spool_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::conformance_tests! { $bench, $block_on:
            spooled_chunks_are_kept_by_operation_and_fence
            sweep_drops_chunks_with_their_record
        }
    };
}

/// What the macros above are made of.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($bench:expr, $block_on:path: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let bench = $bench;
                $block_on($crate::conformance::$case(&bench));
            }
        )*
    };
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const RETAIN: Duration = Duration::from_secs(24 * 3600);
pub(crate) const WITHIN: Duration = Duration::from_secs(12 * 3600);
pub(crate) const REPEATABLE: Effect = Effect::Repeatable { within: WITHIN };

/// A number that no other caller in this process gets.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Far apart, like random ones: an admission counts up from its first fence.
fn fresh_bytes() -> [u8; 16] {
    (u128::from(fresh()) << 64).to_be_bytes()
}

/// A fence that no other caller in this process gets.
#[must_use]
pub fn fresh_fence() -> Fence {
    Fence::from_random(fresh_bytes())
}

/// Makes operations that no other case uses, and requests for them.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The operation.
    pub operation: OperationId,
    /// Its terms.
    pub terms: Terms,
}

impl Sample {
    /// A new operation with this effect, lease 30 s, retention 24 h.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        let key = Key::new(&format!("key-{}", fresh())).expect("a valid key");
        Self { operation: operation("acme", "POST /charges", key), terms: terms(effect) }
    }

    /// The same operation on other terms.
    #[must_use]
    pub fn on(&self, terms: Terms) -> Self {
        Self { operation: self.operation.clone(), terms }
    }

    /// Its digest.
    #[must_use]
    pub fn id(&self) -> Digest {
        self.operation.digest()
    }

    /// A request for it; the letter stands for what it means.
    #[must_use]
    pub fn request(&self, meaning: u8) -> Request {
        let fingerprint = Fingerprint::from_parts(1, [meaning; 32]);
        Request {
            operation: self.operation.clone(),
            fingerprints: fingerprint.into(),
            terms: self.terms,
        }
    }

    pub(crate) fn admission(&self, meaning: u8) -> Admission {
        let execution = Execution::from_bytes(fresh_bytes());
        Admission::new(self.request(meaning), fresh_fence(), execution)
    }
}

pub(crate) fn operation(tenant: &str, name: &str, key: Key) -> OperationId {
    let scope = Scope::of("tenant", tenant).expect("a valid scope");
    OperationId::new(scope, OperationName::new(name).expect("a valid name"), key)
}

pub(crate) fn terms(effect: Effect) -> Terms {
    Terms::of(effect).lease(LEASE).retain(RETAIN).build().expect("valid terms")
}

/// An answer that shows whether it was kept verbatim: repeated header lines, trailers, any bytes.
#[must_use]
pub fn answer(status: u16) -> Outcome {
    Outcome::inline(status, Vec::from(*b"{\"id\":\0\xff}"))
        .header("set-thing", b"a")
        .header("other", b"\xff\xfe")
        .header("set-thing", b"b")
        .trailer("sum", b"\xff")
        .trailer("sum", b"")
}

/// The ways in which an operation may have ended, with the retention of each.
pub(crate) fn endings() -> [Ending; 3] {
    [Ending::Succeeded(answer(201)), Ending::FailedFinal(answer(402)), Ending::FailedRetryable]
}

pub(crate) async fn ask<B: Bench>(
    bench: &B,
    store: &B::Store,
    sample: &Sample,
    meaning: u8,
) -> Verdict {
    bench.admit(store, sample.request(meaning)).await
}

pub(crate) async fn drive<S: Store>(store: &S, mut admission: Admission) -> Verdict {
    loop {
        let swap = store.swap(admission.change()).await.expect("the store answers");
        match admission.next(swap) {
            Step::Swap(next) => admission = next,
            Step::Done(verdict) => return verdict,
            Step::Newer { version } => panic!("fingerprint version {version} is unknown"),
        }
    }
}

#[track_caller]
pub(crate) fn run(verdict: Verdict) -> Claim {
    match verdict {
        Verdict::Run(claim) => claim,
        other => panic!("expected to run, got {other:?}"),
    }
}

async fn drive_settlement<S: Store>(store: &S, mut settlement: Settlement) -> Settled {
    loop {
        let swap = store.swap(settlement.change()).await.expect("the store answers");
        match settlement.next(swap) {
            SettlementStep::Swap(next) => settlement = next,
            SettlementStep::Done(settled) => return settled,
        }
    }
}

pub(crate) async fn claim<B: Bench>(bench: &B, store: &B::Store, sample: &Sample) -> Claim {
    run(ask(bench, store, sample, b'a').await)
}

/// Claims and ends an operation in one go.
pub(crate) async fn ended<B: Bench>(
    bench: &B,
    store: &B::Store,
    sample: &Sample,
    ending: Ending,
) -> Claim {
    let claim = claim(bench, store, sample).await;
    let settled = bench.settle(store, &claim, ending).await;
    assert!(matches!(settled, Settled::Stored { .. }), "the owner settles: {settled:?}");
    claim
}

pub(crate) async fn read<S: Store>(store: &S, id: &Digest) -> Box<Stored> {
    match store.get(id).await.expect("the store answers") {
        Found::Record(stored) => stored,
        other => panic!("expected a record, found {other:?}"),
    }
}

/// What is stored apart from the moment of reading: equal before and after what changes nothing.
pub(crate) async fn essence<S: Store>(store: &S, id: &Digest) -> Essence {
    let stored = read(store, id).await;
    // Once it is over, the store tells only that.
    let expires_at = stored.expires_at().filter(|_| !stored.record.ttl.is_over());
    (Record { ttl: Ttl::Never, ..stored.record }, stored.updated_at, expires_at)
}

pub(crate) type Essence = (Record, Timestamp, Option<Timestamp>);

pub(crate) async fn is_absent<S: Store>(store: &S, id: &Digest) -> bool {
    store.get(id).await.expect("the store answers") == Found::Nothing
}

/// Runs all tasks beside each other and collects what they return.
pub(crate) async fn gather<B: Bench, T: Send + 'static, F>(
    bench: &B,
    tasks: impl IntoIterator<Item = F>,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    all_of(tasks.into_iter().map(|task| bench.spawn(task))).await
}

/// Waits for all tasks, which began together, and collects what they return.
pub(crate) async fn all_of<T>(tasks: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = tasks.into_iter().map(|task| (Box::pin(task), None)).collect();
    poll_fn(|context| {
        for (task, result) in &mut running {
            if result.is_none()
                && let Poll::Ready(value) = task.as_mut().poll(context)
            {
                *result = Some(value);
            }
        }
        match running.iter().all(|(_, result)| result.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}
