//! One call to the store, and the same change again when it gave no answer.

use std::{future::Future, time::Duration};

#[cfg(feature = "tower")]
use onceward_core::Found;
use onceward_core::{Change, Execution, Fence, StoreError, Swap};
use tokio::time::{sleep, timeout};

use super::Engine;
use crate::{
    crashpoint,
    telemetry::{self, Call, StoreAnswer},
};

impl Engine {
    /// A definite error means that no try has left anything behind. After one that may have, a record
    /// that is held may be held by that very try.
    pub(crate) async fn propose(&self, change: &Change) -> Result<Swap, StoreError> {
        let mut pause = Pause::default();
        let mut doubtful = None;
        for tries in 1.. {
            match (self.call(change).await, doubtful.take()) {
                (Ok(Swap::Held), Some(error)) => doubtful = Some(error),
                (Ok(swap), _) => return Ok(swap),
                (Err(error), before) if error.is_definite() => return Err(before.unwrap_or(error)),
                (Err(error), _) => doubtful = Some(error),
            }
            if tries >= Self::MAX_TRIES {
                break;
            }
            pause.wait().await;
        }
        Err(doubtful.expect("only doubt leads to another try"))
    }

    pub(super) async fn call(&self, change: &Change) -> Result<Swap, StoreError> {
        let swap = self.timed(Call::Swap, self.store.swap(change), |swap| match swap {
            Swap::Stored { .. } => StoreAnswer::Ok,
            Swap::Conflict(_) | Swap::Held => StoreAnswer::Conflict,
        });
        crashpoint!("store.swap", swap.await, injected())
    }

    /// Reads one record, within the time that one call to the store may take.
    #[cfg(feature = "tower")]
    pub(crate) async fn read(&self, id: &onceward_core::Digest) -> Result<Found, StoreError> {
        let get = self.bounded(Call::Get, self.store.get(id));
        crashpoint!("store.get", get.await, injected())
    }

    /// A store that hangs counts as failing.
    #[cfg(feature = "tower")]
    pub(crate) async fn bounded<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.timed(call, answer, |_| StoreAnswer::Ok).await
    }

    async fn timed<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, StoreError>>,
        said: impl FnOnce(&T) -> StoreAnswer,
    ) -> Result<T, StoreError> {
        let begun = telemetry::Begun::now();
        let answer = timeout(self.call_timeout, answer).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no answer within {:?}", self.call_timeout)))
        });
        telemetry::count_call(call, begun, &answer, said);
        answer
    }
}

pub(crate) fn held() -> StoreError {
    StoreError::Unavailable("another transaction that is still open holds the record".to_owned())
}

/// The pauses between tries: doubling from 4 ms to 1 s, jittered so that callers do not march.
#[derive(Default)]
pub(crate) struct Pause {
    tries: u32,
}

impl Pause {
    pub(crate) async fn wait(&mut self) {
        let ceiling_ms = (4 << self.tries.min(8)).min(1000);
        self.tries += 1;
        sleep(Duration::from_millis(fastrand::u64(ceiling_ms / 2..=ceiling_ms))).await;
    }
}

pub(crate) fn newer_fingerprint(version: u8) -> StoreError {
    StoreError::Newer(format!("a record has fingerprint version {version}; finish the upgrade"))
}

/// What a crash test makes of a step.
pub(crate) fn injected() -> StoreError {
    StoreError::Unavailable("a crash test injected this error".to_owned())
}

pub(crate) fn fresh_fence() -> Fence {
    Fence::from_random(uuid::Uuid::new_v4().into_bytes())
}

pub(crate) fn fresh_execution() -> Execution {
    Execution::from_bytes(uuid::Uuid::now_v7().into_bytes())
}
