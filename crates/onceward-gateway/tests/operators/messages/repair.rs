//! Dead letters: found, shown, sent again and discarded.

use serde_json::json;

use super::{PLAIN, Shop, billing};
use crate::gateway_support::{Upstream, eventually, told_url};

const STORE: [&str; 2] = ["--store", "sqlite://onceward.db"];

#[tokio::test]
async fn a_dead_letter_is_found_and_sent_again_in_its_order() {
    let (upstream, shop) = (Upstream::any(), Shop::new());
    let first = shop.enqueue("order-7", PLAIN);
    let second = shop.enqueue("order-7", PLAIN);
    let other = shop.enqueue("order-8", PLAIN);
    let wrong = told_url(&upstream, "/wrong", &json!({"status": 400, "body": "no such account"}));
    let relay = shop.relay("relay.toml", &billing(&wrong));
    shop.becomes(first, "dead").await;
    shop.becomes(other, "dead").await;
    relay.end();
    let id = first.to_string();

    let listed = shop.run(&[&["messages", "list", "--state", "dead"], &STORE[..]].concat());
    let heads = ["MESSAGE", "SINK", "STATE", "ATTEMPTS", "ENQUEUED", "TOPIC", "AGGREGATE", "BYTES"];
    assert!(heads.iter().all(|head| listed.lines().next().unwrap().contains(head)), "{listed}");
    assert!(listed.contains(&id) && !listed.contains(&second.to_string()), "{listed}");
    let shown = shop.run(&[&["messages", "show", "--message", &id], &STORE[..]].concat());
    assert!(shown.contains("billing dead, 1 failed attempt: 400 Bad Request"), "{shown}");
    assert!(shown.contains("then `messages redrive`") && !shown.contains("\"order\""), "{shown}");
    let whole = shop.document(&["show", "--message", &id, "--body"]);
    assert_eq!((&whole["bytes"], &whole["body"]), (&12.into(), &"{\"order\": 7}".into()));

    let reason = ["--reason", "the address is right now"];
    let waits =
        shop.finished(&[&["messages", "discard", "--message", "7"], &STORE[..], &reason].concat());
    assert!(waits.stderr.contains("not the id of a message"), "{waits}");
    let all = [&["messages", "redrive", "--state", "dead"], &STORE[..], &reason].concat();
    assert_eq!(shop.run(&all).trim(), "dry run: 2 messages would be sent again; say --yes");
    assert_eq!(shop.document(&["list", "--state", "dead"]).as_array().unwrap().len(), 2);
    let done = shop.run(&[&all[..], &["--yes"]].concat());
    assert_eq!(done.trim(), "2 messages sent again, 0 left");

    let relay = shop.relay("relay.toml", &billing(&format!("{}/right", upstream.url())));
    shop.becomes(second, "delivered").await;
    shop.becomes(other, "delivered").await;
    let keys = upstream.seen().await;
    let right = keys.iter().filter(|one| one["path"] == "/right");
    let keys: Vec<String> =
        right.filter_map(|one| one["key"].as_str().map(str::to_owned)).collect();
    let of_seven: Vec<&String> = keys.iter().filter(|key| **key != other.to_string()).collect();
    assert_eq!(of_seven, [&first.to_string(), &second.to_string()]);
    let shown = shop.document(&["show", "--message", &id]);
    assert_eq!(shown["sinks"][0]["state"], "delivered", "{shown}");
    let entry = &shown["trail"][0];
    assert_eq!(
        (&entry["kind"], &entry["actor"]),
        (&"redrive".into(), &"store/ada".into()),
        "{shown}"
    );
    assert_eq!(entry["reason"], "the address is right now");
    let again =
        shop.finished(&[&["messages", "redrive", "--message", &id], &STORE[..], &reason].concat());
    assert!(
        !again.is_success() && again.stderr.contains("it is delivered at this sink"),
        "{again}"
    );
    relay.end();
}

#[tokio::test]
async fn what_is_discarded_is_never_sent_and_what_waits_behind_it_is() {
    let (upstream, shop) = (Upstream::any(), Shop::new());
    let wrong = json!([["x-do", json!({"status": 400}).to_string()]]).to_string();
    let first = shop.enqueue("order-7", &wrong);
    let second = shop.enqueue("order-7", PLAIN);
    let relay = shop.relay("relay.toml", &billing(&format!("{}/events", upstream.url())));
    shop.becomes(first, "dead").await;
    shop.becomes(second, "waiting").await;
    let mut watch = shop.command("messages");
    watch.args(["watch", "--for", "20s", "--every", "50ms"]).args(STORE);
    let watch = testbed::Process::start(&mut watch).unwrap();
    watch.stderr.wait_for("watching; 2 messages").unwrap();
    let id = first.to_string();
    let discard = ["messages", "discard", "--message", &id, "--reason", "a test"];
    let shown = shop.run(&[&discard[..], &STORE].concat());
    assert!(shown.contains("billing discarded") && shown.contains(": a test"), "{shown}");
    shop.becomes(second, "delivered").await;
    for (id, change) in [(first, "dead → discarded"), (second, "waiting → delivered")] {
        let said = watch.stdout.wait_for(change).unwrap();
        assert!(said.contains(&id.to_string()), "{said}");
    }
    assert_eq!(upstream.count_of(&id).await, 1, "its only attempt");
    relay.end();
}

#[tokio::test]
async fn a_sink_is_removed_when_no_relay_has_it() {
    let (upstream, shop) = (Upstream::any(), Shop::new());
    let relay = shop.relay("relay.toml", &billing(&upstream.url()));
    let reason = ["--reason", "billing reads orders itself", "--yes"];
    let remove = [&["messages", "remove-sink", "billing"], &STORE[..], &reason].concat();
    eventually("the sink is there", || async {
        shop.document(&["sinks"])["sinks"][0]["lanes_held"] == 64
    })
    .await;
    let refused = shop.finished(&remove);
    assert!(refused.stderr.contains("a relay delivers to this sink"), "{refused}");
    relay.end();
    let dry = shop.run(&remove[..remove.len() - 1]);
    assert!(dry.starts_with("dry run: \"billing\" would be forgotten"), "{dry}");
    let said = shop.run(&remove);
    let operation = said.trim().rsplit(' ').next().unwrap();
    let shown =
        shop.run(&[&["keys", "show", "--operation", operation, "--json"], &STORE[..]].concat());
    assert!(
        shown.contains("\"remove_sink\"") && shown.contains("billing: billing reads"),
        "{shown}"
    );
    assert!(shop.document(&["sinks"])["sinks"].as_array().unwrap().is_empty());
}
