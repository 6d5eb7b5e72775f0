//! Stores that come with the library.

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use sql::census::Census;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::routes::{KeptRoute, Living, LivingGroup};
