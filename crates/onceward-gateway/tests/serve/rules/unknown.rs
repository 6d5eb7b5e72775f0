//! Rule 15: what becomes of an operation whose end nobody has seen.

use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    gateway_support::{
        Call, Gateway, Plan, Signal, Upstream, eventually, route, route_for, told_url, upstreams,
    },
    rules::pay,
};

/// The reconcile URL that answers this.
fn reconciled(upstream: &Upstream, answer: &Value) -> String {
    let url = told_url(upstream, "/reconcile", &json!({"status": 200, "body": answer.to_string()}));
    format!("reconcile = \"{url}\"")
}

fn lost(path: &str) -> Call {
    pay("k").retarget("POST", path).told(json!({"hang_up": true}))
}

#[tokio::test]
async fn rule_15_without_anybody_to_ask_it_stays_unknown() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("retain = \"1s\"\nlease = \"1s\""));
    let first = gateway.send(&lost("/pay")).await;
    assert_eq!(first.problem(), (504, "outcome-unknown".into()));
    sleep(Duration::from_millis(1500)).await;
    let again = gateway.send(&lost("/pay")).await;
    assert_eq!(again.problem(), (409, "outcome-unknown".into()));
    let document = again.json();
    assert_eq!((&document["retryable"], &document["safe_new_key"]), (&json!(false), &json!(false)));
    let status = gateway.status_of(&again, &pay("k")).await;
    assert_eq!(status.json()["state"], "unknown");
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_15_the_reconcile_url_says_what_became_of_it() {
    for upstream in upstreams() {
        let body = Base64::encode_string(b"receipt of old");
        let applied = json!({"outcome": "applied", "response": {
            "status": 202, "headers": [["X-Number", "7"]], "body_base64": body,
        }});
        let short = "lease = \"500ms\"\nmax_run = \"500ms\"\n";
        let lines = |answer: &Value| format!("{short}{}", reconciled(&upstream, answer));
        let text = route_for("POST /applied", &lines(&applied))
            + &route_for("POST /bare", &lines(&json!({"outcome": "applied"})))
            + &route_for("POST /never", &lines(&json!({"outcome": "never"})))
            + &route_for("POST /unknown", &lines(&json!({"outcome": "unknown"})))
            + &route_for("POST /nonsense", &lines(&json!({"outcome": "perhaps"})));
        let gateway = Gateway::start(&upstream, &text);
        let paths = ["/applied", "/bare", "/never", "/unknown", "/nonsense"];
        for path in paths {
            let first = gateway.send(&lost(path)).await;
            assert_eq!(first.problem(), (504, "outcome-unknown".into()), "{path}");
        }
        // Before this, it could still be running, and "never" would not be believed.
        sleep(Duration::from_millis(1300)).await;
        let retry = async |path| gateway.send(&lost(path).told(json!({}))).await;

        let again = retry("/applied").await;
        assert_eq!((again.status, again.text(), again.is_replay()), (202, "receipt of old", true));
        assert_eq!(again.header("x-number"), Some("7"));
        let again = retry("/bare").await;
        assert_eq!(again.problem(), (409, "result-unavailable".into()));
        let again = retry("/never").await;
        assert_eq!((again.status, again.is_replay()), (201, false));
        for path in ["/unknown", "/nonsense"] {
            assert_eq!(retry(path).await.problem(), (409, "outcome-unknown".into()), "{path}");
        }
        for path in paths {
            let runs = if path == "/never" { 2 } else { 1 };
            assert_eq!(upstream.count_at(path).await, runs, "{path}");
        }
    }
}

#[tokio::test]
async fn rule_15_the_question_names_the_execution() {
    let upstream = Upstream::any();
    let line = reconciled(&upstream, &json!({"outcome": "unknown"}));
    let gateway = Gateway::start(&upstream, &route(&line));
    let first = gateway.send(&lost("/pay")).await;
    let execution = upstream.last_lines("onceward-execution").await.remove(0);
    for _ in 0..3 {
        gateway.send(&lost("/pay")).await;
    }
    let seen = upstream.seen().await;
    let questions: Vec<&Value> =
        seen.iter().filter(|one| one["path"].as_str().unwrap().starts_with("/reconcile")).collect();
    assert_eq!(questions.len(), 1, "it is asked at most once in five seconds");
    let question: Value = serde_json::from_str(questions[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(questions[0]["method"], "POST");
    assert_eq!(question["execution"], execution);
    assert_eq!(question["operation"], first.header("onceward-operation").unwrap());
    assert_eq!(question["attempt"], 1);
    assert!(question["started_at"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn rule_15_never_is_not_believed_while_it_could_still_be_running() {
    let upstream = Upstream::any();
    let line = reconciled(&upstream, &json!({"outcome": "never"}));
    let gateway = Gateway::start(&upstream, &route(&line));
    gateway.send(&lost("/pay")).await;
    let again = gateway.send(&lost("/pay").told(json!({}))).await;
    assert_eq!(again.problem(), (409, "outcome-unknown".into()));
    assert_eq!(upstream.count_at("/pay").await, 1);
}

#[tokio::test]
async fn rule_15_a_gateway_that_was_asleep_settles_late() {
    let upstream = Upstream::any();
    let text = route("lease = \"400ms\"");
    let asleep = Gateway::start(&upstream, &text);
    let awake = Plan::new(&upstream.url(), &text).beside(&asleep).start();
    let running = asleep.begin(&pay("k").told(json!({"gate": "g"})));
    upstream.arrival(1).await;
    asleep.signal(Signal::STOP);
    upstream.open("g").await;
    eventually("its lease is over", || async {
        awake.send(&pay("k")).await.problem() == (409, "outcome-unknown".into())
    })
    .await;
    asleep.signal(Signal::CONT);
    eventually("it is settled", || async { awake.send(&pay("k")).await.is_replay() }).await;
    let first = running.await.unwrap();
    assert_eq!(first.body, awake.send(&pay("k")).await.body);
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn a_gateway_that_was_killed_leaves_an_unknown_and_never_runs_it_again() {
    let upstream = Upstream::any();
    let text = route("lease = \"400ms\"");
    let killed = Gateway::start(&upstream, &text);
    let next = Plan::new(&upstream.url(), &text).beside(&killed).start();
    let _lost = killed.begin(&pay("k").told(json!({"delay": 1})));
    upstream.arrival(1).await;
    killed.kill();
    eventually("its lease is over", || async {
        next.send(&pay("k")).await.problem() == (409, "outcome-unknown".into())
    })
    .await;
    assert_eq!(upstream.count().await, 1);
}
