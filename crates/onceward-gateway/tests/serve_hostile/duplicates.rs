//! Thousands of duplicates of one request, over two gateways on one store.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::{
    client::{self, Connection},
    counting_upstream,
    gateway_support::Gateway,
    plan,
};

/// Half of them to each gateway.
const CONNECTIONS: usize = 500;

const OPTIONS: &str = "in_flight = \"wait\"\nwait = \"30s\"";

const DUPLICATES: usize = 10_000;

#[test]
fn ten_thousand_duplicates_over_two_gateways_run_once() {
    crate::run(duplicates());
}

async fn duplicates() {
    let (address, ledger) = counting_upstream::start(Duration::from_millis(500)).await;
    let plan = plan(address, OPTIONS);
    let gateways = [plan.start(), plan.start()];
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        let address = gateways[number % 2].address;
        clients.spawn(async move {
            let request = client::keyed("/pay", "one", "{\"cents\": 500}");
            let mut connection = Connection::open(address).await.unwrap();
            for _ in 0..DUPLICATES / CONNECTIONS {
                let answer = connection.ask(&request).await.unwrap();
                let effects = &answer.json()["effects"];
                assert_eq!((answer.status, effects), (200, &1.into()), "{answer:?}");
            }
        });
    }
    clients.join_all().await;
    assert_eq!(ledger.all().len(), 1);
    eprintln!("{DUPLICATES} duplicates in {:?}", started.elapsed());
    gateways.iter().for_each(Gateway::assert_well);
}
