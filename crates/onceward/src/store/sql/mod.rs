//! What stores share that keep bytes in rows or values: columns of a change, seals, route names, what may be purged, and which duplicates need not wait.

pub(super) mod census;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(super) mod codec;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod messages;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod purge;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod recent;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(super) mod routes;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(super) mod rows;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod wake;
