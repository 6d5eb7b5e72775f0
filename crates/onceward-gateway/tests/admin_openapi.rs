//! The operators' API as others read it: schemathesis for its document, and the parser of
//! Prometheus' own client for the metrics. Both are in the environment that `cargo xtask test` makes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod gateway_support;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use gateway_support::{Call, Gateway, Upstream, route};
use serde_json::json;

/// A program of the Python environment; `None`, loudly, where there is none.
fn tool(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("tools/python/bin").join(name);
    if !program.exists() {
        eprintln!("SKIPPED: there is no {name}; `cargo xtask test` installs it");
        return None;
    }
    Some(program)
}

fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::any();
    let lines = "lease = \"200ms\"\nmax_run = \"200ms\"";
    let gateway = Gateway::start(&upstream, &format!("admin = \"127.0.0.1:0\"\n{}", route(lines)));
    for key in 0..4 {
        gateway.send(&pay(&format!("paid{key}"))).await;
        gateway.send(&pay(&format!("lost{key}")).told(json!({"status": 504}))).await;
    }
    (upstream, gateway)
}

#[tokio::test]
async fn the_document_is_what_is_served() {
    let Some(schemathesis) = tool("schemathesis") else { return };
    let (_upstream, gateway) = start().await;
    let listed =
        gateway.ask(&Call::new("GET", "/v1/operations?state=unknown&limit=1")).await.json();
    let reference = listed["operations"][0]["operation"].as_str().unwrap();
    let directory = gateway.directory.path();
    std::fs::write(
        directory.join("schemathesis.toml"),
        format!("[parameters]\n\"path.reference\" = \"{reference}\"\n"),
    )
    .unwrap();
    let output = Command::new(schemathesis)
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("http://{}/openapi.json", gateway.admin.unwrap()))
        .args(["--checks", "all", "--max-examples", "25", "--seed", "7", "--no-color"])
        // A cursor of nobody's list is well formed and still refused; without tokens everybody on this
        // machine may ask, and what was purged is shown while it has a trail.
        .args(["--exclude-checks", "positive_data_acceptance,ignored_auth,use_after_free"])
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("Tested: 22"), "{said}");
}

#[tokio::test]
async fn the_metrics_are_what_prometheus_reads() {
    let Some(python) = tool("python") else { return };
    let (_upstream, gateway) = start().await;
    let metrics = gateway.ask(&Call::new("GET", "/metrics")).await;
    assert_eq!(metrics.header("content-type"), Some(onceward::telemetry::PROMETHEUS_CONTENT_TYPE));
    let file = gateway.directory.path().join("metrics.txt");
    std::fs::write(&file, metrics.text()).unwrap();
    let script = "import sys\n\
        from prometheus_client.parser import text_string_to_metric_families as parse\n\
        for family in parse(open(sys.argv[1]).read()):\n\
        \x20   assert family.documentation, family.name\n\
        \x20   print(family.name, family.type, len(family.samples))\n";
    let output = Command::new(python).args(["-c", script]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = String::from_utf8(output.stdout).unwrap();
    let text = metrics.text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in types.filter_map(|line| line.split(' ').next()) {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(read.lines().any(|line| line.split(' ').next() == Some(family)), "{name}:\n{read}");
    }
}
