//! Relays deliver, side by side and after kill -9, to a consumer behind a gateway.

use serde_json::json;

use super::{PLAIN, Shop, billing};
use crate::gateway_support::{Call, Gateway, Upstream, eventually, route};

const COUNT: u64 = 60;

#[tokio::test]
async fn each_message_is_carried_out_once_though_relays_are_killed() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("key = \"required\"\nin_flight = \"wait\""));
    let shop = Shop::beside(gateway.directory.clone());
    let sink = format!(
        "{}headers = [\"x-api-key: relay\"]\nbackoff = \"fixed:100ms\"\n",
        billing(&format!("http://{}/pay", gateway.address))
    );
    // Slow answers, so that the kill hits attempts that are under way.
    let slow = json!([["x-do", json!({"delay": 0.1}).to_string()]]).to_string();
    let mut sent = Vec::new();
    for number in 0..COUNT / 2 {
        sent.push(shop.enqueue(&format!("order-{}", number % 9), &slow));
    }
    let first = shop.relay("relay.toml", &sink);
    upstream.arrival(5).await;
    first.process.kill().unwrap();
    let (second, third) = (shop.relay("relay.toml", &sink), shop.relay("relay.toml", &sink));
    for number in 0..COUNT / 2 {
        sent.push(shop.enqueue(&format!("order-{}", number % 9), PLAIN));
    }
    upstream.arrival(COUNT).await;
    eventually("nothing is left", || async { shop.document(&["sinks"])["sinks"][0]["lag"] == 0 })
        .await;
    for id in &sent {
        assert_eq!(upstream.count_of(&id.to_string()).await, 1, "{id}");
    }
    assert_eq!(upstream.count().await, COUNT);
    let seen = upstream.seen().await;
    for order in 0..9 {
        let of_order = |id: &&uuid::Uuid| {
            let place = sent.iter().position(|sent| sent == *id).unwrap() as u64;
            (place % (COUNT / 2)) % 9 == order
        };
        let expected: Vec<String> = sent.iter().filter(of_order).map(ToString::to_string).collect();
        let keys = seen.iter().filter_map(|one| one["key"].as_str());
        let came: Vec<&str> = keys.filter(|key| expected.iter().any(|id| id == key)).collect();
        assert_eq!(came, expected, "order-{order}");
    }
    second.end();
    third.end();
}

#[tokio::test]
async fn flags_alone_are_enough_and_each_sink_gets_its_topics() {
    let (upstream, shop) = (Upstream::any(), Shop::new());
    let sink = |name: &str| format!("{name}={}/{name}", upstream.url());
    let [billing, mail] = ["billing", "mail"].map(sink);
    let sinks = ["--sink", &billing, "--sink", &mail, "--topics", "mail=user.*"];
    let place = ["--store", "sqlite://onceward.db", "--admin", "127.0.0.1:0"];
    let relay = shop.relay_by(&[&sinks[..], &place].concat());
    eventually("both sinks are there", || async {
        shop.document(&["sinks"])["sinks"].as_array().unwrap().len() == 2
    })
    .await;
    let id = shop.enqueue("order-1", PLAIN).to_string();
    upstream.arrival(1).await;
    assert_eq!((upstream.count_at("/billing").await, upstream.count_at("/mail").await), (1, 0));
    assert_eq!(upstream.last_lines("idempotency-key").await, [id]);
    for (path, status) in [("/health", 200), ("/ready", 200), ("/v1/sinks", 200), ("/metrics", 200)]
    {
        assert_eq!(relay.ask(&Call::new("GET", path)).await.status, status, "{path}");
    }
    let metrics = relay.ask(&Call::new("GET", "/metrics")).await;
    assert!(metrics.text().contains("onceward_relay_"), "{}", metrics.text());
    let sinks = shop.document(&["sinks"]);
    assert_eq!(sinks["sinks"][0]["lanes_held"], 64, "{sinks}");
    assert_eq!(sinks["sinks"][0]["relays"].as_array().unwrap().len(), 1, "{sinks}");
    relay.end();
    assert_eq!(shop.document(&["sinks"])["sinks"][0]["lanes_held"], 0, "given back at the end");
}
