//! The gateway and its tools with their records in Redis or Valkey: on servers of the crate `testbed`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod demo;
mod doctor;
#[path = "../gateway_support/mod.rs"]
mod gateway_support;
mod operators;
mod refusals;
mod serve;
mod support;
