//! `onceward probe` against servers whose faults are known: it finds each, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/mod.rs"]
mod gateway_support;

mod command_line;
mod correct;
mod counting;
mod defects;
mod gateway;
mod run;
mod server;
