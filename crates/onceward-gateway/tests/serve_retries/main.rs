//! `onceward serve` and an upstream in trouble: what is sent again, what is not sent at all, and what
//! operators see of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/mod.rs"]
mod gateway_support;

mod bad_input;
mod blame;
mod breaker;
mod called;
mod crowd;
mod deadline;
mod fallback;
mod figures;
mod hedge;
mod outage;
mod repeats;
mod share;
mod statuses;
mod switched;

use gateway_support::{Call, Gateway, Link, Plan, Version};
use serde_json::{Value, json};
use switched::Switched;

/// A payment of Alice.
fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}

fn get(path: &str) -> Call {
    Call::new("GET", path)
}

/// A gateway with a listener for operators in front of this upstream.
fn start(upstream: &Switched, text: &str) -> Gateway {
    Plan::new(&upstream.url(), &format!("admin = \"127.0.0.1:0\"\n{text}")).start()
}

/// `GET,HEAD,PUT,POST,DELETE /x/…`, without keys.
fn keyless(lines: &str) -> String {
    format!(
        "[[route]]\nmatch = \"GET,HEAD,PUT,POST,DELETE /x/{{*rest}}\"\nkey = \"off\"\n{lines}\n"
    )
}

/// `GET,HEAD /safe/…`, without keys.
fn safe(lines: &str) -> String {
    format!("[[route]]\nmatch = \"GET,HEAD /safe/{{*rest}}\"\nkey = \"off\"\n{lines}\n")
}

/// A room as operators see it.
async fn upstream_state(gateway: &Gateway, name: &str) -> Value {
    let document = gateway.ask(&get("/v1/upstream")).await.json();
    let states = document["states"].as_array().unwrap().iter();
    states
        .clone()
        .find(|upstream_state| upstream_state["name"] == name)
        .cloned()
        .unwrap_or_else(|| panic!("{document}"))
}

/// So many requests that succeed, one after the other on one connection: they fill the budget.
async fn warm_up(gateway: &Gateway, call: &Call, count: usize) {
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..count {
        let reply = link.send(call).await;
        assert!(reply.status < 300, "{reply:?}");
    }
}
