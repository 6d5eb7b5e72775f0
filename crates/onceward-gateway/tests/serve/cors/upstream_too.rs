//! An upstream that speaks of CORS itself: its word counts for the origins that the gateway does not name.

use serde_json::{Value, json};

use super::{OFFICE, SHOP, STRANGER, browser::list, page, text};
use crate::{
    gateway_support::{Call, Gateway, Reply, Upstream, Version, route},
    rules::pay,
};

/// What the upstream says to a page of this origin.
fn allowing(origin: &str) -> Value {
    json!([
        ["access-control-allow-origin", origin],
        ["access-control-allow-credentials", "true"],
        ["access-control-allow-methods", "POST"],
        ["access-control-allow-headers", "content-type,idempotency-key,x-api-key,x-do"],
        ["access-control-expose-headers", "X-Theirs"],
        ["x-theirs", "1"],
        ["vary", "Accept-Encoding"]
    ])
}

/// A preflight of this origin, which the upstream would answer with these lines.
async fn preflight(gateway: &Gateway, origin: &str) -> Reply {
    let asking = Call::new("OPTIONS", "/pay")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .told(json!({"status": 200, "headers": allowing(origin)}));
    gateway.send(&asking).await
}

#[tokio::test]
async fn a_named_origin_hears_the_gateway_alone() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[SHOP]));
    assert_eq!(preflight(&gateway, SHOP).await.status, 204);
    assert_eq!(upstream.count().await, 0);
    for origin in [SHOP, STRANGER, "*"] {
        let call = pay(origin).told(json!({ "headers": allowing(origin) }));
        let shown = page(&gateway, SHOP).fetch(Version::Http1, &call).await.unwrap();
        assert_eq!(shown.header("x-theirs"), Some("1"), "the upstream exposes it");
        assert!(shown.header("onceward-operation").is_some());
        assert_eq!(list(&shown.reply, "access-control-allow-credentials"), ["true"]);
        assert_eq!(list(&shown.reply, "vary"), ["accept-encoding", "origin"]);
    }
}

#[tokio::test]
async fn other_origins_are_the_upstreams_business() {
    let upstream = Upstream::any();
    let named = text(&[SHOP]);
    for text in [named, route("")] {
        let gateway = Gateway::start(&upstream, &text);
        let before = upstream.count().await;
        let asked = preflight(&gateway, OFFICE).await;
        assert_eq!((asked.status, upstream.count().await), (200, before + 1));
        assert_eq!(list(&asked, "access-control-allow-origin"), [OFFICE]);
        assert_eq!(list(&asked, "access-control-allow-methods"), ["post"]);
        let call = pay("k").told(json!({ "headers": allowing(OFFICE) }));
        let shown = page(&gateway, OFFICE).fetch_again(Version::Http1, &call).await.unwrap();
        assert_eq!(shown.header("x-theirs"), Some("1"));
        assert_eq!(shown.header("onceward-operation"), None, "the upstream does not know it");
        let is_named = text.contains("cors_origins");
        assert_eq!(list(&shown.reply, "vary").contains(&"origin".to_owned()), is_named);
        // What the upstream said to one page is kept for no other, nor for the same one.
        for origin in [OFFICE, STRANGER] {
            let again = page(&gateway, origin).fetch_again(Version::Http1, &call).await;
            assert_eq!(again.unwrap_err(), "0 lines of Access-Control-Allow-Origin");
        }
        let plain = gateway.send(&call).await;
        assert!(plain.is_replay());
        assert_eq!(plain.header("x-theirs"), Some("1"));
        let is_cors = |name: &&http::HeaderName| name.as_str().starts_with("access-control-");
        assert_eq!(plain.headers.keys().find(is_cors), None);
    }
}

/// An operator may keep them, for an upstream that says the same to all pages.
#[tokio::test]
async fn lines_that_a_route_keeps_are_replayed() {
    let upstream = Upstream::any();
    let kept =
        "keep_headers = [\"access-control-allow-origin\", \"access-control-expose-headers\"]";
    let gateway = Gateway::start(&upstream, &route(kept));
    let call = pay("k").told(json!({ "headers": allowing("*") }));
    for _ in 0..2 {
        let reply = gateway.send(&call.clone().header("origin", SHOP)).await;
        assert_eq!(list(&reply, "access-control-allow-origin"), ["*"]);
        assert_eq!(list(&reply, "access-control-expose-headers"), ["x-theirs"]);
    }
}

/// OPTIONS that asks for nothing is for the upstream, also from a named origin.
#[tokio::test]
async fn an_ordinary_options_passes() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[SHOP]));
    let plain = Call::new("OPTIONS", "/pay").header("origin", SHOP);
    let reply =
        gateway.send(&plain.told(json!({"status": 200, "headers": [["allow", "POST"]]}))).await;
    assert_eq!((reply.status, reply.header("allow")), (200, Some("POST")));
    assert_eq!(list(&reply, "access-control-allow-origin"), [SHOP]);
    assert_eq!(upstream.count().await, 1);
}
