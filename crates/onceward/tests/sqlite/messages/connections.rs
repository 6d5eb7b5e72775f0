//! Connections on which a commit would not mean what it should.

use std::time::Duration;

use onceward::{StoreError, inbox::Inbox, outbox::EnqueueError};
use rusqlite::Connection;
use sqlx::{
    Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};

use super::support::{Shop, placed};

/// Neither a message nor a receipt is written, and the words say why.
fn is_refused_blocking(shop: &Shop, connection: &mut Connection, says: &str) {
    let transaction = connection.transaction().unwrap();
    let refused = shop.outbox.enqueue_blocking(&transaction, placed("a", 1)).unwrap_err();
    assert!(refused.to_string().contains(says), "{refused}");
    let inbox = Inbox::new(shop.store.clone());
    let refused = inbox.first_time_blocking(&transaction, "billing", "1").unwrap_err();
    assert!(refused.to_string().contains(says), "{refused}");
}

async fn is_refused(shop: &Shop, mut transaction: Transaction<'_, Sqlite>, says: &str) {
    let refused = shop.outbox.enqueue(&mut transaction, placed("a", 1)).await.unwrap_err();
    assert!(refused.to_string().contains(says), "{refused}");
    let inbox = Inbox::new(shop.store.clone());
    let refused = inbox.first_time(&mut transaction, "billing", "1").await.unwrap_err();
    assert!(refused.to_string().contains(says), "{refused}");
}

#[tokio::test]
async fn a_commit_that_the_power_could_undo_is_refused() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    connection.pragma_update(None, "synchronous", "normal").unwrap();
    is_refused_blocking(&shop, &mut connection, "synchronous = FULL");
    let options = SqliteConnectOptions::new().filename(&shop.path);
    let pool = SqlitePool::connect_lazy_with(options.synchronous(SqliteSynchronous::Normal));
    is_refused(&shop, pool.begin().await.unwrap(), "synchronous = FULL").await;
    assert!(shop.delivered().await.is_empty());

    let shop = Shop::with(|builder| builder.accept_relaxed_transactions());
    let mut connection = shop.connect();
    connection.pragma_update(None, "synchronous", "normal").unwrap();
    let transaction = connection.transaction().unwrap();
    shop.outbox.enqueue_blocking(&transaction, placed("a", 1)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(shop.delivered().await, ["1"]);
}

#[tokio::test]
async fn a_transaction_on_another_file_is_refused() {
    let (shop, other) = (Shop::new(), Shop::new());
    let says = "but the records are in";
    is_refused_blocking(&shop, &mut other.connect(), says);
    is_refused(&shop, other.pool().begin().await.unwrap(), says).await;
    let mut attached = shop.connect();
    attached.execute("ATTACH ?1 AS other", [other.path.to_str().unwrap()]).unwrap();
    is_refused_blocking(&shop, &mut attached, "other files attached");
}

/// What would commit alone is no part of any effect.
#[tokio::test]
async fn without_a_transaction_nothing_is_written() {
    let shop = Shop::new();
    let connection = shop.connect();
    let refused = shop.store.enqueue_in_blocking(&connection, &placed("a", 1)).unwrap_err();
    assert!(matches!(refused, StoreError::NotOpen(_)), "{refused:?}");
    let week = Duration::from_secs(7 * 86_400);
    let refused = shop.store.first_time_in_blocking(&connection, "billing", "1", week);
    assert!(matches!(refused, Err(StoreError::NotOpen(_))), "{refused:?}");
    let pool = shop.pool();
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("ROLLBACK").execute(&mut *transaction).await.unwrap();
    let refused = shop.outbox.enqueue(&mut transaction, placed("a", 1)).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::Store(StoreError::NotOpen(_))), "{refused:?}");
    drop(transaction);
    assert!(shop.delivered().await.is_empty());
}
