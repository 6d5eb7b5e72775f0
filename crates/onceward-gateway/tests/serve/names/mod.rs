//! A route that is changed: its records are found as before, or the gateway says what would run again.

mod changed;
mod old_store;
mod renamed;

use crate::gateway_support::{Call, Gateway, Plan, Upstream};

/// Another configuration on the store of a gateway that has ended.
fn restart(gateway: Gateway, upstream: &Upstream, text: &str) -> Plan {
    let directory = gateway.kill();
    Plan { directory, ..Plan::new(&upstream.url(), text) }
}

/// With this key, by Alice.
fn send(path: &str, key: &str) -> Call {
    Call::post(path).key(key).header("x-api-key", "alice")
}
