//! The shop: one order after the other, each with its messages in one transaction.

use std::path::PathBuf;

use onceward::{crashpoint, outbox::Outbox, store::postgres::PostgresStore};

use super::{Arguments, Bug, Failure, Order, Place, place};

/// Goes on after the last order that was committed.
pub(super) async fn produce(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.place {
        Place::Sqlite(path) => on_sqlite(arguments, path),
        Place::Postgres(url) => on_postgres(arguments, url).await,
    }
}

fn on_sqlite(arguments: &Arguments, path: &PathBuf) -> Result<(), Failure> {
    let store = place::sqlite(path)?;
    let outbox = Outbox::new(store.clone());
    let mut connection = place::connection(path)?;
    let (from, to) = Order::numbers(arguments.producer);
    let last = "SELECT coalesce(max(number), ?1) FROM orders WHERE number BETWEEN ?1 AND ?2";
    let last: i64 = connection.query_row(last, (from, to), |row| row.get(0))?;
    for order in orders_after(arguments, last) {
        if arguments.bug == Some(Bug::EnqueuesApart) {
            let transaction = store.begin_blocking(&mut connection)?;
            for message in order.to_enqueue()? {
                outbox.enqueue_blocking(&transaction, message)?;
            }
            transaction.commit()?;
        }
        let transaction = store.begin_blocking(&mut connection)?;
        transaction.execute("INSERT INTO orders (number) VALUES (?1)", [order.number])?;
        if arguments.bug != Some(Bug::EnqueuesApart) {
            for message in order.to_enqueue()? {
                outbox.enqueue_blocking(&transaction, message)?;
            }
        }
        if order.is_rolled_back() {
            transaction.rollback()?;
            continue;
        }
        let broken = || rusqlite::Error::InvalidQuery;
        let committed = crashpoint!("shop.commit", transaction.commit(), broken());
        crashpoint!("shop.committed", committed, broken())?;
    }
    Ok(())
}

async fn on_postgres(arguments: &Arguments, url: &str) -> Result<(), Failure> {
    let outbox = Outbox::new(PostgresStore::connect(url).await?);
    let mut client = place::client(url).await?;
    let (from, to) = Order::numbers(arguments.producer);
    let last = format!(
        "SELECT coalesce(max(number), {from}) FROM orders WHERE number BETWEEN {from} AND {to}"
    );
    let last: i64 = client.query_one(&last, &[]).await?.get(0);
    for order in orders_after(arguments, last) {
        let mut transaction = client.transaction().await?;
        transaction.execute("INSERT INTO orders (number) VALUES ($1)", &[&order.number]).await?;
        for message in order.to_enqueue()? {
            outbox.enqueue(&mut transaction, message).await?;
        }
        if order.is_rolled_back() {
            transaction.rollback().await?;
            continue;
        }
        let committed = async { Ok::<(), Failure>(transaction.commit().await?) };
        let committed = crashpoint!("shop.commit", committed.await, "broken".into());
        crashpoint!("shop.committed", committed, "broken".into())?;
    }
    Ok(())
}

fn orders_after(arguments: &Arguments, last: i64) -> impl Iterator<Item = Order> {
    let Arguments { producer, orders, aggregates, .. } = *arguments;
    let end = Order::of(producer, orders, aggregates).number;
    (last + 1..=end).map(move |number| Order { number, aggregates })
}
