//! Pages of other origins: what browsers let them send, and read.

mod browser;
mod upstream_too;

use serde_json::json;

use crate::{
    gateway_support::{Call, Gateway, Plan, Upstream, Version, free_address, route, route_for},
    rules::pay,
};
use browser::{Page, list};

const SHOP: &str = "https://shop.example";
const OFFICE: &str = "https://office.example:8443";
const STRANGER: &str = "https://evil.example";

fn page<'a>(gateway: &'a Gateway, origin: &'a str) -> Page<'a> {
    Page { gateway, origin, with_cookies: true }
}

/// For pages of these origins.
fn text(origins: &[&str]) -> String {
    format!("cors_origins = {origins:?}\n{}", route("key = \"required\""))
}

#[tokio::test]
async fn a_page_of_a_named_origin_sends_keys_and_reads_what_became_of_them() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[OFFICE, SHOP]));
    for version in Version::BOTH {
        let page = page(&gateway, SHOP);
        let call = pay(&format!("{version:?}")).told(json!({"headers": [["x-theirs", "1"]]}));
        let first = page.fetch(version, &call).await.unwrap();
        assert_eq!(first.reply.status, 201);
        assert!(first.header("onceward-operation").is_some());
        assert!(first.header("idempotency-expires").is_some());
        assert!(first.header("idempotency-completed").is_some());
        assert_eq!(first.header("x-theirs"), None, "the upstream has not exposed it");
        // The browser does not have to ask again before a retry that says what it is.
        let headers = list(&page.preflight(version, &call).await, "access-control-allow-headers");
        for name in ["onceward-attempt", "onceward-deadline", "onceward-priority", "prefer"] {
            assert!(headers.contains(&name.to_owned()), "{name}");
        }
        let retry = call.clone().header("onceward-attempt", "2");
        let again = page.fetch_again(version, &retry).await.unwrap();
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("onceward-operation"), first.header("onceward-operation"));
        assert_eq!(again.reply.body, first.reply.body);
    }
    assert_eq!(upstream.count_at("/pay").await, 2, "no preflight came to the upstream");
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn refusals_can_be_read() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[SHOP]));
    let page = page(&gateway, SHOP);
    page.fetch(Version::Http1, &pay("k")).await.unwrap();
    for (call, status, code) in [
        (pay("k").json(json!({"amount": 6})), 422, "key-reused"),
        (pay("k").without_key(), 400, "key-missing"),
        (pay("k").key("a b"), 400, "key-invalid"),
        (pay("k").without("x-api-key"), 401, "scope-missing"),
        (pay("k").retarget("POST", "/x/../pay"), 400, "request-malformed"),
        (pay("k2").told(json!({"hang_up": true})), 504, "outcome-unknown"),
        (pay("k2"), 409, "outcome-unknown"),
    ] {
        let shown = page.fetch(Version::Http1, &call).await.unwrap();
        assert_eq!(shown.reply.problem(), (status, code.into()));
        assert!(shown.header("link").is_some(), "{code}");
        let challenge = shown.header("www-authenticate").is_some();
        assert_eq!(challenge, code == "scope-missing", "{code}");
        let is_unknown = shown.header("onceward-outcome") == Some("unknown");
        assert_eq!(is_unknown, code == "outcome-unknown", "{code}");
    }
    let running = gateway.begin(&pay("k3").told(json!({"gate": "g"})));
    upstream.arrival(3).await;
    let busy = page.fetch(Version::Http1, &pay("k3").header("prefer", "wait=0")).await.unwrap();
    assert_eq!(busy.reply.problem(), (409, "in-progress".into()));
    assert!(busy.header("retry-after").is_some());
    let preferred = pay("k3").header("prefer", "respond-async, wait=0");
    let accepted = page.fetch(Version::Http1, &preferred).await.unwrap();
    let url = accepted.header("location").expect("its page cannot ask there").to_owned();
    let credentials = Call::new("GET", &url).header("x-api-key", "alice");
    let status = page.fetch(Version::Http1, &credentials).await.unwrap();
    assert_eq!(status.reply.json()["state"], "in_progress");
    upstream.open("g").await;
    running.await.unwrap();

    let nothing = format!("http://{}", free_address().unwrap());
    let alone = Plan::new(&nothing, &text(&[SHOP])).start();
    let page = Page { gateway: &alone, ..page };
    let shown = page.fetch(Version::Http1, &pay("k")).await.unwrap();
    assert_eq!(shown.reply.problem(), (502, "upstream-unreachable".into()));
    assert!(shown.header("retry-after").is_some());
}

/// Whatever the documentation tells clients to read, a page can read.
#[tokio::test]
async fn every_header_that_clients_are_told_of_is_exposed() {
    const PAGE: &str = include_str!("../../../../../docs/http-contract.md");
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[SHOP]));
    let page = page(&gateway, SHOP);
    let shown = page.fetch(Version::Http1, &pay("k")).await.unwrap();
    let exposed = list(&shown.reply, "access-control-expose-headers");
    let answers = PAGE.split("## Answers").nth(1).unwrap();
    let told = answers.split('`').skip(1).step_by(2);
    let told = told.filter_map(|word| word.split([':', ' ']).next()).map(str::to_ascii_lowercase);
    let own = ["onceward-", "idempotent-", "idempotency-", "stripe-should"];
    let mut count = 0;
    for name in told.filter(|name| own.iter().any(|own| name.starts_with(own))) {
        // What clients send stands there, too.
        if !["idempotency-key", "onceward-attempt"].contains(&&*name) {
            assert!(exposed.contains(&name), "{name} is not in {exposed:?}");
            count += 1;
        }
    }
    assert!(count > 8, "{count}");
    for name in ["retry-after", "location", "link", "www-authenticate", "preference-applied"] {
        assert!(exposed.contains(&name.to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_replay_is_for_the_page_that_asks_now() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[OFFICE, SHOP]));
    let theirs = json!([["access-control-allow-origin", SHOP], ["vary", "origin"]]);
    let call = pay("k").told(json!({ "headers": theirs }));
    let first = page(&gateway, SHOP).fetch(Version::Http1, &call).await.unwrap();
    assert!(!first.reply.is_replay());
    for origin in [OFFICE, SHOP, OFFICE] {
        let again = page(&gateway, origin).fetch(Version::Http1, &call).await.unwrap();
        assert!(again.reply.is_replay(), "{origin}");
        assert!(list(&again.reply, "vary").contains(&"origin".to_owned()));
    }
    let stranger = page(&gateway, STRANGER).fetch_again(Version::Http1, &call).await;
    assert_eq!(stranger.unwrap_err(), "0 lines of Access-Control-Allow-Origin");
    // A client that is no page hears nothing of it, but a cache does.
    let plain = gateway.send(&call).await;
    assert!(plain.is_replay());
    assert_eq!(plain.header("access-control-allow-origin"), None);
    assert!(list(&plain, "vary").contains(&"origin".to_owned()));
}

#[tokio::test]
async fn every_origin_means_every_page_without_cookies() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&["*"]));
    let theirs = json!([
        ["access-control-allow-origin", STRANGER],
        ["access-control-allow-credentials", "true"]
    ]);
    let call = pay("k").told(json!({ "headers": theirs }));
    for origin in [STRANGER, SHOP, "null"] {
        let without = Page { with_cookies: false, ..page(&gateway, origin) };
        let shown = without.fetch(Version::Http1, &call).await.unwrap();
        assert!(shown.header("onceward-operation").is_some());
        assert_eq!(shown.reply.header("access-control-allow-credentials"), None);
        let with = page(&gateway, origin).fetch(Version::Http1, &call).await;
        assert!(with.is_err(), "{with:?}");
    }
}

#[tokio::test]
async fn origins_are_read_again() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &text(&[SHOP]));
    page(&gateway, SHOP).fetch(Version::Http1, &pay("k")).await.unwrap();
    gateway.reload(&gateway.configuration().replace(SHOP, OFFICE));
    gateway.wait_for("read again");
    assert!(page(&gateway, SHOP).fetch_again(Version::Http1, &pay("k")).await.is_err());
    let shown = page(&gateway, OFFICE).fetch(Version::Http1, &pay("k")).await.unwrap();
    assert!(shown.reply.is_replay());
}

/// The headers in which a route takes keys are among those that a page may send.
#[tokio::test]
async fn a_page_may_send_its_key_under_the_names_of_the_routes() {
    let upstream = Upstream::any();
    let other = route_for("POST /hooks", "key_from = \"header:X-Event\"");
    let text = format!(
        "cors_origins = [{SHOP:?}]\n{}{other}",
        route("key_header = [\"Idempotency-Key\", \"PayPal-Request-Id\"]")
    );
    let gateway = Gateway::start(&upstream, &text);
    let preflight = page(&gateway, SHOP).preflight(Version::Http1, &Call::post("/pay")).await;
    assert_eq!((preflight.status, preflight.body.len()), (204, 0));
    let headers = list(&preflight, "access-control-allow-headers");
    for name in ["idempotency-key", "paypal-request-id", "x-event", "content-type"] {
        assert!(headers.contains(&name.to_owned()), "{name} is not in {headers:?}");
    }
}
