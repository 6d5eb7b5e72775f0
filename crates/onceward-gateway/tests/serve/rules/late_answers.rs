//! Rule 12: an answer that comes after `timeout` settles over the unknown outcome; rule 15: an unknown
//! outcome says why.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    gateway_support::{
        Call, Gateway, Plan, Reply, Signal, Upstream, eventually, route, route_for, upstreams,
    },
    rules::pay,
};

const SHORT: &str = "timeout = \"300ms\"";

/// With a listener for operators.
fn plan(upstream: &Upstream, text: &str) -> Plan {
    Plan::new(&upstream.url(), &format!("admin = \"127.0.0.1:0\"\n{text}"))
}

fn gated(gate: &str) -> Call {
    pay("k").told(json!({"gate": gate}))
}

fn assert_unknown(reply: &Reply, status: u16, cause: &str) {
    assert_eq!(reply.problem(), (status, "outcome-unknown".into()));
    assert_eq!(reply.header("onceward-outcome"), Some("unknown"));
    assert_eq!(reply.json()["cause"], cause);
}

fn reference(reply: &Reply) -> String {
    reply.header("onceward-operation").unwrap().to_owned()
}

async fn shown(gateway: &Gateway, reply: &Reply) -> Value {
    let path = format!("/v1/operations/{}", reference(reply));
    gateway.ask(&Call::new("GET", &path)).await.json()
}

#[tokio::test]
async fn rule_12_a_late_answer_settles_over_unknown() {
    for upstream in upstreams() {
        let gateway = plan(&upstream, &route(SHORT)).start();
        let other = plan(&upstream, &route(SHORT)).beside(&gateway).start();
        let first = gateway.send(&gated("g")).await;
        assert_unknown(&first, 504, "no answer in 0.3 s");
        assert_eq!(shown(&gateway, &first).await["state"], "unknown");
        // Duplicates wait for it, also in another process.
        let (here, there) = (gateway.begin(&gated("g")), other.begin(&gated("g")));
        sleep(Duration::from_millis(300)).await;
        assert!(!here.is_finished() && !there.is_finished());
        upstream.open("g").await;
        for waiter in [here, there] {
            let reply = waiter.await.unwrap();
            assert_eq!((reply.status, reply.text(), reply.is_replay()), (201, "receipt 1", true));
            assert_eq!(reply.header("onceward-outcome"), None);
        }
        let document = shown(&gateway, &first).await;
        assert_eq!((&document["state"], &document["cause"]), (&json!("succeeded"), &Value::Null));
        assert_eq!(document["trail"][0]["reason"], "no answer in 0.3 s");
        assert_eq!(upstream.count().await, 1);
    }
}

#[tokio::test]
async fn rule_12_a_body_that_is_late_settles_over_unknown() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(SHORT));
    let slow = pay("k").told(json!({"pause": 1, "body": "two halves"}));
    let first = gateway.send(&slow).await;
    assert_unknown(&first, 504, "no answer in 0.3 s");
    let again = gateway.send(&slow).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (201, "two halves", true));
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_12_a_body_that_is_late_leaves_its_place_to_others() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(&format!("{SHORT}\nlimit = 1")));
    let slow = pay("k").told(json!({"pause": 5, "body": "two halves"}));
    assert_unknown(&gateway.send(&slow).await, 504, "no answer in 0.3 s");
    let begun = Instant::now();
    assert_eq!(gateway.send(&pay("other")).await.status, 201);
    assert!(begun.elapsed() < Duration::from_secs(4));
}

/// Nobody listens any more: a duplicate hears at once why it stays unknown.
#[tokio::test]
async fn rule_12_a_late_answer_that_tells_nothing_is_not_waited_for() {
    for upstream in upstreams() {
        let gateway = plan(&upstream, &route(SHORT)).start();
        for (number, (told, cause)) in [
            (json!({"gate": "0", "status": 502}), "upstream answered 502"),
            (json!({"gate": "1", "hang_up": true}), "connection lost after the request was sent"),
        ]
        .into_iter()
        .enumerate()
        {
            let call = pay(&format!("k{number}")).told(told);
            assert_unknown(&gateway.send(&call).await, 504, "no answer in 0.3 s");
            upstream.open(&number.to_string()).await;
            let known = async || {
                let again = gateway.send(&call.clone().header("prefer", "wait=0")).await;
                again.json()["cause"] == cause
            };
            eventually("the record says why", known).await;
            let asked = Instant::now();
            assert_unknown(&gateway.send(&call).await, 409, cause);
            assert!(asked.elapsed() < Duration::from_secs(4), "a duplicate waited for nothing");
        }
    }
}

#[tokio::test]
async fn rule_12_who_has_waited_long_enough_hears_that_it_is_unknown() {
    let upstream = Upstream::any();
    let lines = |in_flight: &str| format!("{SHORT}\nin_flight = \"{in_flight}\"");
    let text = route_for("POST /wait", &format!("{SHORT}\nwait = \"500ms\""))
        + &route_for("POST /accepted", &lines("accepted"))
        + &route_for("POST /conflict", &lines("conflict"));
    let gateway = Gateway::start(&upstream, &text);
    for (path, waits) in [("/wait", true), ("/accepted", false), ("/conflict", false)] {
        let call = gated("g").retarget("POST", path);
        assert_unknown(&gateway.send(&call).await, 504, "no answer in 0.3 s");
        let asked = Instant::now();
        assert_unknown(&gateway.send(&call).await, 409, "no answer in 0.3 s");
        assert_eq!(asked.elapsed() >= Duration::from_millis(500), waits, "{path}");
    }
}

#[tokio::test]
async fn rule_12_after_max_run_no_answer_counts_and_nobody_waits() {
    let upstream = Upstream::any();
    let lines = format!("{SHORT}\nlease = \"200ms\"\nmax_run = \"1s\"");
    let gateway = Gateway::start(&upstream, &route(&lines));
    assert_unknown(&gateway.send(&gated("g")).await, 504, "no answer in 0.3 s");
    sleep(Duration::from_millis(1200)).await;
    upstream.open("g").await;
    let asked = Instant::now();
    let again = gateway.send(&gated("g")).await;
    assert_unknown(&again, 409, "no answer in 0.3 s");
    assert!(asked.elapsed() < Duration::from_secs(4), "a duplicate waited for nothing");
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_12_what_an_operator_resolved_stays_resolved() {
    let upstream = Upstream::any();
    let gateway = plan(&upstream, &route(SHORT)).start();
    let first = gateway.send(&gated("g")).await;
    let path = format!("/v1/operations/{}/resolve", reference(&first));
    let found = json!({"outcome": "applied", "reason": "seen in the ledger",
        "response": {"status": 202, "body_base64": "b3BlcmF0b3I="}});
    let resolved = gateway.ask(&Call::post(&path).json(found)).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    upstream.open("g").await;
    sleep(Duration::from_millis(500)).await;
    let again = gateway.send(&gated("g")).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (202, "operator", true));
}

#[tokio::test]
async fn rule_12_a_process_that_ends_does_not_wait_for_late_answers() {
    let upstream = Upstream::any();
    let plan = plan(&upstream, &route(SHORT));
    let gateway = plan.start();
    assert_unknown(&gateway.send(&gated("g")).await, 504, "no answer in 0.3 s");
    let (stopped, next) = (Instant::now(), plan.beside(&gateway));
    gateway.signal(Signal::TERM);
    tokio::task::spawn_blocking(move || gateway.wait_for_end()).await.unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(8), "it waited for the upstream");
    upstream.open("g").await;
    let gateway = next.start();
    let again = gateway.send(&gated("g").header("prefer", "wait=0")).await;
    assert_unknown(&again, 409, "no answer in 0.3 s");
    assert_eq!(upstream.count().await, 1);
}

/// Another run is safe there: nobody listens, and a retry runs it.
#[tokio::test]
async fn rule_12_what_may_be_run_again_is_not_listened_for() {
    let upstream = Upstream::any();
    let lines = format!("{SHORT}\neffect = \"repeatable\"\nrerun_within = \"1h\"");
    let gateway = Gateway::start(&upstream, &route(&lines));
    let first = gateway.send(&gated("g")).await;
    assert_eq!(first.code().as_deref(), Some("upstream-failed"));
    assert_eq!(first.header("onceward-outcome"), None);
    let again = gateway.send(&pay("k")).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (201, "receipt 2", false));
}

#[tokio::test]
async fn rule_12_listeners_are_bounded_and_more_change_nothing() {
    let upstream = Upstream::any();
    // Long enough for all of them to be sent.
    let gateway = plan(&upstream, &route("timeout = \"2s\"")).start();
    let call = |number: usize| pay(&format!("k{number}")).told(json!({"gate": "g"}));
    let calls: Vec<_> = (0..300).map(|number| gateway.begin(&call(number))).collect();
    let mut first = Vec::new();
    for call in calls {
        first.push(call.await.unwrap());
    }
    assert!(first.iter().all(|reply| reply.problem() == (504, "outcome-unknown".into())));
    upstream.open("g").await;
    let settled = async || {
        let listed =
            gateway.ask(&Call::new("GET", "/v1/operations?state=succeeded&limit=500")).await;
        listed.json()["operations"].as_array().unwrap().len()
    };
    eventually("those that were listened for have ended", async || settled().await == 256).await;
    let asked = gateway.ask(&Call::new("GET", "/v1/operations?state=unknown&limit=500")).await;
    assert_eq!(asked.json()["operations"].as_array().unwrap().len(), 44);
    gateway.assert_well();
}

#[tokio::test]
async fn rule_15_an_unknown_outcome_says_why() {
    for upstream in upstreams() {
        let repeatable = "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"strict\"";
        let text = route("")
            + &route_for("POST /held", "on_500 = \"hold\"")
            + &route_for("POST /slow", &format!("{SHORT}\n{repeatable}"));
        let gateway = plan(&upstream, &text).start();
        let unknown = json!({"status": 200, "headers": [["Onceward-Outcome", "unknown"]]});
        for (number, (path, told, status, cause)) in [
            ("/pay", json!({"status": 504}), 504, "upstream answered 504"),
            ("/pay", json!({"status": 502}), 502, "upstream answered 502"),
            ("/pay", json!({"hang_up": true}), 504, "connection lost after the request was sent"),
            ("/pay", json!({"cut": 3}), 504, "connection lost after the request was sent"),
            ("/held", json!({"status": 500}), 500, "held by policy after an answer with 500"),
            ("/slow", json!({"pause": 5, "body": "ab"}), 504, "no answer in 0.3 s"),
            ("/pay", unknown, 200, "held by policy after an answer with 200"),
        ]
        .into_iter()
        .enumerate()
        {
            let call = pay(&format!("k{number}")).retarget("POST", path).told(told);
            let first = gateway.send(&call).await;
            assert_eq!((first.status, first.header("onceward-outcome")), (status, Some("unknown")));
            let again = gateway.send(&call).await;
            assert_unknown(&again, 409, cause);
            let status = gateway.status_of(&again, &call).await.json();
            assert_eq!(status["cause"], cause);
            let (advice, detail) = (status["advice"].as_str().unwrap(), again.json());
            assert!(detail["detail"].as_str().unwrap().ends_with(advice), "{status}");
            let document = shown(&gateway, &again).await;
            assert_eq!(
                (&document["cause"], &document["trail"][0]["reason"]),
                (&cause.into(), &cause.into())
            );
        }
    }
}

#[tokio::test]
async fn rule_15_an_owner_that_vanished_is_named_with_its_time() {
    let upstream = Upstream::any();
    let plan = plan(&upstream, &route("lease = \"300ms\"\nmax_run = \"1s\""));
    let gateway = plan.start();
    let _first = gateway.begin(&gated("g"));
    upstream.arrival(1).await;
    let next = plan.beside(&gateway);
    let _directory = gateway.kill();
    let gateway = next.start();
    sleep(Duration::from_millis(500)).await;
    let again = gateway.send(&gated("g")).await;
    assert_eq!(again.problem(), (409, "outcome-unknown".into()));
    let cause = again.json()["cause"].as_str().unwrap().to_owned();
    let time = cause.strip_prefix("owner vanished at ").expect("it says when");
    time.parse::<jiff::Timestamp>().unwrap();
}
