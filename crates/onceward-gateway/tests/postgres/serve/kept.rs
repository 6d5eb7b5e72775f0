//! What a service gives to `onceward.complete` is kept and sent by the rules of its route.

use serde_json::{Value, json};

use crate::{
    gateway_support::{Gateway, Plan, Reply},
    serve::Upstream,
    support::{Shop, pay},
};

/// Of a first request whose service commits this, and then answers as it is told; then of a retry.
async fn committed(
    shop: &Shop,
    plan: &Plan,
    upstream: &Upstream,
    (lines, told): (&Value, Value),
) -> (Gateway, Reply, Reply) {
    let gateway = plan.start();
    let mut told = told;
    told["gate"] = "g".into();
    let running = gateway.begin(&pay("one", 5).told(told));
    upstream.arrival(1).await;
    let execution = upstream.last_lines("onceward-execution").await.remove(0);
    shop.database
        .sql(&format!("SELECT onceward.complete('{execution}', 201, '{lines}', 'a planted body')"));
    upstream.open("g").await;
    let first = running.await.unwrap();
    let again = gateway.send(&pay("one", 5)).await;
    assert_eq!(upstream.count().await, 1);
    (gateway, first, again)
}

fn stored(shop: &Shop, text: &str) -> String {
    let asked =
        format!("SELECT count(*) FROM onceward.record WHERE position('{text}' IN body) > 0");
    shop.database.sql(&asked)
}

/// The service gives all of its answer, as the examples do, and need not know of this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_status_and_the_location_are_stored() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let plan = shop.plan(&upstream.url(), "keep = \"status\"");
    let lines = json!([["Location", "/payments/7"], ["X-Token", "a planted line"]]);
    let told = json!({ "body": "a planted body", "headers": lines });
    let (_gateway, first, again) = committed(&shop, &plan, &upstream, (&lines, told)).await;
    assert_eq!((first.status, first.text()), (201, "a planted body"), "the first client gets all");
    assert_eq!(first.header("x-token"), Some("a planted line"));
    assert_eq!(again.problem(), (409, "result-unavailable".into()), "{again:?}");
    assert_eq!(again.header("location"), Some("/payments/7"));
    assert_eq!((stored(&shop, "planted"), stored(&shop, "/payments/7")), ("0".into(), "1".into()));
}

/// SQL has no key to seal with, so that it stores nothing that would have to be sealed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_encryption_a_service_commits_its_status() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let mut plan = shop.plan(&upstream.url(), "keep = \"status\"");
    plan.text += "[encryption]\nkey_env = \"SESAME\"\n";
    let plan = plan.variable("SESAME", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let lines = json!([["Location", "/payments/7"], ["X-Token", "a planted line"]]);
    let told = json!({ "body": "a planted body" });
    let (_gateway, first, again) = committed(&shop, &plan, &upstream, (&lines, told)).await;
    assert_eq!((first.status, first.text()), (201, "a planted body"));
    assert_eq!(again.problem(), (409, "result-unavailable".into()), "{again:?}");
    assert!(again.text().contains("status 201"), "{}", again.text());
    assert_eq!((stored(&shop, "planted"), stored(&shop, "/payments/7")), ("0".into(), "0".into()));
}

/// Lines of one exchange, and those that the route drops, are sent by nobody who answers from the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_lines_that_the_route_replays_are_sent() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let rules = "drop_headers = [\"x-token\"]\nkeep_headers = [\"x-request-id\"]";
    let plan = shop.plan(&upstream.url(), rules);
    let lines = json!([
        ["Set-Cookie", "session=planted"],
        ["Date", "Thu, 01 Jan 1970 00:00:00 GMT"],
        ["X-Token", "planted"],
        ["X-Request-Id", "r7"],
        ["Content-Type", "text/plain"],
    ]);
    let (_gateway, first, again) = committed(&shop, &plan, &upstream, (&lines, json!({}))).await;
    assert_eq!((first.is_replay(), again.is_replay()), (false, true));
    for reply in [first, again] {
        assert_eq!((reply.status, reply.text()), (201, "a planted body"));
        assert_eq!(
            (reply.header("set-cookie"), reply.header("x-token")),
            (None, None),
            "{reply:?}"
        );
        assert_eq!(reply.header("x-request-id"), Some("r7"));
        assert_eq!(reply.header("content-type"), Some("text/plain"));
        assert_ne!(reply.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    }
}

/// Records of before its functions knew what to keep are hidden when they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_before_a_route_kept_its_status_alone_is_not_sent() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let plan = shop.plan(&upstream.url(), "");
    let lines = json!([["Location", "/payments/7"], ["X-Token", "planted"]]);
    let (gateway, _, again) = committed(&shop, &plan, &upstream, (&lines, json!({}))).await;
    assert_eq!((again.status, again.text()), (201, "a planted body"));
    let text = gateway.configuration().replace("key =", "keep = \"status\"\nkey =");
    gateway.reload(&text);
    gateway.wait_for("the routes were read again");
    let hidden = gateway.send(&pay("one", 5)).await;
    assert_eq!(hidden.problem(), (409, "result-unavailable".into()), "{hidden:?}");
    assert_eq!((hidden.header("location"), hidden.header("x-token")), (Some("/payments/7"), None));
}
