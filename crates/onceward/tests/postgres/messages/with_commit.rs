//! Messages and the commit that sends them, in one round trip.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use onceward::{
    CommitError, StoreError,
    conformance::block_on,
    message::MessageId,
    outbox::{NewMessage, Outbox, PreparedOutbox},
    store::postgres::{OwnTransaction, PostgresStore},
};
use tokio_postgres::Client;

use super::support::{Relay, Shop, bodies, order};

/// Both forms of one outbox.
struct Forms {
    plain: Outbox<PostgresStore>,
    prepared: PreparedOutbox,
}

impl Forms {
    async fn new(shop: &Shop, client: &Client) -> Self {
        let plain = Outbox::new(shop.store.clone());
        let prepared = plain.prepare(client).await.unwrap();
        Self { plain, prepared }
    }

    async fn commit(
        &self,
        is_prepared: bool,
        transaction: OwnTransaction<'_>,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, CommitError> {
        match is_prepared {
            true => self.prepared.enqueue_and_commit(transaction, messages).await,
            false => self.plain.enqueue_and_commit(transaction, messages).await,
        }
    }
}

async fn shop() -> (Shop, Client, Forms) {
    let shop = Shop::open().await;
    shop.database.sql("CREATE TABLE orders (id int)");
    let client = shop.client().await;
    let forms = Forms::new(&shop, &client).await;
    (shop, client, forms)
}

async fn begin<'c>(shop: &Shop, client: &'c mut Client) -> OwnTransaction<'c> {
    let transaction = shop.store.begin(client).await.unwrap();
    transaction.execute("INSERT INTO orders VALUES (7)", &[]).await.unwrap();
    transaction
}

fn orders(shop: &Shop) -> String {
    shop.database.sql("SELECT count(*) FROM orders")
}

#[test]
fn messages_and_effect_are_committed_together() {
    block_on(async {
        let (shop, mut client, forms) = shop().await;
        let mut relay = Relay::open(&shop.store, "billing").await;
        for is_prepared in [true, false] {
            let id = MessageId::from_bytes([u8::from(is_prepared); 16]);
            let messages = [order("order-7", "1"), order("order-7", "2").id(id)];
            let transaction = begin(&shop, &mut client).await;
            let ids = forms.commit(is_prepared, transaction, &messages).await.unwrap();
            assert_eq!((ids.len(), ids[1]), (2, id));
            assert_eq!(bodies(&relay.drain().await), ["1", "2"]);
            let stored = format!("SELECT count(*) FROM onceward.message WHERE id = '{}'", ids[0]);
            assert_eq!(shop.database.sql(&stored), "1", "the id is the message's");
            let none = begin(&shop, &mut client).await;
            assert_eq!(forms.commit(is_prepared, none, &[]).await, Ok(Vec::new()));
        }
        assert_eq!(orders(&shop), "4");
        let open = client.query_one("SELECT pg_current_xact_id_if_assigned() IS NULL", &[]).await;
        assert!(open.unwrap().get::<_, bool>(0));
    });
}

#[test]
fn a_message_that_is_refused_undoes_the_effect() {
    block_on(async {
        let (shop, mut client, forms) = shop().await;
        let other = shop.client().await;
        let of_other = Forms::new(&shop, &other).await;
        let id = MessageId::from_bytes([9; 16]);
        shop.enqueue(&[order("order-7", "first").id(id)]).await;
        let long = vec![0; NewMessage::MAX_BODY + 1];
        let refusals = [
            // By the server, before and behind one that it takes.
            vec![order("order-7", "lost").id(id), order("order-7", "lost")],
            vec![order("order-7", "lost"), order("order-7", "lost").id(id)],
            // By this process, which sends nothing then.
            vec![order("order-7", "lost"), NewMessage::new("order.placed", long).unwrap()],
        ];
        for is_prepared in [true, false] {
            for messages in &refusals {
                let transaction = begin(&shop, &mut client).await;
                let refused = forms.commit(is_prepared, transaction, messages).await;
                let is_refused = matches!(
                    &refused,
                    Err(CommitError::NotCommitted(
                        StoreError::Repeated(_) | StoreError::Refused(_)
                    ))
                );
                assert!(is_refused, "{refused:?}");
                assert_eq!(orders(&shop), "0");
            }
        }
        let transaction = begin(&shop, &mut client).await;
        let refused = of_other.commit(true, transaction, &[order("order-7", "lost")]).await;
        // This connection does not know the statement.
        assert!(matches!(refused, Err(CommitError::NotCommitted(_))), "{refused:?}");
        assert_eq!(orders(&shop), "0");
        let stored = shop.database.sql("SELECT convert_from(body, 'UTF8') FROM onceward.message");
        assert_eq!(stored, "first");
        let transaction = begin(&shop, &mut client).await;
        forms.commit(true, transaction, &[order("order-7", "2")]).await.unwrap();
        assert_eq!(orders(&shop), "1", "the connection is as good as before");
    });
}

/// A caller that stops waiting gets both or neither.
#[test]
fn a_commit_that_nobody_waits_for_is_whole() {
    block_on(async {
        let (shop, mut client, forms) = shop().await;
        let message = [order("order-7", "1")];
        let transaction = begin(&shop, &mut client).await;
        drop(forms.plain.enqueue_and_commit(transaction, &message));
        client.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(orders(&shop), "0", "it was not begun");
        let transaction = begin(&shop, &mut client).await;
        {
            let mut sending = pin!(forms.plain.enqueue_and_commit(transaction, &message));
            let polled = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
        }
        client.batch_execute("SELECT 1").await.unwrap();
        let stored = shop.database.sql("SELECT count(*) FROM onceward.message");
        assert_eq!((orders(&shop).as_str(), stored.as_str()), ("1", "1"));
    });
}

#[test]
fn a_transaction_that_is_dropped_is_rolled_back() {
    block_on(async {
        let (shop, mut client, forms) = shop().await;
        drop(begin(&shop, &mut client).await);
        client.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(orders(&shop), "0");
        drop(client);
        let mut client = shop.client().await;
        let transaction = begin(&shop, &mut client).await;
        shop.database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE state = 'idle in transaction' AND datname = current_database()",
        );
        let lost = forms.plain.enqueue_and_commit(transaction, &[order("order-7", "1")]).await;
        let (Err(CommitError::NotCommitted(_)) | Err(CommitError::Doubtful(_))) = lost else {
            panic!("nothing was committed: {lost:?}")
        };
        assert_eq!(orders(&shop), "0");
    });
}
