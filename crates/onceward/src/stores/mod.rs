//! Stores that come with the library.

mod census;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use census::Census;
