//! Rule 9: what a second request is told while the first one runs.

use std::time::Duration;

use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    gateway_support::{Call, Gateway, Upstream, Version, eventually, route, upstreams},
    rules::pay,
};

fn gated(key: &str) -> Call {
    pay(key).told(json!({"gate": "g"}))
}

/// A client that gave up too early gets the answer of its first attempt.
#[tokio::test]
async fn rule_9_a_second_request_waits_if_the_route_says_nothing() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let running = gateway.begin(&gated("k"));
        upstream.arrival(1).await;
        let waiters = [gateway.begin(&gated("k")), gateway.begin(&gated("k"))];
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        upstream.open("g").await;
        let first = running.await.unwrap();
        for waiter in waiters {
            let reply = waiter.await.unwrap();
            assert_eq!((reply.status, reply.is_replay(), &reply.body), (201, true, &first.body));
        }
        assert_eq!(upstream.count().await, 1);
    }
}

#[tokio::test]
async fn rule_9_a_duplicate_may_be_told_where_to_look_while_the_first_gets_its_answer() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("in_flight = \"accepted\""));
    let running = gateway.begin(&gated("k"));
    upstream.arrival(1).await;
    for version in Version::BOTH {
        let accepted = gateway.send_by(version, &gated("k")).await;
        assert_eq!((accepted.status, accepted.is_replay()), (202, false));
        assert_eq!(accepted.header("retry-after"), Some("1"));
        let reference = accepted.header("onceward-operation").unwrap();
        let location = accepted.header("location").unwrap();
        assert!(location.ends_with(&format!("/.onceward/operations/{reference}")));
        let status = gateway.status_of(&accepted, &gated("k")).await;
        assert_eq!(status.json()["state"], "in_progress");
    }
    upstream.open("g").await;
    let first = running.await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    let again = gateway.send(&gated("k")).await;
    assert_eq!((again.is_replay(), &again.body, upstream.count().await), (true, &first.body, 1));
}

#[tokio::test]
async fn rule_9_a_second_request_is_told_to_come_again() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route("in_flight = \"conflict\""));
        let running = gateway.begin(&gated("k"));
        upstream.arrival(1).await;
        for version in Version::BOTH {
            let busy = gateway.send_by(version, &gated("k")).await;
            assert_eq!(busy.problem(), (409, "in-progress".into()));
            assert_eq!(busy.header("retry-after"), Some("1"));
        }
        upstream.open("g").await;
        let first = running.await.unwrap();
        let again = gateway.send(&gated("k")).await;
        assert_eq!((first.status, again.is_replay(), &again.body), (201, true, &first.body));
        assert_eq!(upstream.count().await, 1);
    }
}

#[tokio::test]
async fn rule_9_a_route_or_a_request_may_wait_for_the_answer() {
    let upstream = Upstream::any();
    let waiting = Gateway::start(&upstream, &route("in_flight = \"wait\"\nwait = \"20s\""));
    let plain = Gateway::start(&upstream, &route("in_flight = \"conflict\""));
    for (index, (gateway, prefer)) in
        [(&waiting, "handling=lenient"), (&plain, "wait=20")].into_iter().enumerate()
    {
        let (key, gate) = (format!("key-{index}"), format!("gate-{index}"));
        let call = pay(&key).told(json!({ "gate": gate })).header("prefer", prefer);
        let running = gateway.begin(&call);
        upstream.arrival(index as u64 + 1).await;
        let waiters: Vec<_> = (0..5).map(|_| gateway.begin(&call)).collect();
        upstream.open(&gate).await;
        let first = running.await.unwrap();
        assert_eq!((first.status, first.is_replay()), (201, false));
        for waiter in waiters {
            let reply = waiter.await.unwrap();
            assert_eq!((reply.is_replay(), &reply.body), (true, &first.body));
        }
    }
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rule_9_waiting_has_an_end() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("in_flight = \"wait\"\nwait = \"200ms\""));
    let running = gateway.begin(&gated("k"));
    upstream.arrival(1).await;
    assert_eq!(gateway.send(&gated("k")).await.problem(), (409, "in-progress".into()));
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);
}

#[tokio::test]
async fn rule_9_who_does_not_want_to_wait_is_told_where_to_look() {
    let upstream = Upstream::any();
    let by_request = Gateway::start(&upstream, &route(""));
    let by_route = Gateway::start(&upstream, &route("in_flight = \"async\""));
    for (index, (gateway, prefer)) in
        [(&by_request, "respond-async"), (&by_route, "handling=lenient")].into_iter().enumerate()
    {
        let (key, gate) = (format!("key-{index}"), format!("gate-{index}"));
        let call = pay(&key).told(json!({ "gate": gate })).header("prefer", prefer);
        for _ in 0..2 {
            let accepted = gateway.send(&call).await;
            assert_eq!((accepted.status, accepted.is_replay()), (202, false));
            let reference = accepted.header("onceward-operation").unwrap();
            let location = accepted.header("location").unwrap();
            assert!(location.ends_with(&format!("/.onceward/operations/{reference}")));
            let status = gateway.status_of(&accepted, &call).await;
            assert_eq!(status.json()["state"], "in_progress");
        }
        upstream.open(&gate).await;
        eventually("it ends", || async {
            let reply = gateway.send(&call).await;
            reply.status == 201 && reply.is_replay()
        })
        .await;
        assert_eq!(upstream.count_of(&key).await, 1);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_take_the_execution_with_it() {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(""));
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\nx-api-key: alice\r\n\
                    x-do: {\"gate\":\"g\"}\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(head.as_bytes()).await.unwrap();
        upstream.arrival(1).await;
        drop(stream);
        upstream.open("g").await;
        let call = Call::post("/pay").key("k").header("x-api-key", "alice").body("{}");
        eventually("it is stored", || async { gateway.send(&call).await.is_replay() }).await;
        assert_eq!(upstream.count().await, 1);
    }
}
