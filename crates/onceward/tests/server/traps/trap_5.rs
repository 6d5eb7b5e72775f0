//! Trap 5: an answer that cannot be stored is not run again either.

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
    routing::post as on_post,
};
use onceward::{conformance::FaultyStore, server::IdempotencyBuilder};

use crate::server_support::{Ledger, Pieces, Reply, data, eventually, layer, memory, post, send};

#[tokio::test(start_paused = true)]
async fn trap_5_unstorable_is_still_once() {
    for status in [201, 422] {
        an_answer_over_the_limit_is_not_run_again(status).await;
        an_event_stream_is_not_run_again(status).await;
    }
    an_answer_that_cannot_be_spooled_is_not_run_again().await;
    headers_that_are_too_many_are_not_run_again().await;
    a_store_that_is_down_at_settlement_is_asked_until_it_is_back().await;
}

/// Runs a handler once, and sees that nobody runs it again; gives the first answer.
async fn once_without_result(
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    respond: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> Reply {
    let (ledger, store) = (Ledger::default(), memory());
    let made = ledger.clone();
    let handler = async move || {
        made.add("charge");
        respond()
    };
    let idempotency = choose(layer(store.clone())).build().unwrap();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let first = send(&app, post("/charges", "k", "{}")).await;
    for prefer in ["wait=0", "wait=5", "respond-async"] {
        let mut retry = post("/charges", "k", "{}");
        retry.headers_mut().insert("prefer", prefer.parse().unwrap());
        let retry = send(&app, retry).await;
        assert_eq!((retry.status.as_u16(), &*retry.code()), (409, "result-unavailable"));
        assert_eq!(retry.header("location"), Some("/charges/7"), "where it can be found");
        assert!(!retry.is_replay() && retry.json()["safe_new_key"] == false);
    }
    assert_eq!(ledger.len(), 1);
    first
}

fn with_location(status: u16, body: Body) -> Response {
    Response::builder().status(status).header("location", "/charges/7").body(body).unwrap()
}

async fn an_answer_over_the_limit_is_not_run_again(status: u16) {
    let piece = "x".repeat(700);
    let expected = piece.repeat(3);
    let first = once_without_result(
        |layer| layer.max_inline(1000).max_response(1000),
        move || {
            let pieces = (0..3).map(|_| data(piece.clone()));
            with_location(status, Body::new(Pieces::of(pieces)))
        },
    )
    .await;
    assert_eq!((first.status.as_u16(), first.text()), (status, &*expected), "all of it, once");
}

async fn an_event_stream_is_not_run_again(status: u16) {
    let first = once_without_result(
        |layer| layer,
        move || {
            let events = Pieces::of([data("data: 1\n\n"), data("data: 2\n\n")]);
            let mut response = with_location(status, Body::new(events));
            let media_type = HeaderValue::from_static("Text/Event-Stream; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, media_type);
            response
        },
    )
    .await;
    assert_eq!(first.text(), "data: 1\n\ndata: 2\n\n");
    assert_eq!(first.status, status);
}

/// Without a spool, an answer over `max_inline` has no place.
async fn an_answer_that_cannot_be_spooled_is_not_run_again() {
    let first = once_without_result(
        |layer| layer.max_inline(10),
        || with_location(201, "more than ten bytes".into()),
    )
    .await;
    assert_eq!(first.text(), "more than ten bytes");
}

async fn headers_that_are_too_many_are_not_run_again() {
    let first = once_without_result(
        |layer| layer,
        || {
            let mut response = with_location(201, "short".into());
            let long = HeaderValue::try_from("x".repeat(40 << 10)).unwrap();
            response.headers_mut().insert("x-long", long);
            response
        },
    )
    .await;
    assert_eq!((first.text(), first.headers["x-long"].len()), ("short", 40 << 10));
}

async fn a_store_that_is_down_at_settlement_is_asked_until_it_is_back() {
    let (ledger, store) = (Ledger::default(), memory());
    let faulty = FaultyStore::new(store.clone(), None);
    let (made, down) = (ledger.clone(), faulty.clone());
    let handler = async move || {
        let number = made.add("charge");
        down.set_down(true);
        (StatusCode::CREATED, format!("charge {number}"))
    };
    let idempotency = layer(faulty.clone()).build().unwrap();
    let engine = idempotency.engine().clone();
    let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
    let request = || post("/charges", "k", "{}");

    let first = send(&app, request()).await;
    assert_eq!((first.status.as_u16(), &*first.code()), (503, "outcome-unknown"));
    assert_eq!(first.json()["retryable"], true);
    assert_eq!(first.header("retry-after"), Some("1"));
    let retry = send(&app, request()).await;
    assert_eq!((retry.status.as_u16(), &*retry.code()), (503, "store-unavailable"));
    assert_eq!(ledger.len(), 1);

    faulty.set_down(false);
    assert_eq!(send(&app, request()).await.code(), "in-progress", "until the end is durable");
    eventually(async || engine.unsettled() == 0).await;
    let replay = send(&app, request()).await;
    assert!(replay.is_replay() && replay.text() == "charge 1", "{replay:?}");
    assert_eq!(ledger.len(), 1);
}
