//! A place where a test holds others up.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Holds whoever passes until the test lets one on.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let gate = testbed::Gate::closed();
/// let handler = tokio::spawn({
///     let gate = gate.clone();
///     async move { gate.pass().await }
/// });
/// gate.reached().await;
/// assert!(!handler.is_finished());
/// gate.open();
/// handler.await.unwrap();
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    /// A gate at which everybody waits.
    pub fn closed() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits at the gate until it is opened for one.
    pub async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.expect("nobody closes the semaphore").forget();
    }

    /// Waits until somebody stands at the gate; each is counted once.
    pub async fn reached(&self) {
        self.arrived.acquire().await.expect("nobody closes the semaphore").forget();
    }

    /// Lets one on, now or when it comes.
    pub fn open(&self) {
        self.open.add_permits(1);
    }
}
