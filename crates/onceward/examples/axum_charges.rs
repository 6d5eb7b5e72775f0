//! A payments API in axum whose writes are safe to retry.
//!
//! ```text
//! cargo run -p onceward --features axum,sqlite --example axum_charges
//! curl -i localhost:3000/charges -H 'authorization: Bearer acme-1' \
//!      -H 'idempotency-key: order-7' -H 'content-type: application/json' -d '{"cents": 500}'
//! ```
//!
//! Send the second line again: `idempotent-replayed: true`, and nothing is charged. Send it as
//! `Bearer acme-2`, the same tenant's refreshed token: the same. As `Bearer globex-1`: their own charge.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::{error::Error, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::Request,
    http::{StatusCode, request::Parts},
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use onceward::{
    Scope, Sweeper,
    server::{Claim, Idempotency, InFlight},
    store::sqlite::SqliteStore,
};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::open(std::env::temp_dir().join("onceward-axum-charges.db"))?;
    let _sweeper = Sweeper::start(Arc::new(store.clone()), Duration::from_secs(60));
    let idempotency = Idempotency::builder(store.clone(), tenant)
        .spool(store)
        .require_key()
        .in_flight(InFlight::Wait(Duration::from_secs(2)))
        .build()?;

    let app = Router::new()
        .route("/charges", post(charge))
        .layer(idempotency.clone()) // inside: handlers; outside: who asks, and may they?
        .merge(idempotency.status_routes())
        .layer(from_fn(authenticate));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("POST /charges on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async { tokio::signal::ctrl_c().await.unwrap_or(()) })
        .await?;
    idempotency.engine().drain(Duration::from_secs(30)).await;
    Ok(())
}

/// Whose operation is it? What authentication has verified, never the token itself.
fn tenant(request: &Parts) -> Result<Scope, &'static str> {
    let Tenant(name) = request.extensions.get().ok_or("not signed in")?;
    Scope::of("tenant", name).map_err(|_| "not signed in")
}

async fn charge(claim: Claim, Json(order): Json<Value>) -> (StatusCode, Json<Value>) {
    // A provider that takes idempotency keys gets one that is the same on every attempt.
    let provider_key = claim.key_for("card.charge");
    println!("charging {} with provider key {}", order["cents"], provider_key.as_str());
    (
        StatusCode::CREATED,
        Json(json!({ "id": claim.execution().to_string(), "cents": order["cents"] })),
    )
}

#[derive(Clone)]
struct Tenant(String);

/// Stands for your authentication: `Bearer <tenant>-<anything>`.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let tenant = token.and_then(|token| token.split_once('-')).ok_or(StatusCode::UNAUTHORIZED)?.0;
    let tenant = Tenant(tenant.to_owned());
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}
