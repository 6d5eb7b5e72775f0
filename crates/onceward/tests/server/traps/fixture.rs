//! What the traps have in common: a charge behind the layer.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::post as on_post};
use onceward::server::Idempotency;

use crate::server_support::{Gate, Ledger};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A charge that is made at once, passes the gate and is answered with its number.
pub(crate) fn charging(ledger: &Ledger, gate: &Gate, idempotency: Idempotency) -> Router {
    let (ledger, gate) = (ledger.clone(), gate.clone());
    let handler = async move || {
        let number = ledger.add("charge");
        gate.pass().await;
        (StatusCode::CREATED, format!("charge {number}"))
    };
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}
