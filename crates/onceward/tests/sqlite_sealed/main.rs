//! Stored answers that are sealed: what a thief of the file can read, what a forger can do, and what
//! becomes of records when keys come and go.
#![cfg(all(feature = "encryption", feature = "sqlx"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod at_rest;
mod conformance;
mod keys;
#[path = "../server_support/mod.rs"]
mod server_support;
mod shop;
#[path = "../sqlite_files/mod.rs"]
mod sqlite_files;
mod tampered;
