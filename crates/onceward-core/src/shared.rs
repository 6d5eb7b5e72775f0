//! A shared store is a store: also `Arc<dyn Store>`, chosen at run time.

use alloc::{sync::Arc, vec::Vec};
use core::any::Any;

use crate::{
    BoxFuture, Change, Digest, Fence, Filter, Found, Inspect, Note, Page, Purge, Spool, SpoolId,
    Store, StoreError, Swap, Trail, TrailEntry, Wake,
};

impl<S: Store + ?Sized> Store for Arc<S> {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        (**self).swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        (**self).get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        (**self).sweep(limit)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        (**self).as_any()
    }

    fn wake(&self) -> Option<&dyn Wake> {
        (**self).wake()
    }
}

impl<S: Inspect + ?Sized> Inspect for Arc<S> {
    fn list<'a>(&'a self, filter: &'a Filter) -> BoxFuture<'a, Result<Page, StoreError>> {
        (**self).list(filter)
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Purge, StoreError>> {
        (**self).purge(id, expected, note)
    }
}

impl<S: Trail + ?Sized> Trail for Arc<S> {
    fn trail<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Vec<TrailEntry>, StoreError>> {
        (**self).trail(id)
    }
}

impl<S: Spool + ?Sized> Spool for Arc<S> {
    fn put<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).put(id, index, chunk)
    }

    fn chunk<'a>(
        &'a self,
        id: &'a SpoolId,
        index: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        (**self).chunk(id, index)
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).discard(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gateway picks the store from a URL at run time.
    #[test]
    fn the_traits_are_dyn_compatible() {
        fn takes(_: &dyn Store, _: &dyn Inspect, _: &dyn Trail, _: &dyn Spool) {}
        let _ = takes;
        fn is_store<S: Store>() {}
        is_store::<Arc<dyn Store>>();
    }
}
