//! Consumers: a message that comes again changes nothing.

use std::time::Duration;

use onceward::{Store as _, inbox::Inbox, store::sqlite::SqliteStore};

use super::support::{Shop, placed};

const DAY: Duration = Duration::from_secs(86_400);

impl Shop {
    /// Applies a message in one commit with its receipt, if it comes for the first time.
    fn apply_blocking(&self, inbox: &Inbox<SqliteStore>, id: &str) -> bool {
        let mut connection = self.connect();
        let transaction = self.store.begin_blocking(&mut connection).unwrap();
        let is_new = inbox.first_time_blocking(&transaction, "billing", id).unwrap();
        if is_new {
            transaction.execute("INSERT INTO orders VALUES (1)", []).unwrap();
        }
        transaction.commit().unwrap();
        is_new
    }

    async fn apply(&self, inbox: &Inbox<SqliteStore>, id: &str) -> bool {
        let pool = self.pool();
        let mut transaction = self.store.begin(&pool).await.unwrap();
        let is_new = inbox.first_time(&mut transaction, "billing", id).await.unwrap();
        if is_new {
            let insert = sqlx::query("INSERT INTO orders VALUES (1)");
            insert.execute(&mut *transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
        is_new
    }

    fn receipts(&self) -> u32 {
        let count = "SELECT count(*) FROM onceward_inbox";
        self.connect().query_row(count, [], |row| row.get(0)).unwrap()
    }
}

#[tokio::test]
async fn a_repeat_is_recognised_by_either_driver() {
    let shop = Shop::new();
    let inbox = Inbox::new(shop.store.clone());
    assert!(shop.apply_blocking(&inbox, "1"));
    assert!(!shop.apply(&inbox, "1").await);
    assert!(shop.apply(&inbox, "2").await);
    assert!(!shop.apply_blocking(&inbox, "2"));
    assert_eq!(shop.orders(), 2);
    let reopened = SqliteStore::builder(&shop.path).clock(shop.clock.clone()).open().unwrap();
    assert!(!shop.apply(&Inbox::new(reopened), "1").await, "also after a restart");
}

/// The effect fails after the question, and the message comes again.
#[tokio::test]
async fn what_was_rolled_back_is_new() {
    let shop = Shop::new();
    let inbox = Inbox::new(shop.store.clone());
    let mut connection = shop.connect();
    let transaction = shop.store.begin_blocking(&mut connection).unwrap();
    assert!(inbox.first_time_blocking(&transaction, "billing", "1").unwrap());
    drop(transaction);
    let pool = shop.pool();
    let mut transaction = shop.store.begin(&pool).await.unwrap();
    assert!(inbox.first_time(&mut transaction, "billing", "1").await.unwrap());
    transaction.rollback().await.unwrap();
    assert!(shop.apply_blocking(&inbox, "1"));
    assert!(!shop.apply_blocking(&inbox, "1"));
}

#[tokio::test]
async fn receipts_are_kept_for_their_retention_and_swept_an_hour_later() {
    let shop = Shop::new();
    let inbox = Inbox::builder(shop.store.clone()).retain(DAY).build().unwrap();
    for number in 0..3 {
        assert!(shop.apply_blocking(&inbox, &number.to_string()));
    }
    shop.clock.advance(DAY - Duration::from_secs(1));
    assert!(!shop.apply_blocking(&inbox, "0"), "the last second of it");
    shop.clock.advance(Duration::from_secs(2));
    assert!(shop.apply_blocking(&inbox, "0"), "remembered anew");
    shop.store.sweep(1_000).await.unwrap();
    assert_eq!(shop.receipts(), 3, "a clock that is set back shall not make them new");
    shop.clock.advance(Duration::from_secs(3_600));
    shop.store.sweep(1_000).await.unwrap();
    assert_eq!(shop.receipts(), 1, "the one that was remembered anew");
    shop.clock.jump_micros(2 * 86_400 * 1_000_000);
    assert!(shop.store.sweep(1_000).await.is_err(), "by a clock that jumped nothing is deleted");
    assert_eq!(shop.receipts(), 1);
}

#[tokio::test]
async fn what_recognises_nothing_is_refused() {
    let shop = Shop::new();
    let inbox = Inbox::new(shop.store.clone());
    let mut connection = shop.connect();
    let transaction = shop.store.begin_blocking(&mut connection).unwrap();
    for (consumer, id) in [("", "1"), ("billing", ""), ("billing", &"1".repeat(256))] {
        let refused = inbox.first_time_blocking(&transaction, consumer, id).unwrap_err();
        assert!(refused.to_string().contains("nothing was recorded"), "{refused}");
    }
    let never = shop.store.first_time_in_blocking(&transaction, "billing", "1", Duration::ZERO);
    assert!(never.unwrap_err().to_string().contains("retains nothing"));
    drop(transaction);
    assert_eq!(shop.receipts(), 0);
}

/// A consumer may be a producer: receipt, effect and the next message in one commit.
#[tokio::test]
async fn a_consumer_passes_on_once() {
    let shop = Shop::new();
    let inbox = Inbox::new(shop.store.clone());
    for _ in 0..3 {
        let mut connection = shop.connect();
        let transaction = shop.store.begin_blocking(&mut connection).unwrap();
        if inbox.first_time_blocking(&transaction, "billing", "1").unwrap() {
            shop.outbox.enqueue_blocking(&transaction, placed("a", 1)).unwrap();
        }
        transaction.commit().unwrap();
    }
    assert_eq!(shop.delivered().await, ["1"]);
}
