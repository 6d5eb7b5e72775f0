//! The operators' listener: see what is stored, repair it, watch the gateway. Never on the public port.
//!
//! What is answered here is all there is; [`repair`] does it, also for `onceward keys` on a store.

mod access;
mod clock;
mod document;
mod figures;
mod messages;
mod noted;
mod refusal;
mod relay;
mod repair;
mod requests;
mod routes;
mod sinks;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, RawQuery, State},
    middleware,
    response::Response,
    routing::{get, post},
};
use http::{HeaderValue, StatusCode, header};
use onceward::{Digest, telemetry};
use serde_json::{Value, json};

use crate::{commands::check, config::Role, proxy::Gateway};
use access::require;
use refusal::Refusal;
use requests::ListQuery;

pub(crate) use access::{ACTOR, Access, Operator};
pub(crate) use messages::NO_OUTBOX;
pub(crate) use relay::RelayAdmin;
pub(crate) use repair::{InEffect, Repair};

/// The largest request: an answer of 64 KiB, in base64, with its headers.
const MAX_REQUEST: usize = 256 << 10;

/// By which the command knows that it talks to a gateway, before it sends its token.
pub(crate) const NAME: &str = "onceward";

/// All requests that the listener answers, for people and for tools.
const OPENAPI: &str = include_str!("openapi.json");

type Answer = Result<Response, Refusal>;

#[derive(Clone)]
pub(crate) struct Admin {
    gateway: Gateway,
    repair: Repair,
    access: Access,
    stopping: Arc<AtomicBool>,
}

impl Admin {
    pub(crate) fn new(gateway: Gateway, repair: Repair, access: Access) -> Self {
        Self { gateway, repair, access, stopping: Arc::new(AtomicBool::new(false)) }
    }

    /// From now on balancers shall send no new requests to this gateway.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Who may ask for what, on one page.
    pub(crate) fn router(&self) -> Router {
        let of = |role| middleware::from_fn_with_state((self.access.clone(), role), require);
        let open = Router::new()
            .route("/health", get(health))
            .route("/ready", get(ready))
            .route("/openapi.json", get(openapi));
        let facts = Router::new()
            .route("/metrics", get(metrics))
            .route("/v1/capabilities", get(capabilities))
            .route("/v1/config", get(config))
            .route("/v1/upstream", get(upstream))
            .route("/v1/clock", get(clock));
        let facts = facts.route_layer(of(Role::Read));
        open.merge(facts)
            .with_state(self.clone())
            .merge(reading(&self.repair).route_layer(of(Role::Read)))
            .merge(resolving(&self.repair).route_layer(of(Role::Resolve)))
            .merge(purging(&self.repair).route_layer(of(Role::Purge)))
            .merge(trusting(&self.repair).route_layer(of(Role::Purge)))
            .fallback(async || nothing_here())
            .method_not_allowed_fallback(async || wrong_method())
            .layer(DefaultBodyLimit::max(MAX_REQUEST))
    }
}

/// All that can be done with records and messages, by an operator who is known already.
pub(crate) fn local(repair: &Repair, operator: Operator) -> Router {
    let all = reading(repair).merge(resolving(repair)).merge(purging(repair));
    all.layer(Extension(operator))
}

fn reading(repair: &Repair) -> Router {
    Router::new()
        .route("/v1/operations", get(list))
        .route("/v1/operations/search", post(search))
        .route("/v1/operations/{reference}", get(show))
        .merge(messages::reading())
        .with_state(repair.clone())
}

fn resolving(repair: &Repair) -> Router {
    Router::new()
        .route("/v1/operations/{reference}/resolve", post(resolve))
        .route("/v1/operations/{reference}/release", post(release))
        .route("/v1/resolve", post(resolve_many))
        .merge(messages::resolving())
        .with_state(repair.clone())
}

fn purging(repair: &Repair) -> Router {
    let router = Router::new().route("/v1/operations/{reference}/purge", post(purge));
    router.merge(messages::purging()).with_state(repair.clone())
}

/// Only of the process that watches the clock: not for a command on the store itself. What has ended may run
/// again after it, as after a purge, and so it needs that role.
fn trusting(repair: &Repair) -> Router {
    Router::new().route("/v1/clock/trust", post(trust_clock)).with_state(repair.clone())
}

async fn list(State(repair): State<Repair>, RawQuery(query): RawQuery) -> Answer {
    let wanted = ListQuery::of_query(&query.unwrap_or_default())?;
    Ok(done(&repair.list(&wanted).await?))
}

async fn search(State(repair): State<Repair>, body: Bytes) -> Answer {
    Ok(done(&repair.list(&requests::read(&body)?).await?))
}

async fn show(State(repair): State<Repair>, Path(reference): Path<String>) -> Answer {
    Ok(done(&repair.show(digest(&reference)?).await?))
}

/// One change of one operation.
type Change = (State<Repair>, Extension<Operator>, Path<String>, Bytes);

async fn resolve((State(repair), Extension(operator), Path(reference), body): Change) -> Answer {
    let found = requests::read(&body)?;
    Ok(done(&repair.resolve(digest(&reference)?, &operator, &found).await?))
}

async fn release((State(repair), Extension(operator), Path(reference), body): Change) -> Answer {
    let why = requests::read(&body)?;
    Ok(done(&repair.release(digest(&reference)?, &operator, &why).await?))
}

async fn purge((State(repair), Extension(operator), Path(reference), body): Change) -> Answer {
    let why = requests::read(&body)?;
    Ok(done(&repair.purge(digest(&reference)?, &operator, &why).await?))
}

/// A change of more than one operation.
type WideChange = (State<Repair>, Extension<Operator>, Bytes);

async fn resolve_many((State(repair), Extension(operator), body): WideChange) -> Answer {
    Ok(done(&repair.resolve_many(&operator, &requests::read(&body)?).await?))
}

async fn trust_clock((State(repair), Extension(operator), body): WideChange) -> Answer {
    Ok(done(&repair.trust_clock(&operator, &requests::read(&body)?).await?))
}

async fn clock(State(admin): State<Admin>) -> Answer {
    Ok(done(&admin.repair.clock().await?))
}

/// The process lives.
async fn health() -> Response {
    done(&json!({ "healthy": true, "name": NAME, "version": env!("CARGO_PKG_VERSION") }))
}

/// New requests may be sent here.
async fn ready(State(admin): State<Admin>) -> Response {
    let is_stopping = admin.stopping.load(Ordering::Relaxed);
    let reason = match admin.repair.ping().await {
        _ if is_stopping => "the gateway is stopping".to_owned(),
        Err(error) => error.to_string(),
        Ok(()) => return done(&json!({ "ready": true })),
    };
    let document = json!({ "ready": false, "reason": reason });
    document::answer(StatusCode::SERVICE_UNAVAILABLE, &document)
}

async fn openapi() -> Response {
    text("application/json", OPENAPI.to_owned())
}

async fn metrics(State(admin): State<Admin>) -> Response {
    figures::take(&**admin.gateway.store()).await;
    admin.gateway.upstream_states().measure();
    text(telemetry::PROMETHEUS_CONTENT_TYPE, telemetry::prometheus())
}

async fn capabilities(State(admin): State<Admin>) -> Response {
    done(&check::capabilities(&admin.gateway.config(), &admin.gateway.store().losses()))
}

async fn config(State(admin): State<Admin>) -> Answer {
    config_in_effect(State(admin.repair)).await
}

async fn config_in_effect(State(repair): State<Repair>) -> Answer {
    let config = repair.config().ok_or_else(Refusal::not_found)?;
    Ok(done(&check::config_document(&config)))
}

async fn upstream(State(admin): State<Admin>) -> Response {
    done(&admin.gateway.upstream_states().document())
}

fn digest(reference: &str) -> Result<Digest, Refusal> {
    let parsed = reference.parse();
    parsed.map_err(|error: onceward::protocol::DigestError| Refusal::malformed(error.to_string()))
}

fn done(document: &Value) -> Response {
    document::answer(StatusCode::OK, document)
}

fn text(kind: &'static str, text: String) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn nothing_here() -> Refusal {
    let text = "there is nothing here; /openapi.json says what can be asked";
    Refusal::new(StatusCode::NOT_FOUND, "not-found", text)
}

fn wrong_method() -> Refusal {
    let text = "this is asked with another method; /openapi.json says which";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", text)
}
