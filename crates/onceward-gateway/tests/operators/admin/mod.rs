//! The operators' listener: who may ask, what is shown, what can be changed.

mod bulk;
mod canary;
mod files;
mod list;
mod listener;
mod repair;
mod roles;

use serde_json::{Value, json};

use crate::gateway_support::{Call, Gateway, Reply, Upstream, route};

/// A listener for operators on any port, and one route whose runs are soon over.
fn plan() -> String {
    format!("admin = \"127.0.0.1:0\"\n{}", route("lease = \"200ms\"\nmax_run = \"1s\""))
}

/// A payment of Alice.
fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}

/// One that nobody knows the end of; gives its reference.
async fn lose(gateway: &Gateway, key: &str) -> String {
    let reply = gateway.send(&pay(key).told(json!({"status": 502}))).await;
    assert_eq!(reply.status, 502);
    reference(&reply)
}

fn reference(reply: &Reply) -> String {
    reply.header("onceward-operation").unwrap().to_owned()
}

fn get(path: &str) -> Call {
    Call::new("GET", path)
}

fn post(path: &str, document: Value) -> Call {
    Call::post(path).json(document)
}

fn show(reference: &str) -> Call {
    get(&format!("/v1/operations/{reference}"))
}

fn change(reference: &str, action: &str, document: Value) -> Call {
    post(&format!("/v1/operations/{reference}/{action}"), document)
}

/// Of one page, by their order.
async fn listed(gateway: &Gateway, query: &str) -> Vec<Value> {
    let reply = gateway.ask(&get(&format!("/v1/operations{query}"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["operations"].as_array().unwrap().clone()
}

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &plan());
    (upstream, gateway)
}
