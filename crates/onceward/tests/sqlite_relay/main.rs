//! The relay: on SQLite, and on an outbox in memory where time is to pass quickly.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "modules of a test program")]

mod between;
mod consumer;
mod ending;
mod example;
mod failures;
mod file;
mod health;
mod http;
mod memory;
#[path = "../metrics_text/mod.rs"]
mod metrics_text;
mod order;
mod retention;
mod settling;
mod sharing;
mod shown;
mod storm;
mod support;
