//! How many executions of one scope run in this process: the quota of open keys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use onceward_core::Scope;

/// Counts by scope. There are never more of them than executions, and none that is zero.
#[derive(Default)]
pub(crate) struct OpenExecutions {
    counts: Mutex<HashMap<Scope, usize>>,
}

/// One execution that counts until this is dropped.
pub(crate) struct Slot {
    open: Arc<OpenExecutions>,
    scope: Scope,
}

impl OpenExecutions {
    pub(crate) fn is_full(&self, scope: &Scope, most: usize) -> bool {
        self.counts().get(scope).is_some_and(|count| *count >= most)
    }

    /// Counts one more execution; `None`: there are as many as may be.
    pub(crate) fn take(self: &Arc<Self>, scope: &Scope, most: usize) -> Option<Slot> {
        let mut counts = self.counts();
        match counts.get_mut(scope) {
            Some(count) if *count >= most => return None,
            Some(count) => *count += 1,
            None => drop(counts.insert(scope.clone(), 1)),
        }
        Some(Slot { open: self.clone(), scope: scope.clone() })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Scope, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.open.counts();
        match counts.get_mut(&self.scope) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.scope)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_up_to_the_limit_by_each_scope_and_given_back() {
        let open = Arc::new(OpenExecutions::default());
        let [one, other] = ["one", "other"].map(|tenant| Scope::of("tenant", tenant).unwrap());
        let first = open.take(&one, 2);
        assert!(!open.is_full(&one, 2));
        let second = open.take(&one, 2);
        assert!(first.is_some() && second.is_some() && open.is_full(&one, 2));
        assert!(open.take(&one, 2).is_none(), "one too many");
        assert!(open.take(&other, 2).is_some(), "another scope has its own");
        drop(first);
        assert!(open.take(&one, 2).is_some());
        drop(second);
        assert!(open.counts().is_empty(), "nothing is remembered of what has ended");
    }
}
