//! `onceward keys`, on the store itself and through the operators' listener.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};
use testbed::Process;

use crate::gateway_support::{
    Call, Finished, Gateway, Link, Plan, Upstream, Version, command, route,
};

fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({"amount": 5}))
}

async fn lose(gateway: &Gateway, key: &str) -> String {
    let reply = gateway.send(&pay(key).told(json!({"status": 502}))).await;
    reply.header("onceward-operation").unwrap().to_owned()
}

const TOKEN: &str = "a-token-of-the-operators";

fn start(upstream: &Upstream) -> Gateway {
    let lines = "name = \"charge.create\"\nlease = \"200ms\"\nmax_run = \"1s\"\nretain = \"48h\"";
    let tokens = "[admin_tokens]\nops = { token_env = \"OPS\", role = \"purge\" }\n";
    let text = format!("admin = \"127.0.0.1:0\"\n{}{tokens}", route(lines));
    Plan::new(&upstream.url(), &text).variable("OPS", TOKEN).start()
}

/// Where a command asks.
#[derive(Clone, Copy, Debug)]
enum CommandTarget {
    Usual,
    Config,
    Store,
    Admin,
}

impl CommandTarget {
    const ALL: [Self; 4] = [Self::Usual, Self::Config, Self::Store, Self::Admin];
}

fn keys(gateway: &Gateway, target: CommandTarget, arguments: &[&str]) -> Command {
    let mut command = command(&["keys"]);
    command.args(arguments).current_dir(gateway.directory.path());
    command.env("ONCEWARD_ADMIN_TOKEN", TOKEN).env("USER", "ada").env_remove("SUDO_USER");
    let admin = format!("http://{}", gateway.admin.unwrap());
    match target {
        CommandTarget::Usual => {}
        CommandTarget::Config => drop(command.args(["--config", "onceward.toml"])),
        CommandTarget::Store => drop(command.args(["--store", "sqlite://onceward.db"])),
        CommandTarget::Admin => drop(command.args(["--admin", &admin])),
    }
    command
}

fn finished(gateway: &Gateway, target: CommandTarget, arguments: &[&str]) -> Finished {
    Finished::of(&mut keys(gateway, target, arguments))
}

/// What it says, and that it went well.
fn said(gateway: &Gateway, target: CommandTarget, arguments: &[&str]) -> String {
    let finished = finished(gateway, target, arguments);
    assert!(finished.is_success(), "{target:?} {arguments:?}: {finished}");
    finished.stdout
}

fn document(gateway: &Gateway, target: CommandTarget, arguments: &[&str]) -> Value {
    let out = said(gateway, target, &[arguments, &["--json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn refused(gateway: &Gateway, target: CommandTarget, arguments: &[&str]) -> String {
    let finished = finished(gateway, target, arguments);
    assert!(
        !finished.is_success() && finished.stdout.is_empty(),
        "{target:?} {arguments:?}: {finished}"
    );
    finished.stderr
}

/// Beside a gateway that runs, which does not mind.
#[tokio::test]
async fn the_view_of_the_file_says_what_a_list_says() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    assert_eq!(gateway.send(&pay("paid")).await.status, 201);
    lose(&gateway, "lost").await;
    let listed = document(&gateway, CommandTarget::Store, &["list"]);
    let file = gateway.directory.path().join("onceward.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(file, flags).unwrap();
    let question =
        "SELECT json_group_array(json_object('operation', id, 'name', operation, 'scope', scope,
            'state', status, 'attempt', attempts)) FROM onceward_operations";
    let view: String = connection.query_row(question, [], |row| row.get(0)).unwrap();
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(view.as_array().unwrap().len(), 2, "{view}");
    for (shown, listed) in view.as_array().unwrap().iter().zip(listed.as_array().unwrap()) {
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(*value, listed[name], "{name} of {listed}");
        }
    }
    drop(connection);
    assert!(gateway.send(&pay("paid")).await.is_replay());
}

/// Flags can set no times, so that the built-in ones count on its store.
#[tokio::test]
async fn a_gateway_that_flags_started_needs_no_file() {
    let (upstream, directory) = (Upstream::any(), tempfile::tempdir().unwrap());
    let flags = ["--scope", "secret:x-api-key", "--authorize", "none", "--listen", "127.0.0.1:0"];
    let mut serve = command(&["serve", "--upstream", &upstream.url()]);
    let serve = Process::start(serve.args(flags).current_dir(directory.path())).unwrap();
    let address = serve.stderr.wait_for_address().unwrap();
    let send = async |call: &Call| Link::open(address, Version::Http1).await.send(call).await;
    let lost = send(&pay("lost").told(json!({"status": 502}))).await;
    assert_eq!(lost.header("onceward-outcome"), Some("unknown"), "{lost:?}");
    let answer = r#"{"status":201,"headers":[["content-type","text/plain"]],"body":"paid"}"#;
    std::fs::write(directory.path().join("answer.json"), answer).unwrap();
    let resolve = |flags: &[&str]| {
        let mut command = command(&["keys", "resolve", "--key", "lost", "--applied"]);
        command.args(["--reason", "it is there", "--response", "answer.json"]).args(flags);
        Finished::of(command.current_dir(directory.path()))
    };
    let store = ["--store", "sqlite://onceward.db"];
    let refused = resolve(&store);
    assert!(refused.stderr.contains("--defaults"), "how to go on is said: {refused}");
    let nowhere = resolve(&["--defaults"]);
    assert_eq!(nowhere.code, 2, "a configuration says it itself: {nowhere}");
    let resolved = resolve(&[&store[..], &["--defaults"]].concat());
    assert!(resolved.is_success() && resolved.stdout.contains("succeeded"), "{resolved}");
    let replay = send(&pay("lost")).await;
    assert_eq!((replay.status, replay.is_replay(), replay.text()), (201, true, "paid"));
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn the_same_is_found_wherever_it_asks() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    let lost = lose(&gateway, "lost").await;
    gateway.send(&pay("paid")).await;
    for target in CommandTarget::ALL {
        let all = document(&gateway, target, &["list"]);
        assert_eq!(all.as_array().unwrap().len(), 2, "{target:?}");
        let mut names: Vec<_> = all[0].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "attempt",
            "expires_at",
            "key_digest",
            "name",
            "operation",
            "scope",
            "started_at",
            "state",
            "updated_at",
        ];
        assert_eq!(names, expected);
        let unknown =
            document(&gateway, target, &["list", "--state", "unknown", "--name", "charge.create"]);
        assert_eq!(unknown[0]["operation"], *lost, "{target:?}");
        assert_eq!(document(&gateway, target, &["list", "--older", "1h"]), json!([]));
        let newest = document(&gateway, target, &["list", "--newest", "--limit", "1"]);
        assert_eq!(newest[0]["state"], "succeeded");
        let table = said(&gateway, target, &["list"]);
        assert!(table.starts_with("OPERATION") && table.contains(&lost), "{table}");
        assert!(
            said(&gateway, target, &["list", "--state", "released"]).contains("nothing is found")
        );
        for which in [["--key", "lost"], ["--operation", &lost]] {
            let shown = said(&gateway, target, &[&["show"][..], &which].concat());
            assert!(shown.contains("unknown") && shown.contains("keys resolve"), "{shown}");
        }
        assert_eq!(document(&gateway, target, &["show", "--key", "lost"])["operation"], *lost);
        assert!(
            refused(&gateway, target, &["show", "--key", "none"]).contains("no such operation")
        );
        assert!(refused(&gateway, target, &["show", "--operation", "x"]).contains("43 characters"));
        assert!(refused(&gateway, target, &["list", "--state", "lost"]).contains("in_progress"));
    }
}

#[tokio::test]
async fn a_key_that_several_callers_have_is_not_guessed() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    gateway.send(&pay("k")).await;
    gateway.send(&pay("k").without("x-api-key").header("x-api-key", "bob")).await;
    let error = refused(&gateway, CommandTarget::Store, &["show", "--key", "k"]);
    assert!(error.contains("several") && error.contains("OPERATION"), "{error}");
    let all = document(&gateway, CommandTarget::Store, &["list"]);
    let scope = all[0]["scope"].as_str().unwrap();
    let exact = ["show", "--key", "k", "--scope", scope, "--name", "charge.create"];
    assert_eq!(document(&gateway, CommandTarget::Store, &exact)["operation"], all[0]["operation"]);
}

#[tokio::test]
async fn an_outcome_is_resolved_with_the_answer_of_a_file() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    for (target, actor) in [(CommandTarget::Config, "store/ada"), (CommandTarget::Admin, "ops/ada")]
    {
        let key = format!("{target:?}");
        let lost = lose(&gateway, &key).await;
        let answer = json!({"status": 201, "headers": [["x-number", "7"]], "body": "receipt 7"});
        std::fs::write(gateway.directory.path().join("answer.json"), answer.to_string()).unwrap();
        let resolve = ["resolve", "--operation", &lost, "--applied", "--response", "answer.json"];
        assert!(!finished(&gateway, target, &resolve).is_success(), "a reason is needed");
        let resolve = [&resolve[..], &["--reason", "seen"]].concat();
        let shown = document(&gateway, target, &resolve);
        assert_eq!(shown["state"], "succeeded");
        let last = shown["trail"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&last["actor"], &last["reason"]), (&json!(actor), &json!("seen")));
        let replay = gateway.send(&pay(&key)).await;
        assert_eq!((replay.status, replay.text()), (201, "receipt 7"));
        assert!(refused(&gateway, target, &resolve).contains("succeeded"));
        let at = |name: &str| {
            shown[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
        };
        let kept = at("expires_at") - at("updated_at");
        assert!((kept - 48 * 3600).abs() <= 1, "as long as the route keeps it: {shown}");
    }
}

#[tokio::test]
async fn a_filter_is_a_dry_run_until_it_is_confirmed() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    for target in [CommandTarget::Config, CommandTarget::Admin] {
        for key in 0..3 {
            lose(&gateway, &format!("{target:?}{key}")).await;
        }
        let bulk = ["resolve", "--state", "unknown", "--applied", "--reason", "all booked"];
        assert!(said(&gateway, target, &bulk).contains("dry run: 3 operations would be"));
        let early = ["resolve", "--state", "unknown", "--not-applied", "--reason", "x", "--yes"];
        let early = finished(&gateway, CommandTarget::Store, &early);
        assert!(!early.is_success(), "a store alone does not say how long it may run: {early}");
        assert_eq!(
            document(&gateway, target, &["list", "--state", "unknown"]).as_array().unwrap().len(),
            3
        );
        let done = document(&gateway, target, &[&bulk[..], &["--yes"]].concat());
        assert_eq!(done["resolved"].as_array().unwrap().len(), 3);
        assert_eq!(document(&gateway, target, &["list", "--state", "unknown"]), json!([]));
    }
    let both = ["show", "--operation", "x", "--older", "1s"];
    assert!(refused(&gateway, CommandTarget::Store, &both).contains("leave the other filters out"));
    let without = ["resolve", "--applied", "--reason", "x"];
    assert!(refused(&gateway, CommandTarget::Store, &without).contains("--state unknown"));
}

#[tokio::test]
async fn keys_are_given_back_and_forgotten() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    lose(&gateway, "k").await;
    let release = ["release", "--key", "k", "--reason", "x"];
    assert!(refused(&gateway, CommandTarget::Admin, &release).contains("resolve"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let resolve = ["resolve", "--key", "k", "--not-applied", "--reason", "x"];
    assert_eq!(document(&gateway, CommandTarget::Admin, &resolve)["state"], "released");
    let purge = ["purge", "--key", "k", "--reason", "x"];
    assert!(refused(&gateway, CommandTarget::Store, &purge).contains("minute"));
    let connection = rusqlite::Connection::open(gateway.store()).unwrap();
    connection
        .execute("UPDATE onceward_record SET updated_at = updated_at - 60000000", [])
        .unwrap();
    assert_eq!(document(&gateway, CommandTarget::Store, &purge)["state"], Value::Null);
}

#[tokio::test]
async fn watching_shows_what_happens() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    let lost = lose(&gateway, "lost").await;
    for target in [CommandTarget::Config, CommandTarget::Admin] {
        let mut watch =
            keys(&gateway, target, &["watch", "--every", "100ms", "--for", "60s", "--json"]);
        let watching = Process::start(&mut watch).unwrap();
        // What happens before this is not news.
        watching.stderr.wait_for("watching").unwrap();
        let paid = gateway.send(&pay(&format!("paid{target:?}"))).await;
        let paid = paid.header("onceward-operation").unwrap().to_owned();
        let resolve = ["resolve", "--operation", &lost, "--applied", "--reason", "x"];
        if matches!(target, CommandTarget::Config) {
            said(&gateway, target, &resolve);
        }
        // It may be seen in progress first.
        let mut awaited = vec![(paid, vec![Value::Null, json!("in_progress")])];
        if matches!(target, CommandTarget::Config) {
            awaited.push((lost.clone(), vec![json!("unknown")]));
        }
        while !awaited.is_empty() {
            let line = watching.stdout.next_line().unwrap();
            let line = line.unwrap_or_else(|| panic!("never seen: {awaited:?}"));
            let line: Value = serde_json::from_str(&line).unwrap();
            awaited.retain(|(reference, before)| {
                let has_ended = line["operation"] == **reference && line["state"] == "succeeded";
                assert!(!has_ended || before.contains(&line["was"]), "{line}");
                !has_ended
            });
        }
    }
}

#[tokio::test]
async fn watching_ends_by_itself_after_the_time_that_was_given() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    for target in [CommandTarget::Config, CommandTarget::Admin] {
        assert_eq!(said(&gateway, target, &["watch", "--every", "50ms", "--for", "200ms"]), "");
    }
}

#[tokio::test]
async fn a_token_is_sent_to_operators_listeners_only() {
    let upstream = Upstream::any();
    let gateway = start(&upstream);
    let before = upstream.seen().await.len();
    let public = format!("http://{}", gateway.address);
    let mut command = command(&["keys", "list", "--admin", &public]);
    let refused = Finished::of(command.env("ONCEWARD_ADMIN_TOKEN", TOKEN));
    assert!(!refused.is_success() && refused.stderr.contains("no token was sent"), "{refused}");
    for seen in &upstream.seen().await[before..] {
        assert!(!seen.to_string().contains(TOKEN), "{seen}");
    }
}

#[test]
fn wrong_places_are_told_in_words() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["list"][..], "--admin"),
        (&["list", "--store", "sqlite://none.db"], "none.db"),
        (&["list", "--store", "mysql://x"], "redis"),
        (&["list", "--config", "none.toml"], "no such file"),
        (&["list", "--admin", "http://127.0.0.1:1"], "is the gateway running"),
        (&["list", "--admin", "127.0.0.1:1"], "http://"),
        (&["list", "--store", "sqlite://a", "--admin", "http://b"], "cannot be used with"),
        (&["list", "--older", "soon"], "30s"),
        (&["list", "--limit", "0"], "--limit"),
        (&["list", "--admin", "http://127.0.0.1:1", "--token-env", "NOT_SET"], "NOT_SET"),
    ] {
        let mut command = command(&["keys"]);
        let refused = Finished::of(command.args(arguments).current_dir(directory.path()));
        assert!(!refused.is_success() && refused.stderr.contains(word), "{arguments:?}: {refused}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");
}
