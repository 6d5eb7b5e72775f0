//! Rule 28: what nobody waits for any more is not begun.

use std::time::Duration;

use crate::{
    gateway_support::{Link, Version, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state,
};

fn refused() -> (u16, String) {
    (504, "deadline-exceeded".into())
}

#[tokio::test]
async fn expired_work_is_refused_before_it_is_run() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", route(""), keyless("")));
    let done = gateway.send(&pay("done")).await;
    assert_eq!(done.status, 201);
    for call in [get("/x/1"), get("/no/route"), pay("a"), pay("b").without_key()] {
        let reply = gateway.send(&call.header("onceward-deadline", "0")).await;
        assert_eq!(reply.problem(), refused(), "{reply:?}");
    }
    assert_eq!(upstream.count(), 1, "only what was done before");
    let replay = gateway.send(&pay("done").header("onceward-deadline", "0")).await;
    assert!(replay.is_replay(), "a replay runs nothing");
    assert_eq!(gateway.send(&pay("a")).await.status, 201, "and its key was not bound");
    assert_eq!(gateway.metric("onceward_gateway_rejected_total{reason=\"deadline\"}").await, 4);
}

#[tokio::test]
async fn the_time_that_is_left_is_told_to_the_upstream() {
    let upstream = Switched::start().await;
    let gateway =
        start(&upstream, &format!("{}{}", route("timeout = \"9s\""), keyless("timeout = \"9s\"")));
    let told = async |said: &str, keyed: bool| {
        let call = if keyed { pay(said) } else { get("/x/1") };
        let reply = gateway.send(&call.header("onceward-deadline", said)).await;
        assert!(reply.status < 300, "{reply:?}");
        let seen = upstream.seen();
        let line = seen.last().unwrap().line("onceward-deadline");
        line.map(|line| line.parse::<u64>().unwrap())
    };
    for keyed in [false, true] {
        let left = told("5000", keyed).await.unwrap();
        assert!((1..=5000).contains(&left), "{left}");
        let bounded = told("1000000000000000000", keyed).await.unwrap();
        assert!((1..=9000).contains(&bounded), "no longer than the gateway waits: {bounded}");
        for garbage in ["soon", "-1", "1.5"] {
            assert_eq!(told(garbage, keyed).await, None, "{garbage} was not said");
        }
    }
    assert_eq!(gateway.send(&get("/x/1")).await.status, 200);
    assert_eq!(upstream.seen().last().unwrap().line("onceward-deadline"), None);
}

/// It would be unknown though its answer is there in a moment.
#[tokio::test]
async fn what_has_begun_is_not_cut_off_because_its_client_is_in_a_hurry() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(""));
    upstream.then([Mode::Held(201)]);
    let paying = gateway.begin(&pay("a").header("onceward-deadline", "1500"));
    upstream.arrival(1).await;
    tokio::time::sleep(Duration::from_millis(1700)).await;
    upstream.release();
    assert_eq!(paying.await.unwrap().status, 201);
    assert!(gateway.send(&pay("a")).await.is_replay());
}

#[tokio::test]
async fn whoever_waited_for_too_long_does_not_run() {
    let upstream = Switched::start().await;
    let lines = "in_flight = \"wait\"\nwait = \"20s\"\nnot_applied = [503]";
    let gateway = start(&upstream, &route(lines));
    upstream.then([Mode::Held(503)]);
    let first = gateway.begin(&pay("a"));
    upstream.arrival(1).await;
    let second = gateway.begin(&pay("a").header("onceward-deadline", "100"));
    tokio::time::sleep(Duration::from_millis(1000)).await;
    upstream.release();
    assert_eq!(first.await.unwrap().status, 503, "which frees the key");
    assert_eq!(second.await.unwrap().problem(), refused());
    assert_eq!(upstream.count(), 1);
}

/// Clients in a hurry could else have the breaker opened for all.
#[tokio::test]
async fn a_short_deadline_says_nothing_about_the_upstream() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(""));
    upstream.mode(Mode::Held(200));
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..40 {
        let reply = link.send(&get("/x/1").header("onceward-deadline", "30")).await;
        assert_eq!(reply.status, 504, "{reply:?}");
    }
    assert_eq!(upstream_state(&gateway, "shared").await["circuit"], "closed");
}
