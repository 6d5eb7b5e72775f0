//! The `SQLite` store, one module for each of its sides. What counts alarms, which belong to the whole
//! process, is in programs of its own: `sqlite_store` and `sqlite_sealed`.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod behaviour;
#[cfg(feature = "sqlx")]
mod commit;
mod conformance;
mod damage;
mod files;
mod lists;
#[cfg(feature = "sqlx")]
mod messages;
mod operations;
#[path = "../operations_support/mod.rs"]
mod operations_support;
mod processes;
mod server;
#[cfg(feature = "sqlx")]
#[path = "../server_support/mod.rs"]
mod server_support;
#[path = "../sqlite_files/mod.rs"]
mod sqlite_files;
#[cfg(feature = "sqlx")]
mod transactional_conformance;
#[cfg(feature = "sqlx")]
#[path = "../transactional_support/mod.rs"]
mod transactional_support;
mod waiters;
#[path = "../waiters_support/mod.rs"]
mod waiters_support;
mod watched;
