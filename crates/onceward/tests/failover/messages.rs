//! Relays on servers that fail: nothing is skipped, and nothing is sent that a standby would not know of.

use std::time::Duration;

use onceward::{
    message::{
        Advance, Enqueue as _, Lane, LeaseRequest, NewMessage, Page, Position, Queue as _, RelayId,
        Settled, Settlement, SinkName, StartFrom,
    },
    protocol::Fence,
    store::postgres::PostgresStore,
};
use testbed::{Installation, Server};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

use crate::pair::Pair;

const AGGREGATE: &str = "order-7";

async fn connect(url: &str) -> Client {
    let (client, driver) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(driver);
    client
}

fn message(body: &str) -> NewMessage {
    NewMessage::new("order.placed", body).unwrap().aggregate(AGGREGATE).unwrap()
}

/// The lane of the aggregate, held by a relay.
async fn lease(store: &PostgresStore, relay: RelayId) -> Position {
    let name = SinkName::new("billing").unwrap();
    let sink = store.open_sink(&name, StartFrom::Oldest).await.unwrap();
    let request = LeaseRequest { sink, relay, lease: Duration::from_secs(600) };
    let held = store.lease(&request).await.unwrap();
    let lane = Lane::of(AGGREGATE.as_bytes());
    held.into_iter().find(|position| position.lane == lane).unwrap()
}

fn delivered(from: &Position, page: &Page) -> Settlement {
    Settlement {
        from: from.clone(),
        fence: Fence::from_random(fastrand::u128(..).to_ne_bytes()),
        advance: Advance::Past(page.end.clone()),
        changes: Vec::new(),
    }
}

fn bodies(page: &Page) -> Vec<String> {
    let bodies = page.fresh.iter().map(|fresh| fresh.message.body.clone());
    bodies.map(|body| String::from_utf8(body).unwrap()).collect()
}

/// A restart shows what was committed here and has not come to the standby.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_standby_does_not_have_is_not_sent() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    let relay = RelayId::from_random([7; 16]);
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let position = lease(&store, relay).await;
    let mut client = connect(database.url()).await;
    pair.standby.pause();
    let producer = store.clone();
    let enqueueing =
        tokio::spawn(async move { producer.enqueue_in(&mut client, &message("1")).await });
    let pair = tokio::task::spawn_blocking(move || {
        pair.waiting_commit();
        pair.primary.kill();
        pair.primary.restart();
        pair
    })
    .await
    .unwrap();
    assert!(enqueueing.await.unwrap().is_err(), "the producer was not told that it is enqueued");
    assert_eq!(database.sql("SELECT count(*) FROM onceward.message"), "1", "the primary shows it");

    let store = PostgresStore::connect(database.url()).await.unwrap();
    assert_eq!(store.waiting(std::slice::from_ref(&position)).await.unwrap(), [position.lane]);
    let early = timeout(Duration::from_secs(2), store.take(&position, 10)).await;
    assert!(!matches!(early, Ok(Ok(_))), "{early:?}");
    pair.standby.resume();
    let mut tries = 0;
    let page = loop {
        match store.take(&position, 10).await {
            Ok(page) => break page,
            Err(error) => assert!(tries < 200, "{error}"),
        }
        tries += 1;
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(bodies(&page), ["1"]);
    let settled = store.settle(&delivered(&position, &page)).await.unwrap();
    assert!(matches!(settled, Settled::Moved(_)), "{settled:?}");
}

/// A server gives numbers of transactions a second time that left nothing in its log. What a relay had read before must
/// not count then: a new message would have a number that looks delivered.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_a_crash_has_undone_is_settled_in_vain() {
    let settings = [("wal_writer_delay", "10s"), ("autovacuum", "off")];
    let server = Server::start(&Installation::preferred().unwrap(), &settings).unwrap();
    let database = server.database();
    let relay = RelayId::from_random([7; 16]);
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let mut client = connect(database.url()).await;
    store.enqueue_in(&mut client, &message("1")).await.unwrap();
    let position = lease(&store, relay).await;
    for _ in 0..50 {
        client.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    }
    let page = store.take(&position, 10).await.unwrap();
    assert_eq!(bodies(&page), ["1"]);
    drop((store, client));
    server.kill();
    server.restart();

    let store = PostgresStore::connect(database.url()).await.unwrap();
    let mut client = connect(database.url()).await;
    store.enqueue_in(&mut client, &message("2")).await.unwrap();
    let (seen, _) = page.end.as_str().split_once(';').unwrap();
    let looks_delivered = database.sql(&format!(
        "SELECT pg_visible_in_snapshot(xid, '{seen}') FROM onceward.message ORDER BY seq"
    ));
    assert_eq!(looks_delivered, "t\nt", "its number was given before");
    let settled = store.settle(&delivered(&position, &page)).await.unwrap();
    assert_eq!(settled, Settled::Fenced(None));
    let position = lease(&store, relay).await;
    let page = store.take(&position, 10).await.unwrap();
    assert_eq!(bodies(&page), ["1", "2"], "one is sent again, none is skipped");
    let settled = store.settle(&delivered(&position, &page)).await.unwrap();
    assert!(matches!(settled, Settled::Moved(_)), "{settled:?}");
}
