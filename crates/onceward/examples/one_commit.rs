//! A charge and its record in one commit: a shop's own SQLite database, with sqlx and axum.
//!
//! ```text
//! cargo run -p onceward --features axum,sqlite,sqlx --example one_commit
//! curl -i localhost:3000/charges -H 'Idempotency-Key: 8e03978e' -d 500    # twice: charged once
//! ```
//!
//! Kill it with `kill -9` whenever you like, start it again and send the same request.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use axum::{Router, extract::State, http::StatusCode, http::request::Parts, routing::post};
use onceward::{
    CommitError, Effect, Scope,
    server::{Claim, Completed, Idempotency},
    store::sqlite::SqliteStore,
};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

async fn charge(
    State(shop): State<SqlitePool>,
    claim: Claim,
    cents: String,
) -> Result<Completed, CommitError> {
    let mut transaction = claim.begin(&shop).await?;
    let insert = "INSERT INTO charge (cents) VALUES (?1) RETURNING id";
    let (id,): (i64,) = sqlx::query_as(insert).bind(&cents).fetch_one(&mut *transaction).await?;
    let answer = (StatusCode::CREATED, format!("charge {id} of {cents} cents\n"));
    claim.commit(transaction, answer).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The records live in the shop's own file: only so can they be committed with its charges.
    let store = SqliteStore::open("shop.db")?;
    let options = SqliteConnectOptions::new().filename("shop.db");
    let shop = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, cents TEXT NOT NULL)")
        .execute(&shop)
        .await?;

    // One shop, one customer. In earnest the scope comes from a verified identity.
    let scope = |_: &Parts| Ok::<_, &str>(Scope::global());
    let idempotency =
        Idempotency::builder(store, scope).effect(Effect::Transactional).require_key().build()?;
    let app = Router::new().route("/charges", post(charge)).layer(idempotency).with_state(shop);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
