//! The service with axum-idempotent. Who calls is a session; its store is in memory.

use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn},
    response::{AppendHeaders, IntoResponse, Response},
    routing::{get, post},
};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::{
    CookieOptions, Session, SessionLayer,
    store::{Ttl, moka::MokaStore},
};
use serde::Deserialize;
use serde_json::json;
use tower_cookies::CookieManagerLayer;

type Total = Arc<AtomicU64>;

#[derive(Deserialize)]
struct Order {
    cents: i64,
    to: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .replay_header_name("Idempotent-Replayed")
        .expire_after(60 * 5);
    let cookie = CookieOptions::build().name("session").max_age(3600).path("/");
    let app = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(from_fn(authenticate))
        .route("/sessions", post(log_in))
        .layer(
            SessionLayer::new(Arc::new(MokaStore::builder().build())).with_cookie_options(cookie),
        )
        .layer(CookieManagerLayer::new())
        .route("/count", get(count))
        .with_state(Total::default());
    let port: u16 = env::var("PORT")?.parse()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    Ok(axum::serve(listener, app).await?)
}

async fn log_in(session: Session<MokaStore>) -> Result<StatusCode, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    let hour = Ttl::new(3600).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    session.set("user", &"somebody".to_owned(), hour, None).await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

async fn authenticate(session: Session<MokaStore>, request: Request, next: Next) -> Response {
    match session.get::<String>("user").await {
        Ok(Some(_)) => next.run(request).await,
        _ => (StatusCode::UNAUTHORIZED, Json(json!({"error": "no session"}))).into_response(),
    }
}

async fn charge(State(total): State<Total>, Json(order): Json<Order>) -> impl IntoResponse {
    tokio::time::sleep(Duration::from_millis(20)).await;
    let id = format!("ch_{}", total.fetch_add(1, Ordering::SeqCst) + 1);
    let lines = AppendHeaders([
        (header::LOCATION, format!("/charges/{id}")),
        (header::LINK, format!("</charges/{id}>; rel=\"self\"")),
        (header::LINK, format!("</refunds/{id}>; rel=\"refund\"")),
    ]);
    let document = Json(json!({"id": id, "cents": order.cents, "to": order.to}));
    (StatusCode::CREATED, lines, document)
}

async fn count(State(total): State<Total>) -> impl IntoResponse {
    Json(json!({"total": total.load(Ordering::SeqCst)}))
}
