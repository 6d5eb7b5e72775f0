//! Runs that mostly wait, side by side.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Does something with each item, so many at a time; the results are in the order of the items.
pub(crate) fn each_in_parallel<'a, T: Sync, R: Send>(
    lanes: usize,
    items: &'a [T],
    work: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, R>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(number)
                {
                    let result = work(item);
                    results.lock().unwrap().insert(number, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}
