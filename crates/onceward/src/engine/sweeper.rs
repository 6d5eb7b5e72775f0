//! Deletes what is remembered longer than promised, in the background.

use std::{sync::Arc, time::Duration};

use onceward_core::Store;
use tokio::{task::JoinHandle, time::sleep};

use crate::telemetry::{self, Call, StoreAnswer, event};

/// Sweeps a store from time to time until it is dropped.
///
/// Records are deleted in batches, so that claims are never held up for long. Several processes may
/// sweep one store: a record is deleted once.
///
/// ```
/// use onceward::{Sweeper, store::memory::MemoryStore};
/// use std::{sync::Arc, time::Duration};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let store = Arc::new(MemoryStore::not_durable());
/// let sweeper = Sweeper::start(store, Duration::from_secs(60));
/// # drop(sweeper);
/// # }
/// ```
pub struct Sweeper {
    task: JoinHandle<()>,
}

impl Sweeper {
    /// How many records are deleted at once: a few milliseconds of a store's time.
    pub const BATCH: u32 = 1000;

    /// Starts sweeping, at once and then every `interval`, inside the current tokio runtime.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, interval: Duration) -> Self {
        Self { task: tokio::spawn(sweep_for_ever(store, interval)) }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sweep_for_ever(store: Arc<dyn Store>, interval: Duration) {
    loop {
        let begun = telemetry::Begun::now();
        let swept = store.sweep(Sweeper::BATCH).await;
        telemetry::count_call(Call::Sweep, begun, &swept, |deleted| {
            telemetry::SWEPT.add_many((), (*deleted).into());
            StoreAnswer::Ok
        });
        match swept {
            Ok(Sweeper::BATCH..) => tokio::task::yield_now().await,
            Ok(_) => sleep(interval).await,
            Err(error) => {
                tracing::warn!(event = event::NOT_SWEPT, %error, "nothing was swept; it is tried again");
                sleep(interval).await;
            }
        }
    }
}
