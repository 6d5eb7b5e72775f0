//! Outbox and inbox in the transactions of every driver.

use std::{future::Future, time::Duration};

use onceward::{
    Effect, Engine, StoreError, Verdict,
    conformance::block_on,
    engine::Transaction,
    inbox::Inbox,
    message::{Enqueue, MessageId, Receive},
    outbox::{EnqueueError, NewMessage, Outbox, json},
    protocol::conformance::Sample,
    store::postgres::{Dialect, PostgresStore},
};
use sqlx::Connection as _;

use super::support::{Got, Relay, Shop, bodies, order};
use crate::support::{connect, pool};

/// What a service does in its transaction.
async fn enqueue_with<T>(
    outbox: &Outbox<PostgresStore>,
    transaction: &mut T,
    body: &str,
) -> MessageId
where
    T: Transaction,
    PostgresStore: Enqueue<T::Connection>,
{
    outbox.enqueue(transaction, order("order-7", body)).await.unwrap()
}

/// What a consumer asks in its transaction.
async fn consume_with<T>(inbox: &Inbox<PostgresStore>, transaction: &mut T, id: &str) -> bool
where
    T: Transaction,
    PostgresStore: Receive<T::Connection>,
{
    inbox.first_time(transaction, "billing", id).await.unwrap()
}

/// Runs with a transaction of each driver, and commits it.
macro_rules! with_each_driver {
    ($shop:expr, $name:ident, $transaction:ident => $work:expr) => {{
        let url = $shop.database.url();
        {
            let $name = "tokio-postgres";
            let mut client = connect(url).await;
            let mut $transaction = client.transaction().await.unwrap();
            $work;
            $transaction.commit().await.unwrap();
        }
        {
            let $name = "deadpool";
            let pool = pool(url);
            let mut client = pool.get().await.unwrap();
            let mut $transaction = client.transaction().await.unwrap();
            $work;
            $transaction.commit().await.unwrap();
        }
        {
            let $name = "sqlx";
            let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
            let mut $transaction = connection.begin().await.unwrap();
            $work;
            $transaction.commit().await.unwrap();
        }
        {
            let $name = "begin_in";
            let engine = Engine::new($shop.store.clone());
            let mut client = connect(url).await;
            let request = Sample::new(Effect::Transactional).request(b'a');
            let begun = engine.begin_in(request, &mut client, Duration::from_millis(50)).await;
            let (mut $transaction, Verdict::Run(_)) = begun.unwrap() else { panic!("it is new") };
            $work;
            $transaction.commit().await.unwrap();
        }
    }};
}

#[test]
fn every_driver_enqueues_in_its_transaction() {
    block_on(async {
        let shop = Shop::open().await;
        let outbox = Outbox::new(shop.store.clone());
        let mut relay = Relay::open(&shop.store, "billing").await;
        let mut all = Got::new();
        with_each_driver!(shop, name, transaction => {
            enqueue_with(&outbox, &mut transaction, name).await;
            all.extend(relay.drain().await);
            assert!(!bodies(&all).contains(&name), "{name}: not before the commit");
        });
        all.extend(relay.drain().await);
        assert_eq!(bodies(&all), ["tokio-postgres", "deadpool", "sqlx", "begin_in"]);
    });
}

#[test]
fn every_driver_receives_a_message_once() {
    block_on(async {
        let shop = Shop::open().await;
        let inbox = Inbox::new(shop.store.clone());
        for delivery in 0..2 {
            with_each_driver!(shop, name, transaction => {
                let is_new = consume_with(&inbox, &mut transaction, name).await;
                assert_eq!(is_new, delivery == 0, "{name}");
            });
        }
        let received = "SELECT count(*), bool_and(expires_at - received_at BETWEEN '7 days' AND '7 days 1 minute')
             FROM onceward.inbox";
        assert_eq!(shop.database.sql(received), "4|t");
    });
}

/// A consumer whose transaction fails has not got the message, and gets it again.
#[test]
fn of_deliveries_at_once_one_is_applied() {
    block_on(async {
        let shop = Shop::open().await;
        shop.database.sql("CREATE TABLE invoice (message text)");
        let deliver = |commits: bool| {
            let (inbox, url) = (Inbox::new(shop.store.clone()), shop.database.url().to_owned());
            async move {
                let mut client = connect(&url).await;
                let mut transaction = client.transaction().await.unwrap();
                if inbox.first_time(&mut transaction, "billing", "m-1").await.unwrap() {
                    transaction.execute("INSERT INTO invoice VALUES ('m-1')", &[]).await.unwrap();
                }
                if commits {
                    transaction.commit().await.unwrap();
                }
            }
        };
        deliver(false).await;
        let deliveries: Vec<_> =
            (0..8).map(|number| tokio::spawn(deliver(number % 3 > 0))).collect();
        for delivery in deliveries {
            delivery.await.unwrap();
        }
        assert_eq!(shop.database.sql("SELECT count(*) FROM invoice"), "1");
    });
}

#[test]
fn what_cannot_be_enqueued_is_said_and_nothing_is_left_of_it() {
    block_on(async {
        let shop = Shop::open().await;
        let outbox = Outbox::new(shop.store.clone());
        let mut relay = Relay::open(&shop.store, "billing").await;
        let first = json("order.placed", &["first"]).unwrap();
        let id = MessageId::from_bytes([7; 16]);
        with_each_driver!(shop, name, transaction => {
            let message = first.clone().id(MessageId::from_bytes(fastrand::u128(..).to_ne_bytes()));
            outbox.enqueue(&mut transaction, message).await.unwrap();
            let body = vec![0; NewMessage::MAX_BODY + 1];
            let long = NewMessage::new("order.placed", body).unwrap();
            let refused = outbox.enqueue(&mut transaction, long).await;
            assert!(matches!(refused, Err(EnqueueError::Message(_))), "{name}: {refused:?}");
        });
        assert_eq!(relay.drain().await.len(), 4, "the server was not asked");
        shop.enqueue(&[first.clone().id(id)]).await;
        relay.drain().await;
        let mut client = shop.client().await;
        let mut transaction = client.transaction().await.unwrap();
        outbox.enqueue(&mut transaction, order("order-7", "lost")).await.unwrap();
        let other = json("order.placed", &["another body"]).unwrap().id(id);
        let repeated = outbox.enqueue(&mut transaction, other).await.unwrap_err();
        assert_eq!(repeated, EnqueueError::Repeated(id));
        assert!(repeated.to_string().contains("roll back"), "{repeated}");
        // The server makes a rollback of it.
        transaction.commit().await.unwrap();
        assert_eq!(relay.drain().await, [], "nothing of that transaction");
    });
}

#[test]
fn engines_without_functions_have_no_outbox_and_say_so() {
    block_on(async {
        let shop = Shop::open().await;
        let wire = PostgresStore::builder(shop.database.url()).unwrap().dialect(Dialect::Wire);
        let wire = wire.open().await.unwrap();
        let mut client = shop.client().await;
        let enqueued = wire.enqueue_in(&mut client, &order("order-7", "1")).await.unwrap_err();
        let received = wire
            .first_time_in(&mut client, "billing", "1", Duration::from_secs(1))
            .await
            .unwrap_err();
        for error in [enqueued, received] {
            let says =
                |text: &str| text.contains("no outbox") && text.contains("nothing was written");
            assert!(matches!(&error, StoreError::Unusable(text) if says(text)), "{error}");
        }
    });
}

/// The future of a front can be sent to another thread.
#[test]
fn fronts_can_be_spawned() {
    fn is_send<F: Future + Send>(future: F) {
        drop(future);
    }
    block_on(async {
        let shop = Shop::open().await;
        let (outbox, inbox) = (Outbox::new(shop.store.clone()), Inbox::new(shop.store.clone()));
        let mut client = shop.client().await;
        let mut transaction = client.transaction().await.unwrap();
        is_send(outbox.enqueue(&mut transaction, order("order-7", "1")));
        is_send(inbox.first_time(&mut transaction, "billing", "1"));
    });
}
