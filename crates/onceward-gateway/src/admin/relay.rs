//! The operators' listener of a relay: its health and metrics, and the same of messages and operations as on a gateway.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{Router, extract::State, middleware, response::Response, routing::get};
use http::StatusCode;
use onceward::telemetry;
use serde_json::json;

use super::{
    access::{Access, require},
    config_in_effect, document, done, figures, health, messages, nothing_here, openapi, purging,
    reading,
    repair::Repair,
    resolving, text, wrong_method,
};
use crate::config::Role;

/// What operators of one relay are answered.
#[derive(Clone)]
pub(crate) struct RelayAdmin {
    repair: Repair,
    access: Access,
    stopping: Arc<AtomicBool>,
}

impl RelayAdmin {
    pub(crate) fn new(repair: Repair, access: Access) -> Self {
        Self { repair, access, stopping: Arc::default() }
    }

    /// From now on it takes no new messages.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Who may ask for what, on one page.
    pub(crate) fn router(&self) -> Router {
        let of = |role| middleware::from_fn_with_state((self.access.clone(), role), require);
        let open = Router::new().route("/ready", get(ready)).with_state(self.clone());
        let facts = Router::new().route("/metrics", get(metrics)).with_state(self.clone());
        let config = Router::new().route("/v1/config", get(config_in_effect));
        open.route("/health", get(health))
            .route("/openapi.json", get(openapi))
            .merge(facts.route_layer(of(Role::Read)))
            .merge(config.with_state(self.repair.clone()).route_layer(of(Role::Read)))
            .merge(reading(&self.repair).route_layer(of(Role::Read)))
            .merge(resolving(&self.repair).route_layer(of(Role::Resolve)))
            .merge(purging(&self.repair).route_layer(of(Role::Purge)))
            .fallback(async || nothing_here())
            .method_not_allowed_fallback(async || wrong_method())
            .layer(axum::extract::DefaultBodyLimit::max(super::MAX_REQUEST))
    }
}

/// The relay delivers, or could if its sinks were there.
async fn ready(State(admin): State<RelayAdmin>) -> Response {
    let reason = match messages::ping(&admin.repair).await {
        _ if admin.stopping.load(Ordering::Relaxed) => "the relay is stopping".to_owned(),
        Err(reason) => reason,
        Ok(()) => return done(&json!({ "ready": true })),
    };
    let refused = json!({ "ready": false, "reason": reason });
    document::answer(StatusCode::SERVICE_UNAVAILABLE, &refused)
}

async fn metrics(State(admin): State<RelayAdmin>) -> Response {
    figures::take(&*admin.repair.records).await;
    text(telemetry::PROMETHEUS_CONTENT_TYPE, telemetry::prometheus())
}
