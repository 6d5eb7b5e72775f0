//! Files that were changed by others.

use std::time::Duration;

use onceward::{
    StoreError,
    message::{InspectQueue as _, Queue as _},
    store::sqlite::{OpenError, SqliteStore},
};

use super::support::{PATIENCE, Relay, Shop, placed};

/// Numbers that are given again would lie behind the cursor, and nobody would miss the messages.
#[tokio::test]
async fn an_outbox_whose_numbers_begin_anew_is_not_read() {
    let shop = Shop::new();
    let relay = Relay::new(&shop.store, PATIENCE).await;
    shop.order(placed("a", 1));
    assert_eq!(shop.delivered().await, ["1"]);
    let set = "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'onceward_message'";
    shop.connect().execute(set, []).unwrap();
    let refused = shop.store.lease(&relay.request()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unusable(_)), "{refused:?}");
    for says in ["dealt with message 1", "nothing was sent", "sqlite_sequence"] {
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let alarm = shop.store.condition().await.unwrap().alarm.expect("it is not well");
    assert!(alarm.contains("sqlite_sequence"), "{alarm}");

    // What the words ask for.
    let set = "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'onceward_message'";
    shop.connect().execute(set, []).unwrap();
    assert_eq!(shop.store.condition().await.unwrap().alarm, None);
    shop.order(placed("a", 2));
    assert_eq!(shop.delivered().await, ["2"]);
}

/// The newest message may be swept: its number is not given again.
#[tokio::test]
async fn a_swept_outbox_goes_on_with_new_numbers() {
    let shop = Shop::new();
    for number in 1..=3 {
        shop.order(placed("a", number));
        assert_eq!(shop.delivered().await, [number.to_string()]);
        shop.clock.advance(Duration::from_secs(10));
        let swept = shop.store.sweep(Duration::from_secs(1), 10).await.unwrap();
        assert_eq!(swept.messages, 1);
    }
}

/// A row that no producer can have written stops its lane, and is not taken for absent.
#[tokio::test]
async fn a_damaged_message_is_not_passed_over() {
    let shop = Shop::new();
    let relay = Relay::new(&shop.store, PATIENCE).await;
    shop.order(placed("a", 1));
    shop.connect().execute("UPDATE onceward_message SET headers = '[1]'", []).unwrap();
    let positions = shop.store.lease(&relay.request()).await.unwrap();
    let lane = shop.store.waiting(&positions).await.unwrap()[0];
    let position = positions.iter().find(|position| position.lane == lane).unwrap();
    let refused = shop.store.take(position, 10).await.unwrap_err();
    assert!(refused.to_string().contains("nothing is lost"), "{refused}");
    shop.connect().execute("UPDATE onceward_message SET headers = '[]'", []).unwrap();
    assert_eq!(shop.store.take(position, 10).await.unwrap().fresh.len(), 1);
}

/// A relay's steps are among the commits that are counted: a file that lacks one is refused.
#[tokio::test]
async fn a_lost_step_is_noticed() {
    let shop = Shop::new();
    shop.order(placed("a", 1));
    assert_eq!(shop.delivered().await, ["1"]);
    let copy = testbed::directory();
    let path = copy.path().join("shop.db");
    // As a kill leaves them, with a log that was removed.
    for ending in ["", "-mark"] {
        let from = format!("{}{ending}", shop.path.display());
        std::fs::copy(from, format!("{}{ending}", path.display())).unwrap();
    }
    let refused = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::CommitsMissing { .. }), "{refused:?}");
}

/// Sweeps go by the clock: by one that jumped nothing is deleted.
#[tokio::test]
async fn no_message_is_swept_by_a_clock_that_jumped() {
    let shop = Shop::new();
    shop.order(placed("a", 1));
    shop.delivered().await;
    shop.clock.jump_micros(86_400 * 1_000_000);
    let refused = shop.store.sweep(Duration::from_secs(60), 10).await.unwrap_err();
    assert!(refused.to_string().contains("nothing is swept"), "{refused}");
    shop.store.trust_clock();
    assert_eq!(shop.store.sweep(Duration::from_secs(60), 10).await.unwrap().messages, 1);
}

/// Without a sink nothing was delivered, and the first one may want all of it.
#[tokio::test]
async fn without_a_sink_nothing_is_swept() {
    let shop = Shop::new();
    shop.order(placed("a", 1));
    shop.clock.advance(Duration::from_secs(86_400));
    assert_eq!(shop.store.sweep(Duration::from_secs(60), 10).await.unwrap().messages, 0);
    assert_eq!(shop.delivered().await, ["1"]);
}

/// Whatever their bodies weigh, a page has a bound in memory.
#[tokio::test]
async fn a_page_ends_where_its_bodies_are_large() {
    let shop = Shop::new();
    let relay = Relay::new(&shop.store, PATIENCE).await;
    let large = || {
        let body = vec![7; onceward::message::NewMessage::MAX_BODY];
        onceward::message::NewMessage::new("scan", body).unwrap().aggregate("a").unwrap()
    };
    for _ in 0..9 {
        shop.order(large());
    }
    let positions = shop.store.lease(&relay.request()).await.unwrap();
    let lane = shop.store.waiting(&positions).await.unwrap()[0];
    let position = positions.iter().find(|position| position.lane == lane).unwrap();
    let page = shop.store.take(position, 100).await.unwrap();
    assert_eq!((page.fresh.len(), page.is_full), (8, true));
    let filter = onceward::message::MessageFilter::default();
    let listed = shop.store.list(&filter).await.unwrap();
    assert!(listed.messages.len() == 8 && listed.next.is_some());
}
