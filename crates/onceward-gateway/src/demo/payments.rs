//! The sample service: a payments API as anybody would write it, and one layer around it.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use onceward::{
    Effect, Engine, Scope,
    server::{Claim, Idempotency, InFlight},
    stores::sqlite::SqliteStore,
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

/// Who calls, in this demo. A real service does not believe such a header: it takes the caller from
/// an identity that its authentication has verified.
pub(super) const CALLER: &str = "x-api-key";
/// The operation's name in the records.
pub(super) const OPERATION: &str = "charge.create";
/// The file of the records.
pub(super) const RECORDS: &str = "onceward.db";
/// How long a duplicate waits for the answer before it is told 409.
const PATIENCE: Duration = Duration::from_millis(40);
/// How far back the charges of a tap are looked for while it rains.
const RECENT: usize = 10_000;

/// The state of the service.
#[derive(Default)]
pub(super) struct Payments {
    /// Nothing here is unique: a charge that is made twice is here twice.
    ledger: Mutex<Vec<Charge>>,
    executions: AtomicU64,
    requests_inside: AtomicU64,
}

/// Money that was taken.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    /// The `Idempotency-Key` under which it was taken: only the verifier looks at it.
    pub(super) key: String,
    pub(super) caller: String,
    pub(super) cents: u32,
    /// What the handler answered.
    pub(super) answer: Bytes,
}

#[derive(Deserialize)]
struct NewCharge {
    customer: String,
    cents: u32,
}

impl Payments {
    /// Everything that was charged so far.
    pub(super) fn ledger(&self) -> Vec<Charge> {
        self.lock().clone()
    }

    /// How often anybody was charged.
    pub(super) fn charges(&self) -> u64 {
        self.lock().len() as u64
    }

    /// How often the tap with this key was charged; it must be a recent one.
    pub(super) fn charges_of(&self, key: &str) -> usize {
        self.lock().iter().rev().take(RECENT).filter(|charge| charge.key == key).count()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Charge>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the handler ran.
    pub(super) fn executions(&self) -> u64 {
        self.executions.load(Ordering::Relaxed)
    }

    /// How many requests are being answered.
    pub(super) fn requests_inside(&self) -> u64 {
        self.requests_inside.load(Ordering::Relaxed)
    }

    /// The API with its writes protected, and with the status of each of them.
    pub(super) fn protected(self: &Arc<Self>, idempotency: &Idempotency) -> Router {
        let routes = Router::new()
            .route("/charges", post(charge).get(charges))
            .layer(idempotency.clone())
            .merge(idempotency.status_routes());
        self.counting(routes)
    }

    /// The same API without Onceward.
    pub(super) fn unprotected(self: &Arc<Self>) -> Router {
        self.counting(Router::new().route("/charges", post(charge_unprotected).get(charges)))
    }

    fn counting(self: &Arc<Self>, routes: Router<Arc<Self>>) -> Router {
        let inside = middleware::from_fn_with_state(self.clone(), count_inside);
        routes.layer(inside).with_state(self.clone())
    }

    /// Takes the money, in as long as a card network needs.
    async fn take(&self, key: &str, caller: &str, new: &NewCharge) -> Response {
        self.executions.fetch_add(1, Ordering::Relaxed);
        card_network().await;
        let charge = json!({
            "id": format!("ch_{}", Uuid::now_v7().simple()),
            "customer": new.customer,
            "cents": new.cents,
        });
        let answer = Bytes::from(charge.to_string());
        self.lock().push(Charge {
            key: key.to_owned(),
            caller: caller.to_owned(),
            cents: new.cents,
            answer: answer.clone(),
        });
        // The money is gone; its receipt is still on the way.
        card_network().await;
        (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], answer).into_response()
    }
}

/// One layer on a SQLite file; everything else is left as it is.
pub(super) fn idempotency(directory: &Path) -> Result<Idempotency, Box<dyn std::error::Error>> {
    let engine = Engine::new(SqliteStore::open(directory.join(RECORDS))?);
    let idempotency = Idempotency::builder(engine, |request| scope(&request.headers))
        .operation(OPERATION)
        .require_key()
        .effect(Effect::External)
        .in_flight(InFlight::Wait(PATIENCE))
        .build()?;
    Ok(idempotency)
}

/// Whose operation it is: a key of one caller means nothing to another.
pub(super) fn scope_of(caller: &str) -> Result<Scope, String> {
    Scope::of("caller", caller).map_err(|error| error.to_string())
}

fn scope(headers: &HeaderMap) -> Result<Scope, String> {
    scope_of(caller(headers).map_err(|error| error.to_string())?)
}

fn caller(headers: &HeaderMap) -> Result<&str, NotSignedIn> {
    headers.get(CALLER).and_then(|caller| caller.to_str().ok()).ok_or(NotSignedIn)
}

async fn charge(
    State(payments): State<Arc<Payments>>,
    claim: Claim,
    headers: HeaderMap,
    Json(new): Json<NewCharge>,
) -> Result<Response, NotSignedIn> {
    Ok(payments.take(claim.operation().key().as_str(), caller(&headers)?, &new).await)
}

async fn charge_unprotected(
    State(payments): State<Arc<Payments>>,
    headers: HeaderMap,
    Json(new): Json<NewCharge>,
) -> Result<Response, NotSignedIn> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    Ok(payments.take(key, caller(&headers)?, &new).await)
}

/// What this caller was charged.
async fn charges(
    State(payments): State<Arc<Payments>>,
    headers: HeaderMap,
) -> Result<Response, NotSignedIn> {
    let caller = caller(&headers)?;
    let ledger = payments.lock();
    let own = || ledger.iter().filter(|charge| charge.caller == caller);
    let charges = own().map(|charge| serde_json::from_slice(&charge.answer).unwrap_or_default());
    let list = json!({
        "count": own().count(),
        "total_cents": own().map(|charge| u64::from(charge.cents)).sum::<u64>(),
        "charges": charges.collect::<Vec<serde_json::Value>>(),
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], list.to_string()).into_response())
}

/// Mostly quick, sometimes much slower than anybody likes to wait.
async fn card_network() {
    let slow = fastrand::u8(..100) < 3;
    let took_ms = if slow { fastrand::u64(60..=160) } else { fastrand::u64(1..=6) };
    sleep(Duration::from_millis(took_ms)).await;
}

async fn count_inside(
    State(payments): State<Arc<Payments>>,
    request: Request,
    next: Next,
) -> Response {
    let _inside = Inside::enter(payments);
    next.run(request).await
}

/// Also left when the connection goes away and nobody waits for the answer any more.
struct Inside(Arc<Payments>);

impl Inside {
    fn enter(payments: Arc<Payments>) -> Self {
        payments.requests_inside.fetch_add(1, Ordering::Relaxed);
        Self(payments)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.requests_inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct NotSignedIn;

impl fmt::Display for NotSignedIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("say who you are: X-Api-Key: any-name")
    }
}

impl IntoResponse for NotSignedIn {
    fn into_response(self) -> Response {
        (StatusCode::UNAUTHORIZED, self.to_string()).into_response()
    }
}
