//! The layer among others: a layer inside a layer, a drain, and a server without axum.

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{Request, Response},
    routing::post as on_post,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use onceward::{Body, Status, server::Claim};
use tokio::{net::TcpListener, task::yield_now, time::sleep};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::{
    executions::charges::{Charges, HOUR, created, request, status},
    server_support::{Gate, Ledger, is_problem, layer, memory, post, raw, send},
};

#[tokio::test]
async fn a_layer_inside_a_layer_is_refused_and_runs_nothing() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = async move || created(made.add("charge"));
    let outer = layer(memory()).build().unwrap();
    let same_engine = outer.with(|layer| layer.operation("inner")).unwrap();
    let other_engine = layer(memory()).build().unwrap();
    for (key, inner) in [("one", same_engine), ("other", other_engine)] {
        let routes = Router::new().route("/charges", on_post(handler.clone()));
        let app = routes.layer(inner).layer(outer.clone());
        let reply = send(&app, post("/charges", key, "{}")).await;
        is_problem(&reply, 500, "misconfigured");
        let unkeyed = Request::post("/charges").body(AxumBody::empty()).unwrap();
        assert_eq!(send(&app, unkeyed).await.status, 201, "what is not covered passes both");
    }
    assert_eq!(ledger.len(), 2, "only the two without a key");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_executions_whose_clients_are_gone() {
    let gate = Gate::closed();
    let held = gate.clone();
    let charges = Charges::new(
        |layer| layer,
        move |number| {
            let gate = held.clone();
            async move {
                gate.pass().await;
                created(number)
            }
        },
    );
    let app = charges.app.clone();
    let client = tokio::spawn(async move { send(&app, request()).await });
    gate.reached().await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    let engine = charges.engine.clone();
    let drain = tokio::spawn(async move { engine.drain(HOUR).await });
    yield_now().await;
    sleep(Duration::from_secs(60)).await;
    assert!(!drain.is_finished(), "it waits for the handler");
    let refused = send(&charges.app, post("/charges", "another", "{}")).await;
    is_problem(&refused, 503, "overloaded");
    gate.open();
    assert_eq!(drain.await.unwrap().abandoned, 0);
    assert_eq!(status(&charges.store).await, Some(Status::Succeeded), "it was settled before");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test]
async fn a_hyper_server_needs_no_axum() {
    let ledger = Ledger::default();
    let made = ledger.clone();
    let handler = service_fn(move |request: Request<Body>| {
        let made = made.clone();
        async move {
            let claim = request.extensions().get::<Claim>().cloned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let number = made.add("charge");
            let attempt = claim.map_or(0, |claim| claim.attempt());
            let text = format!("charge {number}, attempt {attempt}, {} bytes", body.len());
            Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes())))
        }
    });
    let service = layer(memory()).build().unwrap().layer(handler);
    let service = service.map_request(|request: Request<Incoming>| request.map(Body::new));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let send = async |key: &str, body: &str| {
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{key}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        String::from_utf8(raw(address, request.as_bytes()).await).unwrap()
    };
    let first = send("idempotency-key: k\r\n", "12345").await;
    assert!(first.ends_with("charge 1, attempt 1, 5 bytes"), "{first}");
    let replay = send("idempotency-key: \"k\"\r\n", "12345").await;
    assert!(replay.ends_with("charge 1, attempt 1, 5 bytes"), "{replay}");
    assert!(replay.contains("idempotent-replayed: true") && !first.contains("replayed"));
    let other = send("idempotency-key: k\r\n", "54321").await;
    assert!(other.starts_with("HTTP/1.1 422 ") && other.contains("key-reused"), "{other}");
    assert_eq!(ledger.len(), 1);
    let unkeyed = send("", "1").await;
    assert!(unkeyed.ends_with("charge 2, attempt 0, 1 bytes"), "{unkeyed}");
}
