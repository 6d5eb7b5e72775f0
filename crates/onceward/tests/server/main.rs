//! The server layer beyond its rules, which are in `server_rules`. What counts metrics, alarms or memory, which
//! belong to the whole process, is in programs of its own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod executions;
mod guards;
mod options;
mod protection;
mod repair;
#[path = "../server_support/mod.rs"]
mod server_support;
mod traps;
