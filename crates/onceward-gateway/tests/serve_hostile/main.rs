//! The gateway among enemies: ambiguous requests, cut connections, kill -9, crowds.
//!
//! Long variants: `cargo test -p onceward-gateway --test serve_hostile -- --ignored`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/mod.rs"]
mod gateway_support;

mod answers;
mod client;
mod counting_upstream;
mod crowd;
mod cut;
mod cutting_upstream;
mod duplicates;
mod kills;
mod large_upstream;
mod malformed;
mod requests;
mod shares;
mod stalls;
mod witnesses;

use std::{
    future::Future,
    net::SocketAddr,
    sync::{PoisonError, RwLock},
};

use gateway_support::{Plan, route_for};

/// A gateway whose only route covers everything that writes, for all callers together; with these options.
fn plan(upstream: SocketAddr, options: &str) -> Plan {
    let lines = format!("scope = [\"global\"]\n{options}");
    Plan::new(&format!("http://{upstream}"), &route_for("POST,PATCH /{*rest}", &lines))
}

/// What measures speed is alone; other tests may run beside each other.
static MEASURED: RwLock<()> = RwLock::new(());

/// Runs a test beside others.
fn run(test: impl Future<Output = ()>) {
    let _beside = MEASURED.read().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(test);
}

/// Runs a test with nothing else from this file beside it.
fn run_alone(test: impl Future<Output = ()>) {
    let _alone = MEASURED.write().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(test);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
