//! What becomes of the store's files while a gateway runs, and after it was killed.

use std::{fs, path::Path};

use rusqlite::{Connection, config::DbConfig};

use crate::{
    admin::{get, pay, plan, start},
    gateway_support::{Finished, Plan, Signal, Upstream, command},
};

const ALARM: &str = "onceward_alarms_total{event=\"store_replaced\"}";

#[tokio::test]
async fn a_log_that_is_deleted_under_way_stops_new_operations() {
    let upstream = Upstream::any();
    let plan = Plan::new(&upstream.url(), &plan());
    let gateway = plan.start();
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    assert_eq!(gateway.metric(ALARM).await, 0);
    fs::remove_file(format!("{}-wal", gateway.store().display())).unwrap();
    for key in ["after", "later", "before"] {
        let reply = gateway.send(&pay(key)).await;
        assert_eq!(reply.problem(), (503, "store-unavailable".into()), "{key}");
    }
    assert_eq!(upstream.count().await, 1, "nothing was run");
    let ready = gateway.ask(&get("/ready")).await;
    let reason = ready.json()["reason"].as_str().unwrap().to_owned();
    assert_eq!(ready.status, 503);
    assert!(reason.contains("-wal") && reason.contains("deleted or replaced"), "{reason}");
    assert_eq!(gateway.metric(ALARM).await, 1);
    assert!(found(gateway.store().parent().unwrap(), "store-log-gone").contains("SIGTERM"));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_end().success());
    // What had been acknowledged was saved.
    let gateway = plan.start();
    for key in ["before", "after"] {
        assert_eq!(gateway.send(&pay(key)).await.status, 201);
    }
    assert_eq!(upstream.count().await, 2, "each ran once");
}

#[tokio::test]
async fn a_log_that_was_damaged_after_a_kill_is_refused_until_the_loss_is_accepted() {
    let (upstream, gateway) = start().await;
    assert_eq!(gateway.send(&pay("first")).await.status, 201);
    // What an old reader might need is not copied into the file, so that the log alone has the rest.
    let reader = Connection::open(gateway.store()).unwrap();
    reader.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM onceward_record").unwrap();
    let log = format!("{}-wal", gateway.store().display());
    let before = fs::metadata(&log).unwrap().len() as usize;
    for key in ["second", "third", "fourth"] {
        assert_eq!(gateway.send(&pay(key)).await.status, 201);
    }
    let text = gateway.configuration();
    let directory = gateway.kill();
    drop(reader);
    let mut bytes = fs::read(&log).unwrap();
    bytes[before + 100] ^= 1;
    fs::write(&log, bytes).unwrap();

    let run = |arguments: &[&str]| Finished::of(command(arguments).current_dir(directory.path()));
    fs::write(directory.path().join("again.toml"), &text).unwrap();
    let refused = run(&["serve", "--config", "again.toml"]);
    assert_eq!(refused.code, 1, "{refused}");
    for word in ["was durable", "would run again", "restore a backup", "--accept-loss REASON"] {
        assert!(refused.stderr.contains(word), "{word}: {refused}");
    }
    assert!(found(directory.path(), "store-commits-missing").contains("--accept-loss"));
    assert_eq!(upstream.count().await, 4);

    let store = ["migrate", "--store", "sqlite://onceward.db", "--accept-loss"];
    let accepted = run(&[&store[..], &["a bad cable"]].concat());
    assert!(accepted.is_success(), "{accepted}");
    assert!(accepted.stdout.contains("commits was accepted"), "{accepted}");
    let again = run(&[&store[..], &["a bad cable"]].concat());
    assert!(again.stdout.contains("no commit is missing"), "{again}");
    let accepted = Connection::open(directory.path().join("onceward.db")).unwrap();
    let reason = accepted.query_row("SELECT reason FROM onceward_loss", [], |row| row.get(0));
    assert_eq!(reason, Ok("a bad cable".to_owned()));
    drop(accepted);
    assert_eq!(found_codes(directory.path()), [""; 0]);
}

/// What the doctor says is to be done about a problem.
fn found(directory: &Path, code: &str) -> String {
    let document = doctor(directory);
    let findings = document["findings"].as_array().unwrap();
    let problem = findings.iter().find(|one| one["code"] == code && one["severity"] == "problem");
    let mend = problem.unwrap_or_else(|| panic!("{code} was not found: {document:#}"));
    mend["mend"].as_str().unwrap().to_owned()
}

fn found_codes(directory: &Path) -> Vec<String> {
    let document = doctor(directory);
    let findings = document["findings"].as_array().unwrap().clone();
    let problems = findings.into_iter().filter(|one| one["severity"] == "problem");
    problems.map(|one| one["code"].as_str().unwrap().to_owned()).collect()
}

fn doctor(directory: &Path) -> serde_json::Value {
    let file = fs::read_dir(directory).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.ends_with(".toml").then_some(name)
    });
    let arguments = ["doctor", "--offline", "--json", "--config", &file.unwrap()];
    Finished::of(command(&arguments).current_dir(directory)).json()
}
