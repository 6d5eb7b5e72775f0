//! A place on a server that no other test uses, and gateways with their records there.

use serde_json::json;
use testbed::{RedisInstallation, RedisServer};

use crate::gateway_support::{Call, Finished, Plan, Upstream, command, route};

/// A server of its own, to be broken or looked into.
pub(crate) fn server(settings: &[(&str, &str)]) -> RedisServer {
    let installation = RedisInstallation::preferred().unwrap_or_else(|trouble| panic!("{trouble}"));
    RedisServer::start(&installation, settings).unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// A place on the server that all tests share.
pub(crate) fn place() -> String {
    format!("{}?prefix=gateway-test-{:012x}", testbed::redis(), fastrand::u64(..1 << 48))
}

/// A gateway before this upstream, with its records there and these lines in its route.
pub(crate) fn plan(upstream: &Upstream, store: &str, lines: &str) -> Plan {
    let text = format!(
        "admin = \"127.0.0.1:0\"\nguarantee = \"relaxed\"\n{}",
        route(&format!("key = \"required\"\n{lines}"))
    );
    Plan::new(&upstream.url(), &text).store(store)
}

pub(crate) fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({ "cents": 5 }))
}

/// Runs the command with this store in its environment.
pub(crate) fn onceward(arguments: &[&str], store: &str) -> Finished {
    Finished::of(command(arguments).env("ONCEWARD_STORE", store))
}
