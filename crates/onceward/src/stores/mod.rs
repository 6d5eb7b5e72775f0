//! Stores that come with the library.

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
