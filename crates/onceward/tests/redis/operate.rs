//! What operators alone ask of the store: the server's clock, missing rights, and the end of its keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onceward::store::{KeptRoute, redis::RedisStore};

async fn open(address: &str) -> RedisStore {
    RedisStore::builder(address).unwrap().accept_relaxed().open().await.unwrap()
}

/// A star in a prefix is a letter, and no pattern.
#[tokio::test]
async fn erasing_takes_the_keys_of_one_installation_alone() {
    let mark = fastrand::u64(..);
    let route = KeptRoute { template: "POST /".to_owned(), ..KeptRoute::default() };
    let mut stores = Vec::new();
    for prefix in ["a*b", "axb", "a*bc"] {
        let store = open(&format!("{}?prefix={mark:x}{prefix}", testbed::redis())).await;
        assert_eq!(store.keep_route(None, &route).await, Ok(true));
        stores.push(store);
    }
    assert_eq!(stores[0].erase().await, Ok(1));
    assert_eq!(stores[0].erase().await, Ok(0), "nothing is left");
    assert_eq!(stores[0].routes().await, Ok(vec![]));
    for other in &stores[1..] {
        assert_eq!(other.routes().await, Ok(vec![route.clone()]));
        assert_eq!(other.erase().await, Ok(1));
    }
}

#[tokio::test]
async fn the_servers_clock_its_rights_and_its_waiting_are_told() {
    let store = open(&format!("{}?wait_replicas=2", testbed::redis())).await;
    assert_eq!(store.awaited_replicas(), 2);
    assert_eq!(store.lacking_rights().await, Ok(vec![]), "the user of the tests may do everything");
    let shown = store.server_time().await.unwrap().unix_micros();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let apart = Duration::from_micros(u64::try_from(shown).unwrap()).abs_diff(now);
    assert!(apart < Duration::from_secs(60), "{apart:?}");
}
