//! A producer, relays and a consumer in processes of their own, which are killed.

use std::{env, path::Path, time::Duration};

use onceward::{inbox::Inbox, message::Message, outbox::Outbox, store::sqlite::SqliteStore};
use rusqlite::Connection;

use super::support::{Relay, body, connect, placed};
use crate::processes::{FILE, ROLE, child_of, lines, say};

/// Short, so that the lanes of a killed relay are soon another's.
const LEASE: Duration = Duration::from_millis(200);

/// The consumer's own file, beside that of the shop.
fn ledger_of(shop: &Path) -> (Inbox<SqliteStore>, Connection) {
    let path = shop.with_file_name("ledger.db");
    let store = SqliteStore::open(&path).unwrap();
    let connection = connect(&path);
    let table =
        "CREATE TABLE IF NOT EXISTS applied (place INTEGER PRIMARY KEY, number INTEGER NOT NULL)";
    connection.execute_batch(table).unwrap();
    (Inbox::new(store), connection)
}

/// Applies a message once, whatever relay brings it however often.
fn apply((inbox, connection): &mut (Inbox<SqliteStore>, Connection), message: &Message) {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    if inbox.first_time_blocking(&transaction, "ledger", &message.id.to_string()).unwrap() {
        transaction.execute("INSERT INTO applied (number) VALUES (?1)", [body(message)]).unwrap();
    }
    transaction.commit().unwrap();
}

fn numbers(connection: &Connection, sql: &str) -> Vec<u32> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Does nothing unless another test has started this program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_of_another_test() {
    let (Ok(role), Ok(path)) = (env::var(ROLE), env::var(FILE)) else { return };
    let store = SqliteStore::open(&path).unwrap();
    match role.as_str() {
        "produce" => produce_for_ever(&store, Path::new(&path)),
        "relay" => relay_for_ever(&store, Path::new(&path)).await,
        other => panic!("no role {other}"),
    }
}

/// Says which orders were taken, and only then.
fn produce_for_ever(store: &SqliteStore, path: &Path) {
    let outbox = Outbox::new(store.clone());
    let mut connection = connect(path);
    let last = "SELECT coalesce(max(number), 0) FROM orders";
    let last: u32 = connection.query_row(last, [], |row| row.get(0)).unwrap();
    for number in last + 1.. {
        let transaction = store.begin_blocking(&mut connection).unwrap();
        transaction.execute("INSERT INTO orders VALUES (?1)", [number]).unwrap();
        let message = placed(&format!("customer-{}", number % 7), number);
        outbox.enqueue_blocking(&transaction, message).unwrap();
        match number % 5 {
            0 => transaction.rollback().unwrap(),
            _ => {
                transaction.commit().unwrap();
                say(number);
            }
        }
    }
}

async fn relay_for_ever(store: &SqliteStore, path: &Path) {
    let relay = Relay::new(store, LEASE).await;
    let mut ledger = ledger_of(path);
    loop {
        relay
            .run(|message| {
                apply(&mut ledger, message);
                say("applied");
            })
            .await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Every order whose commit was acknowledged is in the ledger once, none that was rolled back, each
/// customer's in their order.
#[tokio::test]
async fn what_was_ordered_is_applied_once_whoever_is_killed() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    let store = SqliteStore::open(&path).unwrap();
    connect(&path).execute_batch("CREATE TABLE orders (number INTEGER NOT NULL)").unwrap();
    drop(ledger_of(&path));
    let start = |role| child_of("messages::processes::a_child_of_another_test", role, &path);
    let mut told: Vec<u32> = Vec::new();
    for round in 0..4 {
        let (producer, relays) = (start("produce"), [start("relay"), start("relay")]);
        let said = lines(&producer).take(40).map(|line| line.parse::<u32>().unwrap());
        told.extend(said.collect::<Vec<_>>());
        // Both have begun, and are somewhere between taking, applying and settling.
        for relay in &relays {
            assert!(lines(relay).nth(round).is_some());
        }
        for child in [&relays[0], &producer, &relays[1]] {
            child.kill().unwrap();
        }
        told.extend(lines(&producer).filter_map(|line| line.parse::<u32>().ok()));
    }

    tokio::time::sleep(LEASE * 2).await;
    let relay = Relay::new(&store, LEASE * 100).await;
    let mut ledger = ledger_of(&path);
    relay.run(|message| apply(&mut ledger, message)).await;
    let applied = numbers(&ledger.1, "SELECT number FROM applied ORDER BY place");
    for customer in 0..7 {
        let of_customer = applied.iter().filter(|number| **number % 7 == customer);
        assert!(of_customer.is_sorted(), "{applied:?}");
    }
    let orders = numbers(&connect(&path), "SELECT number FROM orders ORDER BY number");
    let mut sorted = applied.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, orders, "what is committed, once, and nothing else");
    assert!(told.iter().all(|number| orders.binary_search(number).is_ok()), "{told:?}");
    assert!(told.len() >= 160);
}
