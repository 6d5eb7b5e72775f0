//! The Redis store: on servers of the crate `testbed`, one module for each of its sides.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod conformance;
mod failures;
mod memory;
mod open;
mod operate;
mod store;
mod support;
mod topologies;
mod trips;
