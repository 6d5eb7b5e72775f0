//! `onceward serve` protects what it stores: encryption, redaction, statuses alone, and quotas.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/mod.rs"]
mod gateway_support;

mod encryption;
mod keep;
mod quota;
mod redaction;

use gateway_support::{Call, Gateway};
use serde_json::json;

/// A payment of Alice.
fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}

/// Whether the database, its log or its index show these bytes.
fn shows(gateway: &Gateway, text: &str) -> bool {
    let file = gateway.store();
    let has = |suffix: &str| {
        let name = format!("{}{suffix}", file.display());
        let bytes = std::fs::read(name).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    ["", "-wal", "-shm"].into_iter().any(has)
}
