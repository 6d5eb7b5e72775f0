//! Where operators are answered, and where not.

use std::collections::BTreeSet;

use crate::{
    admin::{get, pay, plan, start},
    gateway_support::{Gateway, Plan, Signal, Upstream, eventually, raw, route},
};
use serde_json::json;

#[tokio::test]
async fn the_public_listener_knows_nothing_of_operators() {
    let (upstream, gateway) = start().await;
    let before = upstream.count().await;
    for path in ["/v1/operations", "/metrics", "/health", "/ready", "/openapi.json", "/v1/config"] {
        let reply = gateway.send(&get(path)).await;
        assert!(!reply.text().contains("onceward"), "{path}: {}", reply.text());
    }
    assert!(upstream.count().await > before, "they are the upstream's");
    let none = Gateway::start(&upstream, &route(""));
    assert!(none.admin.is_none());
}

#[tokio::test]
async fn without_a_token_only_this_machine_is_answered() {
    let (_upstream, gateway) = start().await;
    let from = |name, value: &str| get("/v1/operations").header(name, value);
    for foreign in [from("host", "evil.example"), from("origin", "https://evil.example")] {
        assert_eq!(gateway.ask(&foreign).await.problem(), (403, "forbidden".into()));
    }
    assert_eq!(gateway.ask(&from("host", "localhost")).await.status, 200);
    let nameless = raw(gateway.admin.unwrap(), "GET /v1/operations HTTP/1.0\r\n\r\n").await;
    assert!(nameless.starts_with("HTTP/1.0 403"), "{nameless}");
    assert_eq!(gateway.ask(&get("/health").header("host", "evil.example")).await.status, 200);
}

fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    let plan = Plan::new("http://127.0.0.1:1", text);
    let with = |plan: Plan, (name, value): &(&str, &str)| plan.variable(name, value);
    variables.iter().fold(plan, with).refusal()
}

#[test]
fn it_is_not_opened_to_others_without_tokens() {
    let route = route("");
    let said = refused(&format!("admin = \"0.0.0.0:0\"\n{route}"), &[]);
    assert!(said.contains("[admin_tokens]") && said.contains("other machines"), "{said}");
    let tokens = "[admin_tokens]\nops = { token_env = \"OPS\", role = \"read\" }\n";
    let text = format!("admin = \"127.0.0.1:0\"\n{route}{tokens}");
    for variables in [&[][..], &[("OPS", "short")]] {
        let said = refused(&text, variables);
        let word = if variables.is_empty() { "not set" } else { "16 characters" };
        assert!(said.contains("OPS") && said.contains(word), "{said}");
        assert!(!said.contains("short;"), "{said}");
    }
    for (line, word) in [
        ("ops = \"secret\"", "a table"),
        ("ops = { role = \"read\" }", "token_env"),
        ("ops = { token_env = \"OPS\" }", "role"),
        ("ops = { token_env = \"OPS\", role = \"root\" }", "read"),
        ("\"o ps\" = { token_env = \"OPS\", role = \"read\" }", "letters"),
        ("", "empty"),
    ] {
        let said =
            refused(&format!("admin = \"127.0.0.1:0\"\n{route}[admin_tokens]\n{line}\n"), &[]);
        assert!(said.contains(word), "{line}: {said}");
    }
    let twice = "[admin_tokens]\na = { token_env = \"OPS\", role = \"read\" }\n\
                 b = { token_env = \"OPS\", role = \"purge\" }\n";
    let text = format!("admin = \"127.0.0.1:0\"\n{route}{twice}");
    let said = refused(&text, &[("OPS", "long enough to be a token")]);
    assert!(said.contains("second name"), "{said}");
}

#[tokio::test]
async fn who_stops_is_healthy_but_not_ready() {
    let upstream = Upstream::any();
    let gateway = Plan::new(&upstream.url(), &plan()).start();
    assert_eq!(gateway.ask(&get("/ready")).await.json(), json!({"ready": true}));
    let running = gateway.begin(&pay("k").told(json!({"gate": "g"})));
    eventually("it runs", async || upstream.count().await == 1).await;
    gateway.signal(Signal::TERM);
    eventually("it is not ready", async || gateway.ask(&get("/ready")).await.status == 503).await;
    assert_eq!(gateway.ask(&get("/health")).await.status, 200);
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);
    assert!(gateway.wait_for_end().success());
}

#[tokio::test]
async fn the_configuration_in_effect_is_the_one_that_was_read_last() {
    let (_upstream, gateway) = start().await;
    let retain = async || {
        let config = gateway.ask(&get("/v1/config")).await.json();
        config["routes"].as_array().unwrap().len()
    };
    assert_eq!(retain().await, 1);
    let more = crate::gateway_support::route_for("POST /more", "");
    gateway.reload(&format!("{}{more}", gateway.configuration()));
    gateway.wait_for("read again");
    assert_eq!(retain().await, 2);
    let capabilities = gateway.ask(&get("/v1/capabilities")).await.json();
    assert_eq!(capabilities["routes"][0]["tier"], "T3", "{capabilities}");
    assert_eq!(capabilities["routes"][1]["match"], "POST /more", "{capabilities}");
}

#[tokio::test]
async fn what_counts_after_a_restart_is_not_shown_as_if_it_did() {
    let (_upstream, gateway) = start().await;
    let before = gateway.ask(&get("/v1/config")).await.json();
    let text = gateway.configuration();
    gateway.reload(&text.replace("admin = \"127.0.0.1:0\"", "admin = \"127.0.0.1:9\""));
    gateway.wait_for("counts only after a restart");
    gateway.wait_for("read again");
    assert_eq!(gateway.ask(&get("/v1/config")).await.json()["admin"], before["admin"]);
}

#[tokio::test]
async fn a_store_that_takes_no_changes_is_not_ready() {
    let (_upstream, gateway) = start().await;
    let other = rusqlite::Connection::open(gateway.store()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(gateway.ask(&get("/ready")).await.status, 503);
    other.execute_batch("ROLLBACK").unwrap();
    eventually("it is ready again", async || gateway.ask(&get("/ready")).await.status == 200).await;
}

#[tokio::test]
async fn the_metrics_are_those_of_the_page_and_nothing_else() {
    let page = include_str!("../../../../../docs/metrics.md");
    // The gateway has no relay and does not call with the library's client, whose metrics come with their first use.
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `onceward_"));
    let is_gateways = |row: &&str| !row.starts_with("client_") && !row.starts_with("relay_");
    let rows = rows.filter(is_gateways);
    let documented: BTreeSet<String> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | ").unwrap();
            format!("onceward_{name} {}", rest.split(" |").next().unwrap())
        })
        .collect();
    let (_upstream, gateway) = start().await;
    let metrics = gateway.ask(&get("/metrics")).await;
    assert_eq!(metrics.header("content-type"), Some(onceward::telemetry::PROMETHEUS_CONTENT_TYPE));
    let text = metrics.text();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(documented, shown.map(str::to_owned).collect());
}
