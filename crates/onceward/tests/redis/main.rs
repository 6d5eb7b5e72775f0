//! The Redis store: on servers of the crate `testbed`, one module for each of its sides.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "tests say what they have counted")]

mod answers;
mod conformance;
mod eaten;
mod failover;
mod failures;
mod full_disk;
mod kills;
mod memory;
mod open;
mod operate;
mod proxy;
mod store;
mod support;
mod till;
mod topologies;
mod trips;
