//! What becomes of a message with the transaction that enqueued it.

use onceward::{
    message::{MessageId, Queue as _},
    outbox::{EnqueueError, NewMessage},
};

use super::support::{PATIENCE, Relay, Shop, placed, random};

#[tokio::test]
async fn a_commit_sends_and_a_rollback_leaves_nothing_with_rusqlite() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    for (number, is_committed) in (0..).zip([true, false, true]) {
        let transaction = shop.store.begin_blocking(&mut connection).unwrap();
        transaction.execute("INSERT INTO orders VALUES (?1)", [number]).unwrap();
        shop.outbox.enqueue_blocking(&transaction, placed("a", number)).unwrap();
        match is_committed {
            true => transaction.commit().unwrap(),
            false => transaction.rollback().unwrap(),
        }
    }
    assert_eq!(shop.orders(), 2);
    assert_eq!(shop.delivered().await, ["0", "2"]);
}

#[tokio::test]
async fn a_commit_sends_and_a_rollback_leaves_nothing_with_sqlx() {
    let shop = Shop::new();
    let pool = shop.pool();
    for (number, is_committed) in (0..).zip([true, false, true]) {
        let mut transaction = shop.store.begin(&pool).await.unwrap();
        let insert = sqlx::query("INSERT INTO orders VALUES (?1)").bind(number);
        insert.execute(&mut *transaction).await.unwrap();
        shop.outbox.enqueue(&mut transaction, placed("a", number)).await.unwrap();
        match is_committed {
            true => transaction.commit().await.unwrap(),
            // The next one waits in line until this one is rolled back.
            false => drop(transaction),
        }
    }
    assert_eq!(shop.orders(), 2);
    assert_eq!(shop.delivered().await, ["0", "2"]);
}

/// A number that a savepoint gave back may be given again, and nothing is passed over.
#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_messages_along() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let mut transaction = connection.transaction().unwrap();
    shop.outbox.enqueue_blocking(&transaction, placed("a", 1)).unwrap();
    let mut savepoint = transaction.savepoint().unwrap();
    shop.store.enqueue_in_blocking(&savepoint, &placed("a", 2)).unwrap();
    savepoint.rollback().unwrap();
    shop.store.enqueue_in_blocking(&savepoint, &placed("a", 3)).unwrap();
    savepoint.commit().unwrap();
    transaction.commit().unwrap();
    assert_eq!(shop.delivered().await, ["1", "3"]);

    let pool = shop.pool();
    let mut transaction = pool.begin().await.unwrap();
    shop.outbox.enqueue(&mut transaction, placed("a", 4)).await.unwrap();
    for (number, is_kept) in [(5, false), (6, true)] {
        let mut savepoint = sqlx::Connection::begin(&mut *transaction).await.unwrap();
        shop.outbox.enqueue(&mut savepoint, placed("a", number)).await.unwrap();
        match is_kept {
            true => savepoint.commit().await.unwrap(),
            false => savepoint.rollback().await.unwrap(),
        }
    }
    transaction.commit().await.unwrap();
    assert_eq!(shop.delivered().await, ["4", "6"]);
}

/// A producer that is open does not keep a relay from what was committed before.
#[tokio::test]
async fn an_open_transaction_keeps_its_own_messages_alone() {
    let shop = Shop::new();
    shop.order(placed("a", 1));
    let pool = shop.pool();
    let relay = Relay::new(&shop.store, PATIENCE).await;
    let positions = shop.store.lease(&relay.request()).await.unwrap();
    let mut transaction = shop.store.begin(&pool).await.unwrap();
    shop.outbox.enqueue(&mut transaction, placed("a", 2)).await.unwrap();
    let waiting = shop.store.waiting(&positions).await.unwrap();
    let [lane] = waiting.as_slice() else { panic!("one lane has a message: {waiting:?}") };
    let position = positions.iter().find(|position| position.lane == *lane).unwrap();
    let page = shop.store.take(position, 10).await.unwrap();
    assert_eq!(page.fresh.len(), 1, "reading waits for no writer");
    transaction.commit().await.unwrap();
    relay.end().await;
    assert_eq!(shop.delivered().await, ["1", "2"]);
}

#[tokio::test]
async fn an_id_is_taken_once_and_keeps_its_body() {
    let shop = Shop::new();
    let id = MessageId::from_bytes(random());
    shop.order(placed("a", 1).id(id));
    let again = || placed("a", 2).id(id);

    let mut connection = shop.connect();
    let transaction = shop.store.begin_blocking(&mut connection).unwrap();
    let refused = shop.outbox.enqueue_blocking(&transaction, again()).unwrap_err();
    assert_eq!(refused, EnqueueError::Repeated(id));
    assert!(refused.to_string().contains("roll back"), "{refused}");
    transaction.rollback().unwrap();

    let pool = shop.pool();
    let mut transaction = shop.store.begin(&pool).await.unwrap();
    let refused = shop.outbox.enqueue(&mut transaction, again()).await.unwrap_err();
    assert_eq!(refused, EnqueueError::Repeated(id));
    transaction.rollback().await.unwrap();
    assert_eq!(shop.delivered().await, ["1"]);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_before_it_is_written() {
    let shop = Shop::new();
    let too_long = || NewMessage::new("order.placed", vec![0; NewMessage::MAX_BODY + 1]).unwrap();
    let mut connection = shop.connect();
    let transaction = shop.store.begin_blocking(&mut connection).unwrap();
    let refused = shop.outbox.enqueue_blocking(&transaction, too_long()).unwrap_err();
    assert!(matches!(refused, EnqueueError::Message(_)), "{refused:?}");
    assert!(refused.to_string().contains("nothing was enqueued"), "{refused}");
    // The transaction is as it was.
    shop.outbox.enqueue_blocking(&transaction, placed("a", 1)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(shop.delivered().await, ["1"]);
}
