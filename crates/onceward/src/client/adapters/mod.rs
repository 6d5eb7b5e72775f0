//! The ways in: a tower layer, reqwest, and a middleware of reqwest-middleware. All go through `call.rs`.

pub(super) mod exchange;
#[cfg(feature = "reqwest-middleware")]
pub(super) mod middleware;
#[cfg(feature = "reqwest")]
pub(super) mod reqwest;
pub(super) mod tower;
