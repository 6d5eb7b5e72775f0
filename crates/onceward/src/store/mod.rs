//! What a store is, and the stores that come with the library.

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use onceward_core::{
    BoxFuture, Change, Cursor, Filter, Inspect, Listed, Note, NoteKind, OnEnded, Order,
    PURGE_MARGIN, Page, Purge, SWEEP_MARGIN, Spool, SpoolId, Store, StoreError, StoreFuture, Swap,
    Trail, TrailEntry, Transactional, Wake,
};
pub use sql::census::Census;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub use sql::routes::{KeptRoute, Living, LivingGroup};
