//! What the doctor finds in an outbox.

use std::fs;

use serde_json::{Value, json};

use super::{PLAIN, Shop, billing};
use crate::gateway_support::Upstream;

fn findings(shop: &Shop, text: &str) -> Vec<String> {
    let file = shop.path().join("doctor.toml");
    fs::write(file, format!("store = \"sqlite://onceward.db\"\n{text}")).unwrap();
    let examined = shop.finished(&["doctor", "--config", "doctor.toml", "--offline", "--json"]);
    let document: Value = examined.json();
    let findings = document["findings"].as_array().unwrap_or_else(|| panic!("{examined}"));
    let is_ours = |one: &&Value| {
        let about = one["about"][0].as_str().unwrap_or_default();
        about.starts_with("sink ") || about == "outbox"
    };
    let word = |name: &str, one: &Value| one[name].as_str().unwrap_or_default().to_owned();
    let line = |one: &Value| format!("{} {}", word("severity", one), word("code", one));
    findings.iter().filter(is_ours).map(line).collect()
}

#[tokio::test]
async fn the_doctor_knows_sinks_and_what_is_stuck() {
    let (upstream, shop) = (Upstream::any(), Shop::new());
    let here = billing(&upstream.url());
    assert_eq!(findings(&shop, &here), ["note sink-new"]);
    let wrong = json!([["x-do", json!({"status": 400}).to_string()]]).to_string();
    let gone = json!([["x-do", json!({"status": 410}).to_string()]]).to_string();
    let (dead, held) = (shop.enqueue("order-7", &wrong), shop.enqueue("order-8", &gone));
    let relay = shop.relay("relay.toml", &here);
    shop.becomes(dead, "dead").await;
    shop.becomes(held, "held").await;
    assert_eq!(findings(&shop, &here), ["warning dead-letters", "warning messages-held"]);
    relay.end();
    shop.enqueue("order-9", PLAIN);
    let expected = ["warning sink-not-relayed", "warning dead-letters", "warning messages-held"];
    assert_eq!(findings(&shop, &here), expected);
    let other = here.replace("\"billing\"", "\"mail\"");
    let expected = [&expected[..], &["warning sink-unconfigured", "note sink-new"]].concat();
    assert_eq!(findings(&shop, &other), expected);
    // A fortnight later.
    let file = rusqlite::Connection::open(shop.path().join("onceward.db")).unwrap();
    file.execute("UPDATE onceward_message SET at = at - 1209600000000", ()).unwrap();
    for id in [dead, held] {
        let id = id.to_string();
        shop.run(&[
            "messages",
            "discard",
            "--store",
            "sqlite://onceward.db",
            "--message",
            &id,
            "--reason",
            "x",
        ]);
    }
    let relay = shop.relay("relay.toml", &here);
    let lag = || async { shop.document(&["sinks"])["sinks"][0]["lag"] == 0 };
    crate::gateway_support::eventually("all is delivered", lag).await;
    assert_eq!(findings(&shop, &here), ["warning outbox-not-swept"]);
    relay.end();
}
