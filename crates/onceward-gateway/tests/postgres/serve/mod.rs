//! The gateway on a server that is not as it should be: it says what is wrong and what to do, answers 503
//! before anything is run, and recovers by itself.

mod kept;
mod names;
mod outages;
mod refusals;
mod services;

use serde_json::json;
use testbed::{Installation, Server};

use crate::gateway_support::{Call, Gateway, Plan, Upstream, eventually, route};

/// A server of its own, to be broken.
pub(crate) fn server(settings: &[(&str, &str)]) -> Server {
    let installation = Installation::preferred().unwrap_or_else(|trouble| panic!("{trouble}"));
    Server::start(&installation, settings).unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// A gateway before an upstream that only counts, with its records there.
fn plan(upstream: &Upstream, store: &str) -> Plan {
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route("key = \"required\""));
    Plan::new(&upstream.url(), &text).store(store)
}

fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({ "cents": 5 }))
}

/// It takes requests again, without anybody's help.
async fn recovers(gateway: &Gateway, key: &str) {
    let is_well = || async { gateway.send(&pay(key)).await.status == 201 };
    eventually("the gateway recovers", is_well).await;
    let is_ready = || async { gateway.ask(&Call::new("GET", "/ready")).await.status == 200 };
    eventually("the gateway is ready", is_ready).await;
}
