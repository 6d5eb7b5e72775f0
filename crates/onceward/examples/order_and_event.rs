//! An order and its event in one commit; a relay delivers the event to a service that carries it out once.
//!
//! ```text
//! cargo run -p onceward --features axum,relay,reqwest,sqlite --example order_and_event
//! ```
//!
//! Kill it with `kill -9` whenever you like and start it again: each order that was committed is billed once.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, http::request::Parts, routing::post};
use onceward::{
    Scope,
    message::InspectQueue as _,
    outbox::{HttpSink, Outbox, Relay, SinkOptions, StartFrom, json},
    server::Idempotency,
    store::sqlite::SqliteStore,
};
use rusqlite::Connection;
use serde_json::{Value, json as value};
use tokio::sync::oneshot;

type Failure = Box<dyn Error + Send + Sync>;

/// Billing: an API like any other, which keeps the keys of its requests. Events come with theirs.
async fn billing(directory: &Path) -> Result<String, Failure> {
    let store = SqliteStore::open(directory.join("billing.db"))?;
    let scope = |_: &Parts| Ok::<_, &str>(Scope::global());
    let keys = Idempotency::builder(store, scope).require_key().build()?;
    let ledger = directory.join("invoices.txt");
    let app = Router::new().route("/events", post(bill)).layer(keys).with_state(ledger);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/events", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

/// The effect: a line in a ledger that forgets nothing.
async fn bill(State(ledger): State<std::path::PathBuf>, Json(order): Json<Value>) -> String {
    use std::io::Write as _;
    let line = format!("order {}: {} cents", order["order"], order["cents"]);
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger);
    let written = file.as_mut().map(|file| writeln!(file, "{line}"));
    println!("billing: {line} ({written:?})");
    line
}

/// The shop: its order and the event are in its own transaction.
fn order(store: &SqliteStore, shop: &mut Connection, cents: u32) -> Result<i64, Failure> {
    let outbox = Outbox::new(store.clone());
    let transaction = store.begin_blocking(shop)?;
    transaction.execute("INSERT INTO orders (cents) VALUES (?1)", [cents])?;
    let number = transaction.last_insert_rowid();
    let placed = json("order.placed", &value!({ "order": number, "cents": cents }))?;
    outbox.enqueue_blocking(&transaction, placed.aggregate(&format!("order-{number}"))?)?;
    if cents == 0 {
        return Err("an order of nothing: it rolls back, and its event with it".into());
    }
    transaction.commit()?; // this sends it
    Ok(number)
}

/// Places orders, and returns when all of their events are delivered.
pub async fn run(directory: &Path, orders: &[u32]) -> Result<(), Failure> {
    let store = SqliteStore::open(directory.join("shop.db"))?;
    let queue = Arc::new(store.clone());
    let billing = HttpSink::new(&billing(directory).await?)?;
    // Also what was committed before this sink was there for the first time.
    let from_the_beginning = SinkOptions::default().from(StartFrom::Oldest);
    let relay =
        Relay::builder(queue.clone()).sink_with("billing", billing, from_the_beginning).build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let relaying =
        tokio::spawn(async move { relay.run(async { stopped.await.unwrap_or_default() }).await });

    let mut shop = Connection::open(directory.join("shop.db"))?;
    shop.execute_batch(
        "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, cents INTEGER)",
    )?;
    for cents in orders {
        match order(&store, &mut shop, *cents) {
            Ok(number) => println!("shop: order {number} of {cents} cents"),
            Err(error) => println!("shop: {error}"),
        }
    }
    while queue.condition().await?.sinks.first().is_none_or(|sink| sink.lag > 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(stop);
    relaying.await??;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = std::env::temp_dir().join("onceward-order-and-event");
    std::fs::create_dir_all(&directory)?;
    run(&directory, &[500, 0, 725]).await
}
