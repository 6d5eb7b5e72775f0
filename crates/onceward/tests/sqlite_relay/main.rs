//! The relay: on SQLite, and on an outbox in memory where time is to pass quickly.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "modules of a test program")]

mod memory;
