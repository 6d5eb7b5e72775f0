//! The driver part of the conformance suite, and the faulty stores that it runs over.
//!
//! The rules of [`onceward_core::conformance`] are run once more, unchanged, with every admission
//! and every settlement going through the [`Engine`](crate::Engine): over the store itself, over one
//! that [fails calls](Faulty::FailsCalls), over one that does the work and then
//! [loses the reply](Faulty::LosesReplies), and over one whose records others
//! [hold](Faulty::HoldsRecords) at times. On top come the rules of the drivers themselves.
//!
//! ```
//! use std::{future::Future, sync::Arc, time::Duration};
//! use onceward::{conformance::*, protocol::{Digest, conformance::{self, Bench}}, store::memory::MemoryStore};
//!
//! #[derive(Clone)]
//! struct MyBench;
//!
//! impl Bench for MyBench {
//!     type Store = Arc<MemoryStore>;
//!
//!     async fn open(&self) -> Self::Store {
//!         Arc::new(MemoryStore::not_durable())
//!     }
//!     async fn reopen(&self, _: Self::Store) -> Option<Self::Store> {
//!         None // it forgets
//!     }
//!     async fn age(&self, store: &Self::Store, id: &Digest, by: Duration) {
//!         store.age(id, by);
//!     }
//!     fn spawn<T: Send + 'static>(
//!         &self,
//!         task: impl Future<Output = T> + Send + 'static,
//!     ) -> impl Future<Output = T> + Send {
//!         spawn(task)
//!     }
//! }
//!
//! onceward::driver_conformance!(MyBench, block_on); // a test for each rule
//!
//! // By hand: one rule of stores, over a store that loses replies.
//! let bench = Driven::over(MyBench, Some(Faulty::LosesReplies));
//! block_on(conformance::unknown_stays_unknown(&bench));
//! ```

use std::future::Future;

mod cases;
mod driven;
mod faulty;

pub use cases::*;
pub use driven::Driven;
pub use faulty::{Faulty, FaultyStore};

/// Runs one case on a new runtime with several threads.
///
/// # Panics
///
/// If the operating system gives no threads.
pub fn block_on<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Runtime::new().expect("the operating system gives threads");
    runtime.block_on(case)
}

/// Starts a task of a case on that runtime, for [`Bench::spawn`](onceward_core::conformance::Bench).
pub fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    let task = tokio::spawn(task);
    async { task.await.expect("a task of a case that panics fails the case") }
}

/// Makes one `#[test]` for each rule of stores, through the drivers, and for each rule of these.
///
/// ```
/// use onceward::conformance::block_on;
///
/// onceward::driver_conformance!(MyBench, block_on); // see the page of `onceward::conformance`
/// ```
#[macro_export]
macro_rules! driver_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::driven_store_conformance! { $bench, $block_on:
            driven = None,
            driven_over_failed_calls = Some(onceward::conformance::Faulty::FailsCalls),
            driven_over_lost_replies = Some(onceward::conformance::Faulty::LosesReplies),
            driven_over_held_records = Some(onceward::conformance::Faulty::HoldsRecords),
        }
        mod driver {
            use super::*;
            onceward::driver_conformance_tests! { $bench, $block_on:
                settlement_outlives_its_caller
                settlement_is_retried_until_the_store_is_back
                settlement_is_acknowledged_only_when_durable
                dropped_admission_gives_its_claim_back
                admission_without_answer_gives_its_claim_back
                claim_that_lands_late_is_given_back
                definite_error_is_not_repeated
                lost_renewal_is_told
                drain_waits_for_settlements
                drain_gives_up_after_its_patience
            }
        }
    };
}

/// What the macro above is made of: the rules of stores.
#[doc(hidden)]
#[macro_export]
macro_rules! driven_store_conformance {
    ($bench:expr, $block_on:path: $($name:ident = $faulty:expr,)*) => {
        $(mod $name {
            use super::*;
            onceward::protocol::store_conformance!(
                onceward::conformance::Driven::over($bench, $faulty),
                $block_on
            );
        })*
    };
}

/// What the macro above is made of: the rules of drivers.
#[doc(hidden)]
#[macro_export]
macro_rules! driver_conformance_tests {
    ($bench:expr, $block_on:path: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let bench = $bench;
                $block_on(onceward::conformance::$case(&bench));
            }
        )*
    };
}
