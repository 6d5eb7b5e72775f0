//! Stores that come with the library.

#[cfg(feature = "sqlite")]
pub mod sqlite;
