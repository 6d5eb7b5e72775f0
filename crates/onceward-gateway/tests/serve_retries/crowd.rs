//! How many are at the upstream at once, and who gives way first.

use crate::{
    gateway_support::{Gateway, Reply, eventually, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state,
};
use tokio::task::JoinHandle;

const ROOM: &str = "GET,HEAD,PUT,POST,DELETE /x/{*rest}";

async fn fill(
    gateway: &Gateway,
    upstream: &Switched,
    name: &str,
    count: usize,
) -> Vec<JoinHandle<Reply>> {
    let before = upstream.count();
    let running = (0..count).map(|_| gateway.begin(&get("/x/held"))).collect();
    upstream.arrival(before + count).await;
    assert_eq!(upstream_state(gateway, name).await["in_flight"], count);
    running
}

#[tokio::test]
async fn a_limit_has_a_state_of_its_own() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", keyless("limit = 2"), route("limit = 1")));
    upstream.mode(Mode::Held(200));
    let running = fill(&gateway, &upstream, ROOM, 2).await;
    assert_eq!(gateway.send(&get("/x/more")).await.problem(), (503, "overloaded".into()));
    let paying = gateway.begin(&pay("a"));
    upstream.arrival(3).await;
    let refused = gateway.send(&pay("b")).await;
    assert_eq!(refused.problem(), (503, "overloaded".into()));
    let status = gateway.status_of(&refused, &pay("b")).await;
    assert_eq!(status.problem(), (404, "operation-not-found".into()), "nothing was written");
    upstream.mode(Mode::Good);
    assert_eq!(gateway.send(&get("/elsewhere")).await.status, 200, "the others have room");
    assert_eq!(upstream.count(), 4);
    assert!(gateway.metric("onceward_gateway_rejected_total{reason=\"limit\"}").await >= 2);
    assert_eq!(gateway.metric("onceward_gateway_upstream_in_flight").await, 3);

    upstream.release();
    for reply in running {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    assert_eq!(paying.await.unwrap().status, 200);
    eventually("all have landed", async || {
        gateway.metric("onceward_gateway_upstream_in_flight").await == 0
    })
    .await;
    assert_eq!(gateway.send(&pay("b")).await.status, 201);
    assert_eq!(gateway.send(&get("/x/more")).await.status, 200);
}

#[tokio::test]
async fn the_least_important_gives_way_first() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("limit = 10"));
    upstream.mode(Mode::Held(200));
    let first = fill(&gateway, &upstream, ROOM, 5).await;
    let lowest = get("/x/1").header("onceward-priority", "0");
    let low_enough = gateway.begin(&lowest);
    upstream.arrival(6).await;
    assert_eq!(upstream.seen()[5].line("onceward-priority"), Some("0"), "it is told");
    let rest: Vec<_> = (0..3).map(|_| gateway.begin(&get("/x/held"))).collect();
    upstream.arrival(9).await;

    assert_eq!(gateway.send(&lowest).await.problem(), (503, "overloaded".into()), "at nine tenths");
    assert_eq!(gateway.metric("onceward_gateway_rejected_total{reason=\"shed\"}").await, 1);
    let normal = gateway.begin(&get("/x/1").header("onceward-priority", "3"));
    upstream.arrival(10).await;
    let told = upstream.seen()[9].line("onceward-priority").map(str::to_owned);
    assert_eq!(told.as_deref(), Some("2"), "a client cannot raise it");
    assert_eq!(gateway.send(&get("/x/1")).await.problem(), (503, "overloaded".into()), "full");

    upstream.release();
    for reply in first.into_iter().chain(rest).chain([low_enough, normal]) {
        assert_eq!(reply.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_trusted_proxy_chooses_the_priority() {
    let upstream = Switched::start().await;
    let text = format!("trusted_proxies = [\"127.0.0.1/32\"]\n{}", keyless("priority = \"low\""));
    let gateway = start(&upstream, &text);
    for (said, told) in [(Some("3"), "3"), (Some("0"), "0"), (Some("nine"), "1"), (None, "1")] {
        let call = said.map_or(get("/x/1"), |said| get("/x/1").header("onceward-priority", said));
        assert_eq!(gateway.send(&call).await.status, 200);
        assert_eq!(upstream.seen().last().unwrap().line("onceward-priority"), Some(told));
    }
}
