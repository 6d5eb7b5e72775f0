//! Messages: what a page of a lane comes to, what an attempt means, and the whole protocol as a model.
//!
//! `outbox` is a small outbox in memory. It passes the conformance suite, which finds its mistakes when it makes
//! any; the model checker walks over every order of its steps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod conformance;
mod content;
mod delivery;
mod memory;
mod model;
mod outbox;
mod work;
