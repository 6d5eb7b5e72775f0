//! Stores that come with the library.

mod census;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod codec;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod known;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod routes;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rows;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use census::Census;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use routes::{KeptRoute, Living, LivingGroup};
