//! The proof by crashing: a service that is killed at every step, and a checker that believes
//! nothing but an outside ledger.
//!
//! Nothing here is published.

pub mod checker;
pub mod client;
pub mod history;
pub mod load;
pub mod messages;
pub mod power;
pub mod provider;
pub mod running;
pub mod service;
pub mod strace;
