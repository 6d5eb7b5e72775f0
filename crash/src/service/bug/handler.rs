//! Handlers that do the right things at the wrong time.

use std::sync::OnceLock;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use onceward::{
    CommitError, Ending, Outcome, crashpoint,
    protocol::{Fence, Found},
    server::Claim,
    store::{Swap, Transactional as _, sqlite::SqliteStore},
};
use sqlx::{Sqlite, Transaction};

use super::super::{INSERT, Order, Shop, broken};

pub(super) async fn end_under_any_fence(
    State(shop): State<Shop>,
    claim: Claim,
    headers: HeaderMap,
    payload: String,
) -> Result<Response, CommitError> {
    let order = Order::of(&headers, payload);
    let store = SqliteStore::builder(&shop.arguments.database).reserve_bytes(0).open();
    let store = store.expect("the layer has opened it too");
    let mut transaction = begin(&shop).await?;
    sqlx::query(INSERT)
        .bind(&order.operation)
        .bind(&order.payload)
        .execute(&mut *transaction)
        .await?;
    let outcome = Outcome::inline(201, format!("charged {}", order.payload).into_bytes());
    let fence = Fence::from_random(fastrand::u128(..).to_be_bytes());
    let mut change = claim.settle(Ending::Succeeded(outcome), fence).change().clone();
    while let Swap::Conflict(Found::Record(stored)) =
        store.swap_in(&mut *transaction, &change).await.map_err(CommitError::NotCommitted)?
    {
        change.expected = Some(stored.record.fence);
    }
    transaction.commit().await?;
    Ok(order.answer().into_response())
}

pub(super) async fn charge_then_commit(
    State(shop): State<Shop>,
    claim: Claim,
    headers: HeaderMap,
    payload: String,
) -> Result<Response, CommitError> {
    let order = Order::of(&headers, payload);
    charge_by_itself(&shop, &order).await?;
    let transaction = begin(&shop).await?;
    Ok(claim.commit(transaction, order.answer()).await?.into_response())
}

pub(super) async fn commit_then_charge(
    State(shop): State<Shop>,
    claim: Claim,
    headers: HeaderMap,
    payload: String,
) -> Result<Response, CommitError> {
    let order = Order::of(&headers, payload);
    let transaction = begin(&shop).await?;
    let completed = claim.commit(transaction, order.answer()).await?;
    charge_by_itself(&shop, &order).await?;
    Ok(completed.into_response())
}

pub(super) async fn charge_or_refuse(
    State(shop): State<Shop>,
    headers: HeaderMap,
    payload: String,
) -> Response {
    let order = Order::of(&headers, payload);
    match crashpoint!("effect", order.ask(&shop, "-").await, broken()) {
        Ok(()) => order.answer().into_response(),
        Err(_) => (StatusCode::PAYMENT_REQUIRED, "the card was declined").into_response(),
    }
}

pub(super) async fn charge_until_done(
    State(shop): State<Shop>,
    headers: HeaderMap,
    payload: String,
) -> Response {
    let order = Order::of(&headers, payload);
    while crashpoint!("effect", order.ask(&shop, "-").await, broken()).is_err() {}
    order.answer().into_response()
}

pub(super) async fn charge_the_first_payload(
    State(shop): State<Shop>,
    headers: HeaderMap,
    payload: String,
) -> Response {
    static FIRST: OnceLock<String> = OnceLock::new();
    let stale = FIRST.get_or_init(|| payload.clone());
    let charged = Order::of(&headers, stale.clone()).ask(&shop, "-").await;
    charged.expect("the provider is there");
    Order::of(&headers, payload).answer().into_response()
}

async fn begin(shop: &Shop) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    let beginning = shop.pool.begin_with("BEGIN IMMEDIATE");
    crashpoint!("own.begin", beginning.await, sqlx::Error::WorkerCrashed)
}

async fn charge_by_itself(shop: &Shop, order: &Order) -> Result<(), sqlx::Error> {
    let insert = sqlx::query(INSERT).bind(&order.operation).bind(&order.payload);
    crashpoint!("effect", insert.execute(&shop.pool).await, sqlx::Error::WorkerCrashed).map(drop)
}
