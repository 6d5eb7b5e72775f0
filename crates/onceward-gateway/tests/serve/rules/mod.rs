//! `onceward serve`, rule by rule: what the contract says, as clients and upstreams see it.

mod certificates;
mod framing;
mod gates;
mod http2_upstream;
mod in_flight;
mod keys;
mod late;
mod late_answers;
mod meaning;
mod process;
mod refusals;
mod replay;
mod retention;
mod scopes;
mod sources;
mod unknown;
mod upstream_side;

use serde_json::json;

use crate::gateway_support::Call;

/// A payment of Alice.
pub(crate) fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}
