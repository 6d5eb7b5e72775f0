//! A shop whose charges and records are in one SQLite file and end in one commit.
//!
//! Whatever a handler does: nobody is told of success without the effect, and nobody who asks with the
//! same key has it twice.
#![cfg(feature = "sqlx")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod begin;
mod bench;

mod cancelled;
mod doubt;
mod engine;
mod kept;
mod migrations;
mod misuse;
mod processes;
mod redacted;
#[path = "../server_support/mod.rs"]
mod server_support;
