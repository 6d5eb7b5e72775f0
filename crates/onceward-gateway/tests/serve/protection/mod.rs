//! `onceward serve` protects what it stores: encryption, redaction, statuses alone, and quotas.

mod encryption;
mod keep;
mod quota;
mod redaction;

use serde_json::json;

use crate::gateway_support::{Call, Gateway};

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
