//! A shared store is a store: also `Arc<dyn Store>`, chosen at run time.

use alloc::{sync::Arc, vec::Vec};
use core::any::Any;

use crate::{
    Change, Digest, Fence, Filter, Found, Inspect, Note, Page, Purge, Spool, SpoolId, Store,
    StoreFuture, Swap, Trail, TrailEntry, Wake,
};

impl<S: Store + ?Sized> Store for Arc<S> {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        (**self).swap(change)
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        (**self).get(id)
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
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
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page> {
        (**self).list(filter)
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> StoreFuture<'a, Purge> {
        (**self).purge(id, expected, note)
    }
}

impl<S: Trail + ?Sized> Trail for Arc<S> {
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>> {
        (**self).trail(id)
    }
}

impl<S: Spool + ?Sized> Spool for Arc<S> {
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()> {
        (**self).put(id, index, chunk)
    }

    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>> {
        (**self).chunk(id, index)
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()> {
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
