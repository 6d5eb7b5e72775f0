//! Producers whose transactions overlap, wait for each other, stay open and come late.

use std::time::{Duration, Instant};

use onceward::{
    conformance::block_on,
    message::{Enqueue as _, Next},
    store::postgres::PostgresStore,
};
use tokio_postgres::Client;

use super::support::{Got, Relay, Shop, bodies, by_aggregate, order};

/// While one transaction is open and another one is prepared, thousands commit: all of those arrive, and the two when
/// they commit. In a long run they are open for ten seconds.
#[test]
fn open_and_prepared_transactions_delay_nothing_and_are_not_skipped() {
    const PRODUCERS: usize = 4;
    const EACH: usize = 500;
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let open_for = Duration::from_secs(if is_long { 10 } else { 0 });
    block_on(async {
        let shop = Shop::open().await;
        let mut relay = Relay::open(&shop.store, "billing").await;
        let [mut open, mut prepared] = [shop.client().await, shop.client().await];
        for (client, body) in [(&mut open, "open"), (&mut prepared, "prepared")] {
            client.batch_execute("BEGIN").await.unwrap();
            shop.store.enqueue_in(client, &order("producer-0", body)).await.unwrap();
        }
        let name = format!("prepared_{}", shop.database.name());
        prepared.batch_execute(&format!("PREPARE TRANSACTION '{name}'")).await.unwrap();
        // It has a number of its own long before it enqueues.
        let mut older = shop.client().await;
        older.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();

        let began = Instant::now();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (store, url) = (shop.store.clone(), shop.database.url().to_owned());
                tokio::spawn(async move {
                    let mut client = crate::support::connect(&url).await;
                    let mut number = 0;
                    while number < EACH || began.elapsed() < open_for {
                        let message = order(&format!("producer-{producer}"), number);
                        store.enqueue_in(&mut client, &message).await.unwrap();
                        number += 1;
                    }
                    number
                })
            })
            .collect();
        let mut got = Got::new();
        loop {
            let is_last = producers.iter().all(tokio::task::JoinHandle::is_finished);
            let round = relay.round(50, |_| Next::Delivered).await;
            if is_last && round.is_empty() {
                break;
            }
            got.extend(round);
        }
        let got = by_aggregate(&got);
        for (producer, ended) in producers.into_iter().enumerate() {
            let expected: Vec<_> =
                (0..ended.await.unwrap()).map(|number| number.to_string()).collect();
            let name = format!("producer-{producer}");
            assert_eq!(got[name.as_str()], expected, "each once and in order, of {name}");
        }

        shop.store.enqueue_in(&mut older, &order("producer-0", "older")).await.unwrap();
        older.batch_execute("COMMIT").await.unwrap();
        assert_eq!(bodies(&relay.drain().await), ["older"]);
        let committed = shop.client().await;
        committed.batch_execute(&format!("COMMIT PREPARED '{name}'")).await.unwrap();
        assert_eq!(bodies(&relay.drain().await), ["prepared"]);
        open.batch_execute("COMMIT").await.unwrap();
        assert_eq!(bodies(&relay.drain().await), ["open"]);
        assert_eq!(relay.drain().await, [], "nothing comes twice");
    });
}

/// Each account counts its messages under the lock of its row. So what arrives of it is 1, 2, 3, … up to its count, whatever
/// was rolled back, came late, or was written in a savepoint.
#[test]
fn of_random_transactions_everything_arrives_once_and_in_the_order_of_the_row_lock() {
    const ACCOUNTS: usize = 5;
    let transactions = if std::env::var("ONCEWARD_LONG").is_ok() { 1_000 } else { 40 };
    block_on(async {
        let shop = Shop::open().await;
        shop.database.sql(&format!(
            "CREATE TABLE account (id int PRIMARY KEY, messages int NOT NULL DEFAULT 0);
             INSERT INTO account SELECT generate_series(0, {})",
            ACCOUNTS - 1
        ));
        let mut relay = Relay::open(&shop.store, "billing").await;
        let producers: Vec<_> = (0..6)
            .map(|_| {
                let (store, url) = (shop.store.clone(), shop.database.url().to_owned());
                tokio::spawn(async move {
                    let mut client = crate::support::connect(&url).await;
                    for _ in 0..transactions {
                        random_transaction(&store, &mut client, ACCOUNTS).await;
                    }
                })
            })
            .collect();
        let mut got = Got::new();
        loop {
            let is_last = producers.iter().all(tokio::task::JoinHandle::is_finished);
            let round = relay.round(fastrand::u32(1..20), |_| Next::Delivered).await;
            if is_last && round.is_empty() {
                break;
            }
            got.extend(round);
            if fastrand::u32(..20) == 0 {
                relay.lease().await.unwrap();
            }
        }
        for producer in producers {
            producer.await.unwrap();
        }
        let counts = shop.database.sql("SELECT id, messages FROM account ORDER BY id");
        let got = by_aggregate(&got);
        for line in counts.lines() {
            let (account, count) = line.split_once('|').unwrap();
            let expected: Vec<_> =
                (1..=count.parse::<u32>().unwrap()).map(|number| number.to_string()).collect();
            let arrived =
                got.get(format!("account-{account}").as_str()).cloned().unwrap_or_default();
            assert_eq!(arrived, expected, "of account {account}");
        }
        assert!(
            got.values().map(Vec::len).sum::<usize>() > transactions,
            "this test does something"
        );
    });
}

async fn random_transaction(store: &PostgresStore, client: &mut Client, accounts: usize) {
    client.batch_execute("BEGIN").await.unwrap();
    if fastrand::bool() {
        // It has its number long before it comes to the row.
        client.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..8))).await;
    }
    // One row for each transaction: two would wait for each other.
    let account = fastrand::usize(..accounts);
    for _ in 0..fastrand::usize(1..4) {
        let has_savepoint = fastrand::bool();
        if has_savepoint {
            client.batch_execute("SAVEPOINT part").await.unwrap();
        }
        let count = format!(
            "UPDATE account SET messages = messages + 1 WHERE id = {account} RETURNING messages"
        );
        let number: i32 = client.query_one(&count, &[]).await.unwrap().get(0);
        store.enqueue_in(client, &order(&format!("account-{account}"), number)).await.unwrap();
        if has_savepoint && fastrand::u32(..3) == 0 {
            client.batch_execute("ROLLBACK TO part").await.unwrap();
        }
    }
    if fastrand::u32(..4) == 0 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..15))).await;
    }
    let end = if fastrand::u32(..4) == 0 { "ROLLBACK" } else { "COMMIT" };
    client.batch_execute(end).await.unwrap();
}
