//! What those have who run a gateway: their listener, `onceward keys` and `onceward doctor`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod admin;
mod clock;
mod doctor;
#[path = "../gateway_support/mod.rs"]
mod gateway_support;
mod keys;
mod messages;
#[path = "../pages/mod.rs"]
mod pages;
