//! `max_open`: how many operations of one scope run at once.

use serde_json::json;

use crate::{
    gateway_support::{Gateway, Upstream, route},
    protection::pay,
};

#[tokio::test]
async fn one_too_many_is_refused_until_another_has_ended() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("max_open = 2\nin_flight = \"conflict\""));
    let done = gateway.send(&pay("done")).await;
    let slow = |key: &str, gate: &str| pay(key).told(json!({"gate": gate}));
    let first = gateway.begin(&slow("first", "g1"));
    upstream.arrival(2).await;
    let second = gateway.begin(&slow("second", "g2"));
    upstream.arrival(3).await;

    let third = gateway.send(&pay("third")).await;
    assert_eq!(third.problem(), (429, "too-many-open".into()));
    assert_eq!(third.header("retry-after"), Some("1"));
    let document = third.json();
    assert_eq!((&document["retryable"], &document["safe_new_key"]), (&json!(true), &json!(false)));
    let duplicate = gateway.send(&pay("first")).await;
    assert_eq!(duplicate.problem(), (409, "in-progress".into()), "a duplicate is not refused");
    let replay = gateway.send(&pay("done")).await;
    assert!(replay.is_replay() && replay.body == done.body, "nor is a replay");
    let bob = pay("third").without("x-api-key").header("x-api-key", "bob");
    assert_eq!(gateway.send(&bob).await.status, 201, "another caller has his own");
    assert_eq!(upstream.count().await, 4, "the third was not sent");

    upstream.open("g1").await;
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(gateway.send(&pay("third")).await.status, 201, "nothing was claimed before");
    upstream.open("g2").await;
    assert_eq!(second.await.unwrap().status, 201);
}

#[tokio::test]
async fn what_a_caller_chooses_itself_gives_it_no_quota_of_its_own() {
    let upstream = Upstream::any();
    let lines = "max_open = 1\nscope = [\"secret:x-api-key\", \"json:/cart\"]";
    let gateway = Gateway::start(&upstream, &route(lines));
    let of = |cart: &str| pay(cart).json(json!({"cart": cart}));
    let first = gateway.begin(&of("a").told(json!({"gate": "g"})));
    upstream.arrival(1).await;
    assert_eq!(gateway.send(&of("b")).await.problem(), (429, "too-many-open".into()));
    upstream.open("g").await;
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(gateway.send(&of("b")).await.status, 201);
}

#[tokio::test]
async fn what_nobody_knows_the_end_of_does_not_count() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("max_open = 1"));
    for key in ["a", "b", "c"] {
        let lost = gateway.send(&pay(key).told(json!({"hang_up": true}))).await;
        assert_eq!(lost.problem(), (504, "outcome-unknown".into()), "{key}");
    }
    assert_eq!(gateway.send(&pay("d")).await.status, 201);
}

/// The quota belongs to the process: a new configuration does not forget what runs.
#[tokio::test]
async fn a_reload_counts_what_runs_already() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("max_open = 1"));
    let running = gateway.begin(&pay("first").told(json!({"gate": "g"})));
    upstream.arrival(1).await;
    gateway.reload(&gateway.configuration());
    gateway.wait_for("the routes were read again");
    assert_eq!(gateway.send(&pay("second")).await.problem(), (429, "too-many-open".into()));
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);
    assert_eq!(gateway.send(&pay("second")).await.status, 201);
}
