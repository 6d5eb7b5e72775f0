//! A second request beside a late one: once, and only where nothing is changed.

use std::time::{Duration, Instant};

use tokio::{task::JoinHandle, time::timeout};

use crate::{
    gateway_support::{Gateway, Reply, TEST_TIMEOUT, eventually},
    get, keyless, safe, start,
    switched::{Mode, Switched},
    upstream_state, warm_up,
};

/// More than are needed to know which answer is late.
const SAMPLES: usize = 130;

#[tokio::test]
async fn the_first_good_answer_is_taken() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &safe("hedge = true"));
    let (before, late) = hedged(&gateway, &upstream, [Mode::Held(200), Mode::Good]).await;
    let reply = late.await.unwrap();
    assert_eq!((reply.status, reply.text()), (200, "done"), "not that of the one that is held");
    assert_eq!(upstream.count() - before, 2);
    assert!(hedges(&gateway).await >= 1);
    assert!(gateway.metric("onceward_gateway_upstream_hedges_total{result=\"won\"}").await >= 1);
    eventually("the loser is dropped", async || {
        upstream_state(&gateway, "shared").await["in_flight"] == 0
    })
    .await;
}

#[tokio::test]
async fn a_hedge_that_fails_changes_nothing() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &safe("hedge = true"));
    let (before, late) = hedged(&gateway, &upstream, [Mode::Held(200), Mode::Status(500)]).await;
    let series = "onceward_gateway_upstream_hedges_total{result=\"failed\"}";
    eventually("it fails", async || gateway.metric(series).await >= 1).await;
    upstream.release();
    let reply = late.await.unwrap();
    assert_eq!((reply.status, reply.text()), (200, "held"));
    assert_eq!(upstream.count() - before, 2, "there is one hedge");
}

/// As the client does it: every request has a number of its own, so that a server that counts repeats counts it.
#[tokio::test]
async fn a_hedge_has_a_number_of_its_own() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &safe("hedge = true"));
    let (before, late) = hedged(&gateway, &upstream, [Mode::Held(200), Mode::Good]).await;
    late.await.unwrap();
    let seen = &upstream.seen()[before..];
    let numbers: Vec<_> = seen.iter().map(|request| request.line("onceward-attempt")).collect();
    assert_eq!(numbers, [None, Some("2")]);
}

#[tokio::test]
async fn nothing_else_is_hedged() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", safe("hedge = true"), keyless("")));
    warm_up(&gateway, &get("/x/1"), SAMPLES).await;
    let before = upstream.count();
    upstream.then([Mode::Held(200)]);
    let late = gateway.begin(&get("/x/late"));
    upstream.arrival(before + 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(upstream.count() - before, 1);
    upstream.release();
    assert_eq!(late.await.unwrap().status, 200);
    assert_eq!(hedges(&gateway).await, 0);
}

/// A request whose first answer is late, with the hedge beside it, which are treated so; and how many
/// requests there were before.
///
/// On a busy machine answers become slower all the time. Then too many of them are hedged, none is left to
/// be paid, and the client tries again.
async fn hedged(
    gateway: &Gateway,
    upstream: &Switched,
    modes: [Mode; 2],
) -> (usize, JoinHandle<Reply>) {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        warm_up(gateway, &get("/safe/1"), SAMPLES).await;
        let before = upstream.count();
        upstream.then(modes.clone());
        let late = gateway.begin(&get("/safe/late"));
        let arrived = timeout(Duration::from_secs(3), upstream.arrival(before + 2)).await;
        if arrived.is_ok() {
            return (before, late);
        }
        assert!(Instant::now() < end, "nothing is ever hedged");
        upstream.release();
        late.await.unwrap();
        upstream.start_anew();
    }
}

async fn hedges(gateway: &Gateway) -> u64 {
    upstream_state(gateway, "shared").await["hedges"].as_u64().unwrap()
}
