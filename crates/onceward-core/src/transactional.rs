//! The same swap inside a transaction of the user's own.

use alloc::{borrow::ToOwned as _, boxed::Box};
use core::{future::ready, time::Duration};

use crate::{Change, Digest, Fence, SpoolId, Store, StoreError, StoreFuture, Swap};

/// SQL stores: the same swap on the caller's own transaction, so that a record ends in the very
/// commit that makes its effect durable.
///
/// The connection is a parameter, because one store serves several drivers. These methods only
/// propose: the caller's commit decides, and a rollback leaves the record as it was. What an
/// implementation must do is what [`Store::swap`] does, as seen from inside the transaction.
///
/// ```
/// use onceward_core::{Change, StoreError, Swap, Transactional};
///
/// async fn end_with<C>(store: &impl Transactional<C>, connection: &mut C, change: &Change) -> Result<bool, StoreError> {
///     // … the effect, on the same connection …
///     let swap = store.swap_in(connection, change).await?;
///     Ok(matches!(swap, Swap::Stored { .. })) // commit, or else roll back
/// }
/// ```
pub trait Transactional<Connection: ?Sized>: Store {
    /// Replaces the record iff the stored fence equals `change.expected`.
    ///
    /// After a conflict or an error the caller must roll back.
    fn swap_in<'a>(
        &'a self,
        connection: &'a mut Connection,
        change: &'a Change,
    ) -> StoreFuture<'a, Swap>;

    /// The same for a new claim, which another open transaction may be about to make: that one is
    /// waited for no longer than this, and then it is [`Swap::Held`].
    ///
    /// A store where an open transaction keeps all others from writing makes no claims in one.
    fn claim_in<'a>(
        &'a self,
        connection: &'a mut Connection,
        change: &'a Change,
        patience: Duration,
    ) -> StoreFuture<'a, Swap> {
        let _ = (connection, change, patience);
        let detail = "it makes no claims inside a transaction of the user's own";
        Box::pin(ready(Err(StoreError::Unusable(detail.to_owned()))))
    }

    /// Returns when the change to this fence, whose commit was acknowledged on the caller's
    /// connection, is there for all and as durable as the store's own writes; an error if it is not.
    ///
    /// For stores that see more on their own connections than a driver tells its user: that the
    /// server is not the one that counts any more, or that only a savepoint has ended.
    fn confirm<'a>(&'a self, id: &'a Digest, fence: Fence) -> StoreFuture<'a, ()> {
        let _ = (id, fence);
        Box::pin(ready(Ok(())))
    }

    /// Writes one chunk of a large answer: see [`Spool::put`](crate::Spool::put).
    fn put_in<'a>(
        &'a self,
        connection: &'a mut Connection,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> StoreFuture<'a, ()>;
}
