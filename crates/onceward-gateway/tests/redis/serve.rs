//! What clients get while gateways come and go, and while the server does.

use std::time::Duration;

use serde_json::json;

use crate::{
    gateway_support::{Call, Gateway, Upstream, eventually},
    support::{pay, place, plan, server},
};

/// A retry, another meaning and a large answer, each at the gateway that did not run the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_gateways_one_runs_it_and_both_know_the_answer() {
    let (upstream, store) = (Upstream::any(), place());
    let one = plan(&upstream, &store, "").start();
    let other = plan(&upstream, &store, "").start();
    let first = one.send(&pay("k")).await;
    assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
    let again = other.send(&pay("k")).await;
    assert!(again.is_replay() && again.body == first.body, "{again:?}");
    let meant = other.send(&pay("k").json(json!({ "cents": 6 }))).await;
    assert_eq!(meant.problem(), (422, "key-reused".into()), "{meant:?}");
    let large = one.send(&pay("large").told(json!({ "size": 300_000 }))).await;
    let again = other.send(&pay("large")).await;
    assert!(again.is_replay() && again.body == large.body, "large answers are kept beside");
    assert_eq!((upstream.count_of("k").await, upstream.count_of("large").await), (1, 1));
}

/// Duplicates wait at the other gateway, and hear from the first one that it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_at_another_gateway_waits_for_the_first() {
    let (upstream, store) = (Upstream::any(), place());
    let one = plan(&upstream, &store, "in_flight = \"wait\"\nwait = \"20s\"").start();
    let other = plan(&upstream, &store, "in_flight = \"wait\"\nwait = \"20s\"").start();
    let hurried = plan(&upstream, &store, "in_flight = \"conflict\"").start();
    let running = one.begin(&pay("k").told(json!({ "gate": "g" })));
    upstream.arrival(1).await;
    let refused = hurried.send(&pay("k")).await;
    assert_eq!(refused.problem(), (409, "in-progress".into()), "{refused:?}");
    let waiting = other.begin(&pay("k"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    upstream.open("g").await;
    let (first, second) = (running.await.unwrap(), waiting.await.unwrap());
    assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
    assert!(second.is_replay() && second.body == first.body, "{second:?}");
    assert_eq!(upstream.count_of("k").await, 1);
}

/// `kill -9` while the upstream works: no gateway runs it again, and its outcome is unknown once the lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_gateway_leaves_is_unknown_and_not_run_again() {
    let (upstream, store) = (Upstream::any(), place());
    let lines = "lease = \"300ms\"\nmax_run = \"300ms\"\nin_flight = \"conflict\"";
    let one = plan(&upstream, &store, lines).on_its_own_address().start();
    let other = plan(&upstream, &store, lines).start();
    assert_eq!(one.send(&pay("before")).await.status, 201);
    let running = one.begin(&pay("k").told(json!({ "gate": "never" })));
    upstream.arrival(2).await;
    one.kill();
    assert!(running.await.is_err(), "nobody is there to answer");
    let is_unknown = || async {
        let reply = other.send(&pay("k")).await;
        assert_eq!(reply.status, 409, "{reply:?}");
        reply.code().as_deref() == Some("outcome-unknown")
    };
    eventually("the outcome is unknown", is_unknown).await;
    assert!(other.send(&pay("before")).await.is_replay(), "what had ended is known");
    assert_eq!((upstream.count_of("k").await, upstream.count_of("before").await), (1, 1));
}

/// It is refused before it is run, and may be sent again.
async fn is_refused(gateway: &Gateway, upstream: &Upstream, key: &str) {
    let reply = gateway.send(&pay(key)).await;
    assert_eq!(reply.problem(), (503, "store-unavailable".into()), "{reply:?}");
    assert_eq!(reply.json()["retryable"], true, "{reply:?}");
    assert_eq!(upstream.count_of(key).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_is_missed_before_anything_runs_and_used_again_when_it_is_back() {
    let (server, upstream) = (server(&[]), Upstream::any());
    let gateway = plan(&upstream, &server.url(), "").start();
    let is_ready = || async { gateway.ask(&Call::new("GET", "/ready")).await.status == 200 };
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    for _ in 0..2 {
        server.kill();
        is_refused(&gateway, &upstream, "meanwhile").await;
        let duplicate = gateway.send(&pay("before")).await;
        assert_eq!(duplicate.problem(), (503, "store-unavailable".into()), "{duplicate:?}");
        assert!(!is_ready().await, "balancers are told");
        server.restart();
        let is_back = || async { gateway.send(&pay("before")).await.is_replay() };
        eventually("the gateway recovers by itself", is_back).await;
        eventually("the gateway is ready", is_ready).await;
    }
    let late = gateway.send(&pay("meanwhile")).await;
    assert_eq!((late.status, late.is_replay()), (201, false), "{late:?}");
    assert_eq!((upstream.count_of("before").await, upstream.count_of("meanwhile").await), (1, 1));
    gateway.assert_well();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capabilities_say_what_can_be_lost_with_the_settings_that_were_found() {
    let upstream = Upstream::any();
    for (appendonly, loss) in
        [("no", "loses every record since its last snapshot"), ("yes", "(appendfsync everysec)")]
    {
        let server = server(&[("appendonly", appendonly), ("appendfsync", "everysec")]);
        let gateway = plan(&upstream, &server.url(), "").start();
        let asked = Call::new("GET", "/.onceward/capabilities").header("x-api-key", "alice");
        let for_clients = gateway.send(&asked).await.json();
        let for_operators = gateway.ask(&Call::new("GET", "/v1/capabilities")).await.json();
        for document in [&for_clients, &for_operators] {
            assert_eq!(document["store"], "relaxed", "{document:#}");
            let losses = document["losses"].as_array().unwrap();
            assert!(losses.iter().any(|one| one.as_str().unwrap().contains(loss)), "{document:#}");
        }
    }
}
