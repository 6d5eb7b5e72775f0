//! Servers that die, hang, lose their role or keep others waiting.

use std::time::{Duration, Instant};

use onceward::{
    Effect, Store as _, StoreError,
    conformance::block_on,
    protocol::{
        Admission, Execution, Found,
        conformance::{Bench, Sample, fresh_fence},
    },
    store::{
        Change, Swap,
        redis::{OpenError, RedisStore},
    },
};
use testbed::{RedisInstallation, RedisServer, Signal};

use crate::{
    store::{claim, ended, paid},
    support::{private, with_prefix},
};

/// A claim that no request has made yet.
fn proposal() -> Change {
    let sample = Sample::new(Effect::External);
    let execution = Execution::from_bytes([7; 16]);
    Admission::new(sample.request(b'a'), fresh_fence(), execution).change().clone()
}

/// Swaps until the store answers.
async fn until_stored(store: &RedisStore, change: &Change) {
    let began = Instant::now();
    loop {
        match store.swap(change).await {
            Ok(Swap::Stored { .. }) => return,
            // An answer was lost.
            Ok(Swap::Conflict(Found::Record(stored)))
                if stored.record.fence == change.next.fence =>
            {
                return;
            }
            Err(StoreError::Unavailable(_)) if began.elapsed() < testbed::TEST_TIMEOUT => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_again_and_has_lost_nothing() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    let mut samples = Vec::new();
    for _ in 0..3 {
        samples.push(ended(&bench, &store, paid()).await.0);
        server.kill();
        let down = store.swap(&proposal()).await;
        assert!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
        server.restart();
        // On each of its connections.
        for _ in 0..20 {
            until_stored(&store, &proposal()).await;
        }
    }
    for sample in &samples {
        assert!(
            matches!(store.get(&sample.id()).await, Ok(Found::Record(_))),
            "it was acknowledged"
        );
    }
}

/// Claims without a pause, kills the server in the middle, and looks for everything that was acknowledged.
#[test]
fn kill_9_loses_nothing_acknowledged_with_a_log_that_is_always_synced() {
    block_on(async {
        let (server, bench) = private(&[]);
        let store = bench.open().await;
        let acknowledged = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..16)
            .map(|_| {
                let (store, acknowledged) = (store.clone(), acknowledged.clone());
                tokio::spawn(async move {
                    loop {
                        let change = proposal();
                        match store.swap(&change).await {
                            Ok(_) => acknowledged.lock().unwrap().push(change.id),
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        while acknowledged.lock().unwrap().len() < 500 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        for writer in writers {
            writer.await.unwrap();
        }
        server.restart();
        for _ in 0..20 {
            until_stored(&store, &proposal()).await;
        }
        let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
        assert!(acknowledged.len() >= 500);
        for id in &acknowledged {
            assert!(
                matches!(store.get(id).await, Ok(Found::Record(_))),
                "{id} was acknowledged and is gone"
            );
        }
    });
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_and_comes_back() {
    let (server, _) = private(&[]);
    let builder = RedisStore::builder(&with_prefix(&server.url())).unwrap().accept_relaxed();
    let store = builder.timeout(Duration::from_millis(300)).open().await.unwrap();
    until_stored(&store, &proposal()).await;
    server.signal(Signal::STOP);
    let (began, silent) = (Instant::now(), store.swap(&proposal()).await);
    server.signal(Signal::CONT);
    assert!(matches!(silent, Err(StoreError::Unavailable(_))), "{silent:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "it was not waited for without end");
    until_stored(&store, &proposal()).await;
}

#[tokio::test]
async fn a_server_that_became_a_replica_takes_nothing_until_it_is_primary_again() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    until_stored(&store, &proposal()).await;
    let primary = RedisServer::start(&RedisInstallation::preferred().unwrap(), &[]).unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let refused = store.swap(&proposal()).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(words)) if words.contains("READONLY") && words.contains("replica")),
        "{refused:?}"
    );
    let opened = RedisStore::builder(&server.url()).unwrap().accept_relaxed().open().await;
    let error = opened.map(drop).unwrap_err();
    assert!(
        matches!(error, OpenError::Unfit(_)) && error.to_string().contains("name the primary"),
        "{error}"
    );
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_stored(&store, &proposal()).await;
}

#[tokio::test]
async fn too_few_replicas_refuse_changes_and_too_few_copies_are_not_called_made() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = store.swap(&proposal()).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(words)) if words.contains("NOREPLICAS")),
        "{refused:?}"
    );
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);

    let patience = Duration::from_millis(200);
    let builder = RedisStore::builder(&with_prefix(&server.url())).unwrap().accept_relaxed();
    let waiting = builder.wait_replicas(1, patience).open().await.unwrap();
    let change = proposal();
    let doubtful = waiting.swap(&change).await;
    assert!(
        matches!(&doubtful, Err(StoreError::Unavailable(words)) if words.contains("0 of 1 replicas")),
        "{doubtful:?}"
    );
    let again = waiting.swap(&change).await;
    assert!(
        matches!(again, Err(StoreError::Unavailable(_))),
        "not what is there already either: {again:?}"
    );
    assert!(matches!(waiting.get(&change.id).await, Err(StoreError::Unavailable(_))));
    let _replica = server.replica(&[]).unwrap();
    // Now it is elsewhere too, as soon as the replica has said so for the first time.
    until_stored(&waiting, &change).await;
    assert!(matches!(waiting.get(&change.id).await, Ok(Found::Record(_))));
    until_stored(&waiting, &proposal()).await;
    assert_eq!(waiting.condition().await.unwrap().replicas, 1);
}

#[tokio::test]
async fn logs_on_disk_are_waited_for_where_the_server_can() {
    let (server, bench) = private(&[]);
    let patience = Duration::from_secs(20);
    let builder = RedisStore::builder(&with_prefix(&server.url())).unwrap().accept_relaxed();
    let can = server.try_command(&["WAITAOF", "0", "0", "1"]).is_ok();
    match builder.clone().wait_aof(0, patience).open().await {
        Ok(store) => {
            assert!(can);
            until_stored(&store, &proposal()).await;
            let claim = claim(&bench, &store, &Sample::new(Effect::External)).await;
            bench.settle(&store, &claim, paid()).await;
            server.command(&["CONFIG", "SET", "appendonly", "no"]);
            let error = builder.wait_aof(0, patience).open().await.map(drop).unwrap_err();
            assert!(error.to_string().contains("appendonly yes"), "{error}");
        }
        Err(error) => {
            assert!(!can && error.to_string().contains("WAITAOF"), "{error}");
        }
    }
}
