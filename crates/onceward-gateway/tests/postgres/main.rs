//! The gateway with its records in PostgreSQL, and services that end them in their own transactions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod checkout;
mod copies;
#[path = "../gateway_support/mod.rs"]
mod gateway_support;
mod kill;
mod languages;
mod messages;
mod operators;
#[path = "../pages/mod.rs"]
mod pages;
mod serve;
mod support;
mod wire;
