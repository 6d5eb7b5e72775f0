//! The engine, and the store that keeps nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod conformance;
mod engine;
#[path = "../server_support/mod.rs"]
mod server_support;
mod store;
