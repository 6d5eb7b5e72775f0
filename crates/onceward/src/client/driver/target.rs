//! What is known of each target, shared by all calls to it.
//!
//! Every question and every observation takes the lock of one target for some nanoseconds and never across
//! an await: so budget and half-open quota are exact, however many threads ask.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, PoisonError},
};

use onceward_core::retry::{Moment, Rules, Target};

use super::sync::Mutex;

/// One target, behind a lock that is held for some nanoseconds only.
pub struct TargetHandle(Mutex<Target>);

impl TargetHandle {
    /// A target that nothing is known of.
    #[must_use]
    pub fn new(rules: &Rules) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Target::new(rules))))
    }

    /// Reads or changes it.
    pub fn with<T>(&self, ask: impl FnOnce(&mut Target) -> T) -> T {
        ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts an attempt that was let through, until the permit is dropped.
    pub fn permit(self: &Arc<Self>) -> InFlightPermit {
        InFlightPermit(self.clone())
    }
}

/// One attempt in flight, until its answer was read to the end or dropped.
///
/// ```
/// use onceward::{client::driver::{InFlightPermit, TargetHandle}, retry::{Rules, Target}};
///
/// let target = TargetHandle::new(&Rules::standard());
/// let permit: InFlightPermit = target.permit();
/// drop(permit); // the answer was read to its end
/// assert_eq!(target.with(|target| target.in_flight()), 0);
/// ```
pub struct InFlightPermit(Arc<TargetHandle>);

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.0.with(Target::landed);
    }
}

impl fmt::Debug for InFlightPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("InFlightPermit")
    }
}

/// All targets by name; a bounded number, because names may come from outside.
pub(in super::super) struct Targets<N> {
    most: usize,
    known: Mutex<HashMap<N, Entry>>,
}

struct Entry {
    target: Arc<TargetHandle>,
    used: Moment,
}

impl<N: Hash + Eq + Clone> Targets<N> {
    pub(in super::super) fn new(most: usize) -> Self {
        Self { most, known: Mutex::new(HashMap::new()) }
    }

    /// The target of this name; an unknown one is new.
    pub(in super::super) fn get(&self, name: &N, rules: &Rules, now: Moment) -> Arc<TargetHandle> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get_mut(name) {
            entry.used = now;
            return entry.target.clone();
        }
        if known.len() >= self.most {
            forget_one(&mut known);
        }
        let target = TargetHandle::new(rules);
        known.insert(name.clone(), Entry { target: target.clone(), used: now });
        target
    }

    /// The target of this name, if there is one.
    pub(in super::super) fn find(&self, name: &N) -> Option<Arc<TargetHandle>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map(|entry| entry.target.clone())
    }

    pub(in super::super) fn all(&self) -> Vec<(N, Arc<TargetHandle>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, entry)| (name.clone(), entry.target.clone())).collect()
    }
}

/// Forgets what was idle longest; if all are in use, what was used longest ago.
fn forget_one<N: Hash + Eq + Clone>(known: &mut HashMap<N, Entry>) {
    let age = |(_, entry): &(&N, &Entry)| (Arc::strong_count(&entry.target) > 1, entry.used);
    if let Some(oldest) = known.iter().min_by_key(age).map(|(name, _)| name.clone()) {
        known.remove(&oldest);
    }
}
