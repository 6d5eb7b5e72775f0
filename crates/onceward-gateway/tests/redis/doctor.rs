//! What the doctor says of servers that are well, weak, full or closed.

use serde_json::Value;
use testbed::RedisServer;

use crate::{
    gateway_support::{Finished, Upstream, command},
    support::{plan, server},
};

/// What it says of a configuration with this store: the report, and each finding with its severity.
fn doctor(store: &str) -> (Value, Vec<(String, String)>) {
    let plan = plan(&Upstream::any(), store, "");
    std::fs::write(plan.directory.path().join(&plan.file), &plan.text).unwrap();
    let mut command = command(&["doctor", "--offline", "--json", "--config", &plan.file]);
    let report = Finished::of(command.current_dir(plan.directory.path())).json();
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let findings = findings.map(|one| (text(one, "code"), text(one, "severity"))).collect();
    (report, findings)
}

fn has(findings: &[(String, String)], code: &str, severity: &str) -> bool {
    findings.contains(&(code.to_owned(), severity.to_owned()))
}

#[test]
fn a_server_that_is_well_is_named_with_what_it_can_lose() {
    let primary = server(&[("maxmemory", "200mb"), ("min-replicas-to-write", "1")]);
    let replica = primary.replica(&[]).unwrap_or_else(|trouble| panic!("{trouble}"));
    let (report, findings) = doctor(&primary.url());
    let store = &report["store"];
    assert_eq!(
        (&report["healthy"], &store["class"]),
        (&true.into(), &"relaxed".into()),
        "{report:#}"
    );
    assert_eq!((&store["appendonly"], &store["appendfsync"]), (&true.into(), &"always".into()));
    assert_eq!((&store["replicas"], &store["min_replicas_to_write"]), (&1.into(), &1.into()));
    assert_eq!(store["maxmemory_policy"], "noeviction");
    let losses = store["losses"].to_string();
    assert!(losses.contains("appendfsync always") && losses.contains("(1 connected)"), "{losses}");
    assert!(has(&findings, "store-failover", "note"), "{findings:?}");
    assert!(findings.iter().all(|(code, _)| !code.contains("outbox")), "{findings:?}");
    let why = report["routes"][0]["why"].as_str().unwrap();
    assert!(why.contains("a retry whose record was lost runs again"), "{why}");
    drop(replica);
    let waiting = doctor(&format!("{}?wait_replicas=2&wait_timeout=0.1", primary.url())).1;
    assert!(has(&waiting, "store-replicas-missing", "problem"), "{waiting:?}");
}

#[test]
fn each_weakness_of_a_server_has_its_name() {
    let weak = server(&[("maxmemory-policy", "volatile-lru"), ("appendonly", "no")]);
    let (report, findings) = doctor(&weak.url());
    assert_eq!((&report["healthy"], &report["store"]["seen"]), (&false.into(), &false.into()));
    assert!(has(&findings, "store-evicts", "problem"), "{findings:?}");
    assert!(has(&findings, "store-no-log", "warning"), "{findings:?}");
    weak.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let (report, findings) = doctor(&weak.url());
    assert_eq!((&report["healthy"], &report["store"]["seen"]), (&true.into(), &true.into()));
    for code in ["store-memory-unbounded", "no-replica"] {
        assert!(has(&findings, code, "note"), "{code}: {findings:?}");
    }
    let (_, findings) = doctor("redis://:sesame@127.0.0.1:1");
    assert!(has(&findings, "store-unreachable", "problem"), "{findings:?}");
}

/// The user that docs/redis.md gives the gateway.
fn documented_user() -> Vec<String> {
    let page = include_str!("../../../../docs/redis.md");
    let (_, rest) = page.split_once("ACL SETUSER").unwrap();
    let (lines, _) = rest.split_once("```").unwrap();
    let words = lines.split_whitespace();
    ["ACL", "SETUSER"].into_iter().chain(words).map(str::to_owned).collect()
}

fn make_user(server: &RedisServer, words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    server.command(&words);
    server.url().replace("://", "://onceward:secret@")
}

#[test]
fn the_documented_user_may_do_everything_and_what_is_missing_is_named() {
    let server = server(&[]);
    let words = documented_user();
    let store = make_user(&server, &[&words[..], &["+config|get".into()]].concat());
    let (report, findings) = doctor(&store);
    assert_eq!(report["healthy"], true, "{report:#}");
    assert!(!findings.iter().any(|(code, _)| code == "store-unseen"), "{findings:?}");
    assert!(!report.to_string().contains("secret@"), "{report:#}");

    make_user(&server, &[&words[..], &["-zadd".into(), "-config|get".into()]].concat());
    let (report, findings) = doctor(&store);
    assert!(has(&findings, "store-rights", "problem"), "{findings:?}");
    assert!(report.to_string().contains("lacks the right to ZADD"), "{report:#}");
    assert!(has(&findings, "store-unseen", "note"), "{findings:?}");
    make_user(&server, &[&words[..], &["+config|get".into(), "-evalsha".into()]].concat());
    assert!(has(&doctor(&store).1, "store-rights", "problem"));
    let wrong = store.replace(":secret@", ":wrong@");
    assert!(has(&doctor(&wrong).1, "store-refused", "problem"));
}

/// With that user a gateway serves, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_serves_as_the_documented_user() {
    let (server, upstream) = (server(&[]), Upstream::any());
    // What is asked and may be refused is not to hide what must not be.
    let words = [documented_user(), vec!["+config|get".to_owned()]].concat();
    let store = make_user(&server, &words);
    let gateway = plan(&upstream, &store, "").start();
    let large = serde_json::json!({ "size": 300_000 });
    for key in ["k", "large"] {
        let call = crate::support::pay(key);
        let call = if key == "large" { call.told(large.clone()) } else { call };
        assert_eq!(gateway.send(&call).await.status, 201);
        assert!(gateway.send(&call).await.is_replay());
    }
    // The driver says its name to newer servers, and does not mind whether it may.
    let refused = server.command(&["ACL", "LOG"]).to_string();
    assert_eq!(
        refused.matches("reason").count(),
        refused.matches("client|setinfo").count(),
        "{refused}"
    );
}
