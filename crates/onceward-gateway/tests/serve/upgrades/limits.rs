//! Tunnels count like the answers that they begin with.

use super::{ask, asking, rest, tunnel, upstream};
use crate::gateway_support::{Call, Gateway, Plan, eventually, route, route_for};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

async fn refused(gateway: &Gateway) {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let told = ask(&mut stream, &asking("chat/1", "")).await;
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.contains("retry-after"), "{told}");
}

/// Opens tunnels up to this limit, sees one more refused, and a place freed with each that ends.
async fn at_most(options: &str, routes: &str, most: usize) {
    let chat = upstream::chat().await;
    let text = format!("admin = \"127.0.0.1:0\"\n{options}\n{}{routes}", route(""));
    let gateway = Plan::new(&format!("http://{chat}"), &text).start();
    let mut open = Vec::new();
    for _ in 0..most {
        open.push(tunnel(&gateway).await);
    }
    refused(&gateway).await;
    assert_eq!(gateway.metric("onceward_gateway_tunnels").await, most as u64);
    assert!(gateway.metric("onceward_gateway_connections").await >= most as u64);
    let mut last = open.pop().unwrap();
    last.shutdown().await.unwrap();
    assert_eq!(rest(&mut last).await, "");
    let answers = "onceward_gateway_upstream_answers";
    eventually("its place is free", || async { gateway.metric(answers).await < most as u64 }).await;
    open.push(tunnel(&gateway).await);
    refused(&gateway).await;
}

/// A route for what the tests ask; what has no route has half of the places.
fn socket(lines: &str) -> String {
    route_for("GET /socket", &format!("key = \"off\"\n{lines}"))
}

#[tokio::test]
async fn tunnels_are_at_most_as_many_as_answers() {
    at_most("max_answers = 3\npeer_share = 1.0", &socket(""), 3).await;
}

#[tokio::test]
async fn one_client_has_its_share_of_them() {
    at_most("max_answers = 8\npeer_share = 0.5", &socket(""), 4).await;
}

#[tokio::test]
async fn a_tunnel_has_a_place_of_its_routes_limit() {
    let own = socket("limit = 2");
    at_most("", &own, 2).await;
    let chat = upstream::chat().await;
    let text = format!("{}{own}", route(""));
    let gateway = Plan::new(&format!("http://{chat}"), &text).start();
    let _open = (tunnel(&gateway).await, tunnel(&gateway).await);
    let beside = gateway.send(&Call::new("GET", "/elsewhere")).await;
    assert_ne!(beside.status, 503, "other routes have other places");
}
