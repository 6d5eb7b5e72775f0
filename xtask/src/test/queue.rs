//! One queue over all test programs: several run side by side, of those that compute one at a time.

use std::cmp::Reverse;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::suites::Load;

/// How many programs run at a time: one that computes, and two that mostly wait.
pub(super) const LANES: usize = 3;

pub(super) struct Job<T> {
    pub(super) load: Load,
    /// The longest goes first, so that no long one is left for the end.
    pub(super) expected: Duration,
    pub(super) work: T,
}

struct Queue<T> {
    waiting: Vec<Job<T>>,
    computing: bool,
}

impl<T> Queue<T> {
    /// Those that compute go first, because they run one after another; then the longest, so that no
    /// long one is left for the end.
    fn new(mut jobs: Vec<Job<T>>) -> Self {
        jobs.sort_by_key(|job| (job.load == Load::Waits, Reverse(job.expected)));
        Self { waiting: jobs, computing: false }
    }

    /// The next job that may start now.
    fn take(&mut self) -> Option<Job<T>> {
        let computing = self.computing;
        let may_start = |job: &Job<T>| job.load == Load::Waits || !computing;
        let job = self.waiting.remove(self.waiting.iter().position(may_start)?);
        self.computing |= job.load == Load::Computes;
        Some(job)
    }
}

/// Calls `run` for each job, and returns when all have ended.
pub(super) fn run_all<T: Send>(jobs: Vec<Job<T>>, run: impl Fn(T) + Sync) {
    let (queue, changed) = (Mutex::new(Queue::new(jobs)), Condvar::new());
    let lane = || {
        loop {
            let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(job) = state.take() else {
                if state.waiting.is_empty() {
                    return;
                }
                // What is left computes, and another lane is computing.
                drop(changed.wait(state));
                continue;
            };
            drop(state);
            let load = job.load;
            run(job.work);
            if load == Load::Computes {
                queue.lock().unwrap_or_else(PoisonError::into_inner).computing = false;
            }
            changed.notify_all();
        }
    };
    thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn job(load: Load, seconds: u64) -> Job<(Load, u64)> {
        Job { load, expected: Duration::from_secs(seconds), work: (load, seconds) }
    }

    #[test]
    fn every_job_runs_once_and_no_two_compute_at_a_time() {
        let (computing, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let jobs = (0..40)
            .map(|number| job(if number % 2 == 0 { Load::Computes } else { Load::Waits }, number));
        run_all(jobs.collect(), |(load, number)| {
            if load == Load::Computes {
                assert_eq!(computing.fetch_add(1, Ordering::SeqCst), 0, "two compute");
                thread::yield_now();
                computing.fetch_sub(1, Ordering::SeqCst);
            }
            ran.lock().unwrap().push(number);
        });
        let mut ran = ran.into_inner().unwrap();
        ran.sort_unstable();
        assert_eq!(ran, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn the_longest_that_may_start_goes_first() {
        use Load::{Computes, Waits};
        let jobs = [(Waits, 1), (Computes, 5), (Waits, 20), (Computes, 9)];
        let mut queue = Queue::new(jobs.map(|(load, seconds)| job(load, seconds)).into());
        let order: Vec<_> = std::iter::from_fn(|| queue.take()).map(|job| job.work.1).collect();
        assert_eq!(order, [9, 20, 1], "while one computes, the other that would has to wait");
        queue.computing = false;
        assert_eq!(queue.take().unwrap().work.1, 5);
    }
}
