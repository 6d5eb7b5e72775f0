//! `onceward serve` among friends; among enemies it is in `serve_hostile`, which also measures.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod clients;
mod cors;
#[path = "../gateway_support/mod.rs"]
mod gateway_support;
mod h2spec;
mod installed;
mod names;
mod observe;
#[path = "../pages/mod.rs"]
mod pages;
mod protection;
mod quickstart;
mod rules;
mod stripe;
mod upgrades;
