//! The smallest whole service: the program of the README.
//!
//! ```text
//! cargo run -p onceward --features axum,sqlite --example first_service
//! curl -i localhost:3000/charges -H 'x-customer: ada' -H 'idempotency-key: order-7' -d 500
//! ```

use axum::{
    Router,
    http::{StatusCode, request::Parts},
    routing::post,
};
use onceward::{
    Scope,
    server::{Claim, Idempotency},
    store::sqlite::SqliteStore,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::open("onceward.db")?;
    let idempotency = Idempotency::builder(store, customer).require_key().build()?;
    let service = Router::new().route("/charges", post(charge)).layer(idempotency);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, service).await?)
}

/// Whose operation is it? Take it from what your authentication verified, not from a plain header.
fn customer(request: &Parts) -> Result<Scope, &'static str> {
    let name = request.headers.get("x-customer").and_then(|name| name.to_str().ok());
    Scope::of("customer", name.unwrap_or_default()).map_err(|_| "say x-customer")
}

/// Runs once for each key. Every retry gets the stored answer.
async fn charge(claim: Claim, cents: String) -> (StatusCode, String) {
    (StatusCode::CREATED, format!("{} charged {cents} cents", claim.execution()))
}
