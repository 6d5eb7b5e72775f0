//! Rules 20 to 22: how long a key lives, and what happens without a store.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    gateway_support::{Gateway, Plan, Upstream, route, route_for},
    rules::pay,
};

#[tokio::test]
async fn rules_20_and_21_what_has_expired_is_absent() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("retain = \"1s\"\nlease = \"1s\""));
    let first = gateway.send(&pay("k")).await;
    sleep(Duration::from_millis(1300)).await;
    let status = gateway.status_of(&first, &pay("k")).await;
    assert_eq!(status.problem(), (404, "operation-not-found".into()));
    let other = pay("k").json(json!({"amount": 6}));
    let second = gateway.send(&other).await;
    assert_eq!((second.status, second.is_replay()), (201, false), "not even 422");
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rule_20_an_execution_may_take_longer_than_its_lease() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("lease = \"600ms\"\nin_flight = \"conflict\""));
    let running = gateway.begin(&pay("k").told(json!({"gate": "g"})));
    upstream.arrival(1).await;
    sleep(Duration::from_millis(1800)).await;
    let busy = gateway.send(&pay("k")).await;
    assert_eq!(busy.problem(), (409, "in-progress".into()), "the lease was renewed");
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);
    assert!(gateway.send(&pay("k")).await.is_replay());
}

#[tokio::test]
async fn rule_21_a_key_that_says_it_is_old_may_be_refused() {
    let upstream = Upstream::any();
    let text = route_for("POST /pay", "stale_keys = \"refuse\"") + &route_for("POST /run", "");
    let gateway = Gateway::start(&upstream, &text);
    let old = pay("018b0000-0000-7000-8000-000000000000");
    assert_eq!(gateway.send(&old).await.problem(), (400, "key-expired".into()));
    assert_eq!(gateway.send(&old.retarget("POST", "/run")).await.status, 201);
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_22_without_a_store_nothing_runs_unless_the_route_says_so() {
    let upstream = Upstream::any();
    let text = route("") + &route_for("POST /open", "on_store_down = \"pass\"");
    let gateway = Gateway::start(&upstream, &text);
    let open = pay("k").retarget("POST", "/open");
    let elsewhere = gateway.store().with_extension("away");
    fs::rename(gateway.store(), &elsewhere).unwrap();
    let passed = gateway.send(&open).await;
    assert_eq!((passed.status, passed.is_replay()), (201, false));
    assert_eq!(passed.header("onceward-unprotected"), Some("store-unavailable"));
    let lost = gateway.send(&open.clone().told(json!({"hang_up": true}))).await;
    assert_eq!(lost.problem(), (502, "upstream-failed".into()));
    let document = lost.json();
    assert_eq!((&document["retryable"], &document["safe_new_key"]), (&false.into(), &false.into()));
    assert_eq!(document["operation"].as_str(), passed.header("onceward-operation"));
    assert_eq!(lost.header("onceward-operation"), passed.header("onceward-operation"));
    assert_eq!(lost.header("onceward-unprotected"), Some("store-unavailable"));
    let refused = gateway.send(&pay("k")).await;
    assert_eq!(refused.problem(), (503, "store-unavailable".into()));
    assert!(refused.header("retry-after").is_some());
    assert_eq!((upstream.count_at("/pay").await, upstream.count_at("/open").await), (0, 2));
    fs::rename(&elsewhere, gateway.store()).unwrap();
    let refused = gateway.send(&pay("k")).await;
    assert_eq!(refused.problem(), (503, "store-unavailable".into()), "it may have lost something");
    let gateway = Plan { directory: gateway.kill(), ..Plan::new(&upstream.url(), &text) }.start();
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    let protected = gateway.send(&open).await;
    assert_eq!((protected.status, protected.header("onceward-unprotected")), (201, None));
    assert!(gateway.send(&open).await.is_replay());
}
