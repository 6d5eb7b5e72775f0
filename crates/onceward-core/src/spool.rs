//! Answers that are too large for a record.

use alloc::vec::Vec;

use crate::{Digest, Fence, Store, StoreFuture};

/// Keeps answers that are too large for a record, in chunks beside it.
///
/// Chunks are written before the swap that makes their record, under the fence that this swap
/// proposes. A sweep drops chunks without such a record after an hour.
///
/// ```
/// use onceward_core::{Spool, SpoolId, StoreError};
///
/// async fn keep(store: &dyn Spool, id: SpoolId, answer: &[u8]) -> Result<(), StoreError> {
///     for (index, chunk) in (0..).zip(answer.chunks(64 << 10)) {
///         store.put(&id, index, chunk).await?;
///     }
///     Ok(())
/// }
/// ```
pub trait Spool: Store {
    /// Writes one chunk; the same chunk may be written again.
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()>;

    /// Reads one chunk.
    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// Drops all chunks of one answer.
    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()>;
}

/// Names one spooled answer: the operation and the fence of the record that refers to it.
///
/// ```
/// use onceward_core::{Change, SpoolId};
///
/// /// Under which name the chunks of the answer lie that this change refers to.
/// fn id(change: &Change) -> SpoolId {
///     SpoolId { operation: change.id, fence: change.next.fence }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpoolId {
    /// The operation's digest.
    pub operation: Digest,
    /// The fence of the ended record.
    pub fence: Fence,
}
