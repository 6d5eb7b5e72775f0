//! What operators change, and what the clients see then.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    admin::{change, lose, pay, reference, show, start},
    gateway_support::{Gateway, Upstream, route, route_for},
};

const WHY: &str = "seen in the ledger";

async fn trail(gateway: &Gateway, reference: &str) -> Vec<Value> {
    gateway.ask(&show(reference)).await.json()["trail"].as_array().unwrap().clone()
}

#[tokio::test]
async fn what_was_applied_is_replayed_from_then_on() {
    let (upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let response = json!({"status": 201, "headers": [["x-number", "7"]], "body": "receipt 7"});
    let found = json!({"outcome": "applied", "response": response, "reason": WHY});
    let resolved = gateway.ask(&change(&lost, "resolve", found.clone())).await;
    assert_eq!((resolved.status, &resolved.json()["state"]), (200, &json!("succeeded")));
    let again = gateway.send(&pay("k")).await;
    assert_eq!(
        (again.status, again.text(), again.header("x-number")),
        (201, "receipt 7", Some("7"))
    );
    assert!(again.is_replay());
    assert_eq!(upstream.count().await, 1);
    let kinds: Vec<_> = trail(&gateway, &lost).await;
    let last = kinds.last().unwrap();
    assert_eq!((&last["kind"], &last["reason"]), (&json!("resolve"), &json!(WHY)));
    assert_eq!(last["actor"], "loopback");
    assert_eq!(
        gateway.ask(&change(&lost, "resolve", found)).await.problem(),
        (409, "not-unknown".into())
    );
}

#[tokio::test]
async fn what_was_applied_without_an_answer_says_so() {
    let (upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let found = json!({"outcome": "applied", "reason": WHY});
    assert_eq!(gateway.ask(&change(&lost, "resolve", found)).await.status, 200);
    assert_eq!(gateway.send(&pay("k")).await.problem(), (409, "result-unavailable".into()));
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn what_was_not_applied_may_run_again_when_it_can_no_longer_happen() {
    let (upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let found = json!({"outcome": "not_applied", "reason": WHY});
    let early = gateway.ask(&change(&lost, "resolve", found.clone())).await;
    // A slow machine may have let lease and longest run pass already.
    if early.status != 200 {
        assert_eq!(early.problem(), (409, "too-early".into()));
        assert!(early.header("retry-after").is_some());
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(gateway.ask(&change(&lost, "resolve", found)).await.status, 200);
    }
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn what_runs_is_only_given_back_by_force() {
    let upstream = Upstream::any();
    // It may run as long as a busy machine takes to get here.
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route("lease = \"1m\"\nmax_run = \"5m\""));
    let gateway = Gateway::start(&upstream, &text);
    let first = gateway.begin(&pay("k").told(json!({"gate": "g"})));
    crate::gateway_support::eventually("it runs", async || upstream.count().await == 1).await;
    let running = crate::admin::listed(&gateway, "?state=in_progress").await;
    let running = running[0]["operation"].as_str().unwrap().to_owned();
    let gently = change(&running, "release", json!({"reason": WHY}));
    assert_eq!(gateway.ask(&gently).await.problem(), (409, "not-releasable".into()));
    let resolve = change(&running, "resolve", json!({"outcome": "applied", "reason": WHY}));
    assert_eq!(gateway.ask(&resolve).await.problem(), (409, "not-unknown".into()));
    let purge = change(&running, "purge", json!({"reason": WHY, "force": true}));
    assert_eq!(gateway.ask(&purge).await.problem(), (409, "open".into()));
    let by_force = change(&running, "release", json!({"reason": WHY, "force": true}));
    let released = gateway.ask(&by_force).await;
    assert_eq!((released.status, &released.json()["state"]), (200, &json!("released")));
    let second = gateway.send(&pay("k").told(json!({"body": "second"}))).await;
    assert_eq!((second.status, second.text()), (201, "second"));
    upstream.open("g").await;
    assert_eq!(first.await.unwrap().problem(), (409, "lease-lost".into()));
    assert_eq!(gateway.send(&pay("k")).await.text(), "second", "the old owner changes nothing");
    let trail = trail(&gateway, &running).await;
    assert_eq!(trail[0]["kind"], "release");
    assert_eq!(trail[0]["reason"], format!("forced: {WHY}"));
}

#[tokio::test]
async fn what_has_ended_is_purged_after_a_minute() {
    let (upstream, gateway) = start().await;
    let paid = reference(&gateway.send(&pay("k")).await);
    let purge = change(&paid, "purge", json!({"reason": WHY}));
    assert_eq!(gateway.ask(&purge).await.problem(), (409, "recent".into()));
    let connection = Connection::open(gateway.store()).unwrap();
    let hour = 3_600_000_000_i64;
    connection.execute("UPDATE onceward_record SET updated_at = updated_at - ?1", [hour]).unwrap();
    let purged = gateway.ask(&purge).await;
    assert_eq!((purged.status, &purged.json()["state"]), (200, &Value::Null), "{}", purged.text());
    assert_eq!(purged.json()["trail"][0]["kind"], "purge");
    assert_eq!(gateway.ask(&purge).await.problem(), (404, "operation-not-found".into()));
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn a_damaged_record_is_only_purged_by_force() {
    let (_upstream, gateway) = start().await;
    let paid = reference(&gateway.send(&pay("k")).await);
    let connection = Connection::open(gateway.store()).unwrap();
    let damage = "UPDATE onceward_record SET body = zeroblob(40), updated_at = 0";
    assert_eq!(connection.execute(damage, []).unwrap(), 1);
    let shown = gateway.ask(&show(&paid)).await.json();
    assert_eq!((&shown["state"], &shown["unreadable"]), (&json!("unknown"), &json!("damaged")));
    let found = json!({"outcome": "applied", "reason": WHY});
    let resolve = gateway.ask(&change(&paid, "resolve", found)).await;
    assert_eq!(resolve.problem(), (409, "unreadable".into()));
    let gently = gateway.ask(&change(&paid, "purge", json!({"reason": WHY}))).await;
    assert_eq!(gently.problem(), (409, "unreadable".into()));
    let by_force = change(&paid, "purge", json!({"reason": WHY, "force": true}));
    assert_eq!(gateway.ask(&by_force).await.status, 200);
    let alarms = gateway.ask(&crate::admin::get("/metrics")).await;
    let line = alarms.text().lines().find(|line| line.contains("event=\"record_unreadable\""));
    assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{line:?}");
}

#[tokio::test]
async fn a_forced_change_is_of_the_run_that_was_seen() {
    let (_upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let seen = gateway.ask(&show(&lost)).await.json()["execution"].as_str().unwrap().to_owned();
    assert!(seen.starts_with(&format!("{lost}.")), "as the upstream got it: {seen}");
    let found = |execution: &str| {
        let found = json!({"outcome": "applied", "reason": WHY, "force": true});
        change(
            &lost,
            "resolve",
            [found, json!({"execution": execution})].iter().fold(json!({}), |mut all, more| {
                all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                all
            }),
        )
    };
    let other = seen.replace(&seen[seen.len() - 4..], "0000");
    assert_eq!(gateway.ask(&found(&other)).await.problem(), (409, "changed".into()));
    assert_eq!(gateway.ask(&found(&seen)).await.status, 200);
}

#[tokio::test]
async fn an_operators_answer_is_kept_as_the_route_says() {
    let upstream = Upstream::any();
    let short = "lease = \"200ms\"\nmax_run = \"1s\"\n";
    let hidden =
        "redact_json = [\"/card\"]\nredact_headers = [\"x-secret\"]\ndrop_headers = [\"x-drop\"]";
    let text = format!(
        "admin = \"127.0.0.1:0\"\n{}{}",
        route_for("POST /pay", &format!("{short}{hidden}")),
        route_for("POST /bare", &format!("{short}keep = \"status\"")),
    );
    let gateway = Gateway::start(&upstream, &text);
    let response = json!({
        "status": 201,
        "headers": [["x-secret", "s"], ["x-drop", "d"], ["set-cookie", "c"], ["content-length", "999"],
            ["onceward-redacted", "true"]],
        "body": "{\"card\":4242}",
    });
    let found = json!({"outcome": "applied", "response": response, "reason": WHY});
    let lost = lose(&gateway, "k").await;
    assert_eq!(gateway.ask(&change(&lost, "resolve", found.clone())).await.status, 200);
    let replay = gateway.send(&pay("k")).await;
    assert_eq!((replay.status, replay.text()), (201, "{\"card\":\"[redacted]\"}"));
    assert_eq!(replay.header("x-secret"), Some("[redacted]"));
    assert_eq!((replay.header("x-drop"), replay.header("set-cookie")), (None, None));
    let bare = pay("b").retarget("POST", "/bare").told(json!({"status": 502}));
    let lost = reference(&gateway.send(&bare).await);
    assert_eq!(gateway.ask(&change(&lost, "resolve", found)).await.status, 200);
    assert_eq!(gateway.send(&bare).await.problem(), (409, "result-unavailable".into()));
    let wrong = json!({"status": 204, "body": "abc"});
    let wrong = json!({"outcome": "applied", "response": wrong, "reason": WHY});
    assert_eq!(
        gateway.ask(&change(&lost, "resolve", wrong)).await.problem(),
        (400, "malformed".into())
    );
}

#[tokio::test]
async fn what_no_route_is_known_of_is_left_alone() {
    let (_upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let other = route_for("POST /other", "");
    let text = gateway.configuration();
    let (top, _) = text.split_once("[[route]]").unwrap();
    gateway.reload(&format!("accept_identity_change = true\n{top}{other}"));
    gateway.wait_for("read again");
    let found = |force: bool| json!({"outcome": "applied", "reason": WHY, "force": force});
    let refused = gateway.ask(&change(&lost, "resolve", found(false))).await;
    assert_eq!(refused.problem(), (409, "route-unknown".into()));
    assert_eq!(gateway.ask(&change(&lost, "resolve", found(true))).await.status, 200);
}

#[tokio::test]
async fn changes_are_counted() {
    let (_upstream, gateway) = start().await;
    let lost = lose(&gateway, "k").await;
    let found = json!({"outcome": "applied", "reason": WHY});
    gateway.ask(&change(&lost, "resolve", found)).await;
    let metrics = gateway.ask(&crate::admin::get("/metrics")).await;
    let line = "onceward_operator_changes_total{action=\"resolve\"} 1";
    assert!(metrics.text().lines().any(|known| known == line), "{}", metrics.text());
}
