//! A relay on PostgreSQL, and the same commands for its messages as on a file.

use serde_json::{Value, json};
use testbed::{Database, Process, Signal};

use crate::{
    gateway_support::{Upstream, command, eventually, told_url},
    support::onceward,
};

pub(crate) fn document(database: &Database, arguments: &[&str]) -> Value {
    let finished =
        onceward(&[&["messages"], arguments, &["--store", database.url(), "--json"]].concat(), "");
    assert!(finished.is_success(), "{arguments:?}: {finished}");
    finished.json()
}

pub(crate) fn relay(database: &Database, url: &str) -> Process {
    let sink = format!("billing={url}");
    let mut command = command(&["relay", "--store", database.url(), "--sink", &sink]);
    let process = Process::start(&mut command).unwrap();
    process.stderr.wait_for("delivering messages of").unwrap();
    process
}

pub(crate) fn end(relay: &Process) {
    relay.signal(Signal::TERM);
    let ended = relay.wait_for_end().unwrap();
    assert!(ended.success(), "{}", relay.stderr.text());
}

pub(crate) fn enqueue(database: &Database) -> String {
    database.sql(
        "SELECT onceward.enqueue('order.placed', 'order-7', convert_to('{\"order\": 7}', 'UTF8'))",
    )
}

pub(crate) async fn becomes(database: &Database, id: &str, state: &str) {
    eventually(&format!("the message becomes {state}"), || async {
        let shown = document(database, &["show", "--message", id]);
        shown["sinks"][0]["state"] == state
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_is_sent_again_and_a_sink_removed() {
    let (upstream, database) = (Upstream::any(), testbed::postgres().database());
    let first_relay = relay(&database, &told_url(&upstream, "/wrong", &json!({"status": 400})));
    eventually("the sink is there", || async {
        document(&database, &["sinks"])["sinks"][0]["lanes_held"] == 64
    })
    .await;
    let (first, second) = (enqueue(&database), enqueue(&database));
    becomes(&database, &first, "dead").await;
    becomes(&database, &second, "waiting").await;
    end(&first_relay);
    let reason = ["--reason", "the address is right now"];
    let redriven = document(&database, &[&["redrive", "--message", &first][..], &reason].concat());
    assert_eq!(redriven["trail"][0]["reason"], "the address is right now", "{redriven}");
    let second_relay = relay(&database, &format!("{}/right", upstream.url()));
    becomes(&database, &second, "delivered").await;
    let seen = upstream.seen().await;
    let right = seen.iter().filter(|one| one["path"] == "/right");
    let keys: Vec<&str> = right.filter_map(|one| one["key"].as_str()).collect();
    assert_eq!(keys, [&first, &second]);
    end(&second_relay);
    let removed =
        document(&database, &[&["remove-sink", "billing", "--yes"][..], &reason].concat());
    assert_eq!(removed["forgotten"], 0, "{removed}");
    assert!(document(&database, &["sinks"])["sinks"].as_array().unwrap().is_empty());
}
