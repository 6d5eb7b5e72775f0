//! Proxies, gateways and error pages that know better.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::super::Order;

pub(super) async fn answer_first(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let payload = to_bytes(body, usize::MAX).await.expect("the request is whole");
    let order = Order::of(&parts.headers, String::from_utf8_lossy(&payload).into_owned());
    let request = Request::from_parts(parts, Body::from(payload));
    tokio::spawn(async move {
        // The answer has left by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        next.run(request).await
    });
    let completed = [("idempotency-completed", "Mon, 16 Nov 2026 00:47:43 GMT")];
    (completed, order.answer()).into_response()
}

pub(super) async fn lose_the_tenant(mut request: Request, next: Next) -> Response {
    request.headers_mut().insert("x-tenant", HeaderValue::from_static("everybody"));
    next.run(request).await
}

pub(super) async fn call_replays_ok(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.headers().contains_key("idempotent-replayed") {
        *response.status_mut() = StatusCode::OK;
    }
    response
}

pub(super) async fn call_unknown_a_failure(request: Request, next: Next) -> Response {
    let (mut parts, body) = next.run(request).await.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("the answer is whole");
    let body = String::from_utf8_lossy(&body).replace("outcome-unknown", "not-committed");
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

pub(super) async fn refuse(_: Request, _: Next) -> Response {
    let problem = [(header::CONTENT_TYPE, "application/problem+json")];
    let body = r#"{"code":"store-unavailable"}"#;
    (StatusCode::SERVICE_UNAVAILABLE, problem, body).into_response()
}
