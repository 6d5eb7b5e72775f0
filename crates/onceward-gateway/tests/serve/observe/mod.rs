//! `onceward serve` as seen by those who run it: its log and its traces.

mod collector;
mod logs;
mod traces;

use serde_json::json;

use crate::gateway_support::Call;

/// What must never be seen by those who only operate the gateway.
const SECRETS: [&str; 5] =
    ["key-0f1e2d", "api-3c4b5a", "header-697887", "body-a1b2c3", "query-d4e5f6"];

/// A payment with a secret in every place that has room for one.
fn pay() -> Call {
    let [key, api_key, header, body, query] = SECRETS;
    Call::post(&format!("/pay?token={query}"))
        .key(key)
        .header("x-api-key", api_key)
        .header("x-other", header)
        .json(json!({ "card": body }))
}

fn assert_no_secret(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
