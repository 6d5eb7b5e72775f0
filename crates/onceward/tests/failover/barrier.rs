//! A record that the primary has and its standby has not is not replayed.

use std::time::Duration;

use onceward::{Effect, Ending, Engine, Outcome, Verdict, store::postgres::PostgresStore};
use tokio::time::{sleep, timeout};

use crate::pair::{Pair, asked};

/// A restart makes visible what was committed here and acknowledged to nobody: the standby, once promoted,
/// would know nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_standby_does_not_have_is_not_replayed_after_a_restart() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    let url = pair.url(&database);
    let first = Engine::new(PostgresStore::connect(&url).await.unwrap());
    let Ok(Verdict::Run(claim)) = first.admit(asked(Effect::External, "k")).await else {
        panic!("the key is free");
    };
    pair.standby.pause();
    let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    let settling = tokio::spawn(first.settle(claim, ending));
    let pair = tokio::task::spawn_blocking(move || {
        pair.waiting_commit();
        pair.primary.kill();
        pair.primary.restart();
        pair
    })
    .await
    .unwrap();
    assert!(settling.await.unwrap().is_err(), "nobody was told that it is stored");
    let visible = "SELECT count(*) FROM onceward.record WHERE state = 3";
    assert_eq!(database.sql(visible), "1", "the primary shows it");

    // Only the primary is asked: the other host of the address is paused and would not answer.
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let engine = Engine::new(store).call_timeout(Duration::from_secs(2));
    let early = timeout(Duration::from_secs(3), engine.admit(asked(Effect::External, "k"))).await;
    assert!(!matches!(early, Ok(Ok(Verdict::Replay(_)))), "{early:?}");

    pair.standby.resume();
    let mut tries = 0;
    loop {
        match engine.admit(asked(Effect::External, "k")).await {
            Ok(Verdict::Replay(replay)) => {
                assert_eq!(replay.outcome, Outcome::inline(201, b"paid".to_vec()));
                break;
            }
            other => assert!(tries < 200, "{other:?}"),
        }
        tries += 1;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(pair.standby.try_sql("SELECT 1").unwrap(), "1");
}
