//! `onceward serve`, rule by rule: what the contract says, as clients and upstreams see it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/mod.rs"]
mod gateway_support;

mod framing;
mod gates;
mod http2_upstream;
mod in_flight;
mod keys;
mod meaning;
mod process;
mod replay;
mod retention;
mod scopes;
mod unknown;
mod upstream_side;

use gateway_support::Call;
use serde_json::json;

/// A payment of Alice.
fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}
