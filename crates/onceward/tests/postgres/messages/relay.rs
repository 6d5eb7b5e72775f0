//! From the producer's commit to the consumer's: relays that share the lanes, one that ends and one that dies.

use std::{sync::Arc, time::Duration};

use onceward::{
    conformance::block_on,
    inbox::Inbox,
    message::{Message, Sent, StartFrom, Topic},
    outbox::{Attempt, Outbox, Relay, Sink, SinkOptions},
    store::{BoxFuture, postgres::PostgresStore},
};

use super::support::{Shop, order};
use crate::support::{connect, pool};

const PRODUCERS: usize = 3;
const EACH: usize = 150;

/// A consumer that writes what it applies into a ledger, in the transaction of its inbox.
struct Ledger {
    inbox: Inbox<PostgresStore>,
    pool: deadpool_postgres::Pool,
}

impl Ledger {
    async fn apply(
        &self,
        message: &Message,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut client = self.pool.get().await?;
        let mut transaction = client.transaction().await?;
        if self.inbox.first_time(&mut transaction, "ledger", &message.id.to_string()).await? {
            let (aggregate, body) =
                (message.aggregate.as_str(), std::str::from_utf8(&message.body)?);
            let entry = "INSERT INTO ledger (aggregate, body) VALUES ($1, $2)";
            transaction.execute(entry, &[&aggregate, &body]).await?;
        }
        Ok(transaction.commit().await?)
    }
}

impl Sink for Ledger {
    fn takes(&self, _: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, message: &'a Message, _: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            match self.apply(message).await {
                // The answer of some is lost.
                Ok(()) if fastrand::u32(..20) == 0 => {
                    let why = "the connection broke".to_owned();
                    Sent::Retry { after: Some(Duration::from_millis(20)), why }
                }
                Ok(()) => Sent::Accepted,
                Err(error) => Sent::Unknown { why: error.to_string() },
            }
        })
    }
}

async fn relay(shop: &Shop) -> Relay {
    let store = PostgresStore::connect(shop.database.url()).await.unwrap();
    let pool = pool(shop.database.url());
    let ledger = Ledger { inbox: Inbox::new(store.clone()), pool };
    let options = SinkOptions::default().from(StartFrom::Oldest);
    let relay = Relay::builder(Arc::new(store)).sink_with("ledger", ledger, options);
    relay.lease(Relay::MIN_LEASE).build().unwrap()
}

/// Some transactions are rolled back.
async fn produce(outbox: Outbox<PostgresStore>, url: String, producer: usize) {
    let mut client = connect(&url).await;
    for number in 0..EACH {
        let mut transaction = client.transaction().await.unwrap();
        let message = order(&format!("producer-{producer}"), number);
        outbox.enqueue(&mut transaction, message).await.unwrap();
        match number % 10 {
            9 => transaction.rollback().await.unwrap(),
            _ => transaction.commit().await.unwrap(),
        }
    }
}

#[test]
fn what_producers_commit_is_applied_once_and_in_order_whatever_relays_do() {
    block_on(async {
        let shop = Shop::open().await;
        shop.database.sql("CREATE TABLE ledger (id bigserial, aggregate text, body text)");
        let outbox = Outbox::new(shop.store.clone());
        let [ends, dies, lives] = [relay(&shop).await, relay(&shop).await, relay(&shop).await];
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let ends = tokio::spawn(async move { ends.run(async { drop(ended.await) }).await });
        let dies = tokio::spawn(async move { dies.run(std::future::pending()).await });
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let url = shop.database.url().to_owned();
                tokio::spawn(produce(outbox.clone(), url, producer))
            })
            .collect();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let lives = tokio::spawn(async move { lives.run(async { drop(stopped.await) }).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        dies.abort();
        drop(end);
        for producer in producers {
            producer.await.unwrap();
        }
        ends.await.unwrap().unwrap();

        let expected = PRODUCERS * EACH * 9 / 10;
        let applied = || shop.database.sql("SELECT count(*) FROM ledger").parse::<usize>().unwrap();
        let mut tries = 0;
        while applied() < expected {
            assert!(tries < 600, "{} of {expected} arrived", applied());
            tries += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(stop);
        lives.await.unwrap().unwrap();
        let in_order: Vec<_> =
            (0..EACH).filter(|number| number % 10 != 9).map(|number| number.to_string()).collect();
        let ledger = shop
            .database
            .sql("SELECT string_agg(body, ' ' ORDER BY id) FROM ledger GROUP BY aggregate");
        assert_eq!(ledger.lines().count(), PRODUCERS);
        for of_producer in ledger.lines() {
            assert_eq!(
                of_producer.split(' ').collect::<Vec<_>>(),
                in_order,
                "each once and in order"
            );
        }
    });
}
