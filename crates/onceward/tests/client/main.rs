//! The retrying client: the statements of the retry design, and bad input, over real sockets where
//! the network matters and in virtual time where only the clock does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod deadlines;
mod fast;
mod safety;
mod server;
mod spread;
mod virtual_service;
