//! How much memory a record takes, with everything that belongs to it.

use std::sync::Arc;

use onceward::{
    Effect, Ending, Outcome,
    conformance::block_on,
    protocol::conformance::{Bench, Sample},
};
use tokio::sync::Semaphore;

use crate::{store::claim, support::private};

/// Enough that the sets of all partitions are as they are with millions.
const RECORDS: u32 = 100_000;

/// What docs/redis.md promises of a record with an answer of 500 bytes.
const MOST: i64 = 1300;

#[test]
#[ignore = "long: it writes a hundred thousand records"]
fn a_record_with_an_answer_of_500_bytes_takes_less_than_is_documented() {
    block_on(async {
        let (server, bench) = private(&[("appendonly", "no")]);
        let used = || {
            let info = server.command(&["INFO", "memory"]).to_string();
            let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
            line.unwrap().trim().parse::<i64>().unwrap()
        };
        let store = bench.open().await;
        claim(&bench, &store, &Sample::new(Effect::External)).await;
        let (before, places) = (used(), Arc::new(Semaphore::new(128)));
        let mut tasks = Vec::new();
        for _ in 0..RECORDS {
            let place = places.clone().acquire_owned().await.unwrap();
            let (bench, store) = (bench.clone(), store.clone());
            tasks.push(tokio::spawn(async move {
                let sample = Sample::new(Effect::External);
                let claim = claim(&bench, &store, &sample).await;
                let outcome = Outcome::inline(201, vec![b'x'; 500]);
                let outcome = outcome.header("content-type", b"application/json");
                bench.settle(&store, &claim, Ending::Succeeded(outcome)).await;
                drop(place);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let each = (used() - before) / i64::from(RECORDS);
        println!("{each} bytes a record");
        assert!(each <= MOST, "{each} bytes a record");
    });
}
