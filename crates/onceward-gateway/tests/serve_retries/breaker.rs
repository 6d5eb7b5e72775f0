//! A failing upstream is left alone, and looked at again.

use crate::{
    gateway_support::{Gateway, Link, Version, eventually, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state,
};

/// Guarded after 5 failures in a row, open after 50 more.
const HOPELESS: usize = 55;

/// The breaker stays open for as long as it may, as the upstream asks for: a test has time to look.
const LONG: Mode = Mode::Busy("5");

async fn circuit(gateway: &Gateway) -> String {
    upstream_state(gateway, "shared").await["circuit"].as_str().unwrap().to_owned()
}

/// One that takes keys, and one that does not.
fn routes() -> String {
    format!("{}{}", keyless(""), route(""))
}

async fn fail(gateway: &Gateway, count: usize) {
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..count {
        assert_eq!(link.send(&get("/x/1")).await.status, 503);
    }
}

#[tokio::test]
async fn it_opens_answers_by_itself_and_recovers() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &routes());
    let done = gateway.send(&pay("done")).await;
    upstream.mode(LONG);
    fail(&gateway, 5).await;
    assert_eq!(circuit(&gateway).await, "guarded");
    fail(&gateway, HOPELESS - 5).await;
    assert_eq!(circuit(&gateway).await, "open");

    let before = upstream.count();
    let refused = gateway.send(&get("/x/1")).await;
    assert_eq!(refused.problem(), (503, "overloaded".into()));
    let pause: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=8).contains(&pause), "{pause}");
    let keyed = gateway.send(&pay("new")).await;
    assert_eq!(keyed.problem(), (503, "overloaded".into()));
    assert!(keyed.header("retry-after").is_some());
    let status = gateway.status_of(&keyed, &pay("new")).await;
    assert_eq!(status.problem(), (404, "operation-not-found".into()), "nothing was written");
    let replay = gateway.send(&pay("done")).await;
    assert!(replay.is_replay() && replay.body == done.body, "a replay needs no upstream");
    assert_eq!(upstream.count(), before, "it was left alone");
    assert!(gateway.metric("onceward_gateway_rejected_total{reason=\"breaker\"}").await >= 2);
    assert_eq!(gateway.metric("onceward_gateway_circuits{state=\"open\"}").await, 1);

    upstream.mode(Mode::Good);
    eventually("it recovers", async || {
        gateway.send(&get("/x/1")).await.status == 200 && circuit(&gateway).await == "closed"
    })
    .await;
    assert_eq!(gateway.send(&pay("new")).await.status, 201);
}

/// Also answers that are stored under their keys say how the upstream is.
#[tokio::test]
async fn stored_errors_count() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &routes());
    upstream.mode(Mode::Status(500));
    for number in 1..=5 {
        assert_eq!(gateway.send(&pay(&format!("k{number}"))).await.status, 500);
    }
    assert_eq!(circuit(&gateway).await, "guarded");
    upstream.mode(LONG);
    fail(&gateway, HOPELESS - 6).await;
    assert_eq!(gateway.send(&pay("last")).await.status, 503);
    assert_eq!(gateway.send(&pay("more")).await.problem(), (503, "overloaded".into()));
    assert!(gateway.send(&pay("k1")).await.is_replay());
    assert_eq!(upstream.count(), HOPELESS);
}

#[tokio::test]
async fn what_concerns_one_client_does_not_count() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &routes());
    upstream.mode(Mode::Status(429));
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..2 * HOPELESS {
        assert_eq!(link.send(&get("/x/1")).await.status, 429);
    }
    assert_eq!((circuit(&gateway).await.as_str(), upstream.count()), ("closed", 2 * HOPELESS));
}

#[tokio::test]
async fn a_route_may_do_without() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("breaker = false"));
    upstream.mode(Mode::Status(500));
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..2 * HOPELESS {
        assert_eq!(link.send(&get("/x/1")).await.status, 500);
    }
    assert_eq!(upstream.count(), 2 * HOPELESS);
    assert_eq!(
        upstream_state(&gateway, "unmatched").await["circuit"],
        "closed",
        "and the others are not judged by it"
    );
}

/// Anybody may send what has no route, without credentials.
#[tokio::test]
async fn what_has_no_route_is_judged_alone() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &routes());
    upstream.mode(LONG);
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..HOPELESS {
        assert_eq!(link.send(&get("/nowhere")).await.status, 503);
    }
    upstream.mode(Mode::Good);
    assert_eq!(gateway.send(&get("/nowhere")).await.problem(), (503, "overloaded".into()));
    assert_eq!(upstream_state(&gateway, "unmatched").await["circuit"], "open");
    assert_eq!(circuit(&gateway).await, "closed");
    assert_eq!(gateway.send(&pay("a")).await.status, 201);
    assert_eq!(gateway.send(&get("/x/1")).await.status, 200);
}
