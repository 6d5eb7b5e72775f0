//! Fresh randomness for every decision. A generator that is cloned per call would let all calls wait
//! the same times.

use std::sync::{Mutex, PoisonError};

pub(super) struct Chance(Option<Mutex<fastrand::Rng>>);

impl Chance {
    /// From the generator of the thread, which has a random seed.
    pub(super) fn fresh() -> Self {
        Self(None)
    }

    pub(super) fn seeded(seed: u64) -> Self {
        Self(Some(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    pub(super) fn next(&self) -> u64 {
        match &self.0 {
            None => fastrand::u64(..),
            Some(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).u64(..),
        }
    }
}
