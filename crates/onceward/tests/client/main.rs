//! The retrying client: the statements of the retry design, and bad input, over real sockets where
//! the network matters and in virtual time where only the clock does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod conditionals;
mod counts;
mod deadlines;
mod fast;
mod hedging;
mod interleavings;
mod resuming;
mod safety;
mod server;
mod shop;
mod shopping;
mod spread;
mod threads;
mod virtual_service;
mod with_reqwest;
