//! Whoever waits in one process hears of what has ended in another; and if not, asks.

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::post};
use onceward::{
    Digest, Store as _,
    server::InFlight,
    store::{OnEnded, postgres::PostgresStore},
};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    server_support::{Gate, ask, layer},
    shop::Shop,
};

const LONG: Duration = Duration::from_secs(20);

fn listen(store: &PostgresStore) -> (Arc<OnEnded>, mpsc::UnboundedReceiver<Digest>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let heard: Arc<OnEnded> = Arc::new(move |id: &Digest| {
        let _ = sender.send(*id);
    });
    store.wake().unwrap().listen(&heard);
    (heard, receiver)
}

/// Says that somebody waits and that it has ended, until that is heard: both stores must have begun to
/// listen.
async fn until_heard(
    waits: &PostgresStore,
    ends: &PostgresStore,
    heard: &mut mpsc::UnboundedReceiver<Digest>,
    id: Digest,
) {
    let told = async {
        loop {
            waits.wake().unwrap().awaited(&id);
            tokio::time::sleep(Duration::from_millis(50)).await;
            ends.wake().unwrap().ended(&id);
            if let Ok(Some(other)) = timeout(Duration::from_millis(200), heard.recv()).await {
                assert_eq!(other, id);
                return;
            }
        }
    };
    timeout(LONG, told).await.unwrap();
}

#[tokio::test]
async fn what_is_awaited_is_heard_in_other_processes_and_nothing_else_is_said() {
    let shop = Shop::open().await;
    let other = shop.another_store().await;
    let (_heard, mut receiver) = listen(&shop.store);
    until_heard(&shop.store, &other, &mut receiver, Digest([1; 32])).await;
    while receiver.try_recv().is_ok() {}
    // Nobody waits for this one.
    other.wake().unwrap().ended(&Digest([2; 32]));
    until_heard(&shop.store, &other, &mut receiver, Digest([3; 32])).await;
    // Whoever does not listen any more is not told.
    drop(_heard);
    other.wake().unwrap().ended(&Digest([3; 32]));
}

#[tokio::test]
async fn a_connection_that_breaks_listens_again() {
    let shop = Shop::open().await;
    let other = shop.another_store().await;
    let (_heard, mut receiver) = listen(&shop.store);
    until_heard(&shop.store, &other, &mut receiver, Digest([1; 32])).await;
    shop.database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    until_heard(&shop.store, &other, &mut receiver, Digest([2; 32])).await;
}

#[tokio::test]
async fn a_waiter_gets_the_answer_of_another_process_with_and_without_messages() {
    for is_heard in [true, false] {
        let shop =
            Shop::with(|builder| if is_heard { builder } else { builder.unprepared() }).await;
        assert_eq!(shop.store.wake().is_some(), is_heard, "a pooler passes no messages on");
        let other = shop.another_store().await;
        let gate = Gate::closed();
        let app = |store: PostgresStore| {
            let layer = layer(store).in_flight(InFlight::Wait(Duration::from_secs(30)));
            let gate = gate.clone();
            let handler = move || {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    "done"
                }
            };
            Router::new().route("/charges", post(handler)).layer(layer.build().unwrap())
        };
        let (here, there) = (app(shop.store.clone()), app(other));
        let first = tokio::spawn(async move { ask(&there, "k").await });
        gate.reached().await;
        let second = tokio::spawn(async move { ask(&here, "k").await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
        let (first, second) = (first.await.unwrap(), timeout(LONG, second).await.unwrap().unwrap());
        assert_eq!((first.text(), second.text()), ("done", "done"));
        assert!(second.is_replay() && !first.is_replay());
    }
}
