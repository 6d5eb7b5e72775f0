//! What stores in SQL share: columns of a change, seals, route names, and which duplicates need not wait.

pub(super) mod census;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod codec;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod messages;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod recent;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod routes;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) mod rows;
