//! The PostgreSQL store: on servers of the crate `testbed`, one module for each of its sides.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
mod commit;
mod conformance;
#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
mod deferred;
mod dialects;
mod functions;
#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
mod kept;
#[cfg(all(feature = "deadpool", feature = "sqlx"))]
mod messages;
mod open;
mod operations;
#[path = "../operations_support/mod.rs"]
mod operations_support;
#[cfg(all(feature = "deadpool", feature = "sqlx"))]
mod planted;
#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
#[path = "../server_support/mod.rs"]
mod server_support;
#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
mod shop;
mod store;
mod support;
#[cfg(all(feature = "deadpool", feature = "sqlx"))]
mod transactional_conformance;
#[cfg(all(feature = "deadpool", feature = "sqlx"))]
#[path = "../transactional_support/mod.rs"]
mod transactional_support;
#[cfg(all(feature = "axum", feature = "deadpool", feature = "sqlx"))]
mod wake;
