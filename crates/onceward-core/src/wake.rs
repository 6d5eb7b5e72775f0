//! How processes on one store tell each other that an operation has ended.

use alloc::sync::Arc;

use crate::Digest;

/// Tells the waiters of an operation, in every process, that it has ended.
///
/// A courtesy: messages may get lost or come twice, and each waiter asks the store as well. No
/// method blocks.
///
/// ```
/// use std::sync::Arc;
/// use onceward_core::{Digest, OnEnded, Store};
///
/// fn listen(store: &dyn Store) -> Option<Arc<OnEnded>> {
///     let heard: Arc<OnEnded> = Arc::new(|id: &Digest| println!("{id} has ended"));
///     store.wake()?.listen(&heard);
///     Some(heard) // the store calls it as long as the caller keeps this
/// }
/// ```
pub trait Wake: Send + Sync {
    /// A request here begins to wait for this operation.
    fn awaited(&self, id: &Digest);

    /// This operation has ended here, and its record is durable.
    fn ended(&self, id: &Digest);

    /// Calls this with what has ended elsewhere, until it is dropped.
    fn listen(&self, heard: &Arc<OnEnded>);
}

/// What is called with an operation that has ended in another process: see [`Wake::listen`].
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use onceward_core::{Digest, OnEnded};
///
/// let ended = Arc::new(Mutex::new(Vec::new()));
/// let seen = ended.clone();
/// let heard: Arc<OnEnded> = Arc::new(move |id: &Digest| seen.lock().unwrap().push(*id));
/// heard(&Digest([7; 32]));
/// assert_eq!(*ended.lock().unwrap(), [Digest([7; 32])]);
/// ```
pub type OnEnded = dyn Fn(&Digest) + Send + Sync;
