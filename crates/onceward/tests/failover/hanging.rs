//! A primary that hangs: it refuses nothing and closes nothing, it only never answers.

use std::time::Duration;

use onceward::{
    Effect, Ending, Engine, Outcome, Verdict, protocol::Settled, store::postgres::PostgresStore,
};
use tokio::time::sleep;

use crate::pair::{Pair, asked};

/// A claim that nobody could end before the failover is taken over.
const EFFECT: Effect = Effect::Repeatable { within: Duration::from_secs(3600) };

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_hangs_does_not_keep_the_store_from_its_successor() {
    let pair = Pair::synchronous();
    let database = pair.primary.database();
    // The one that will hang is named first, and the only connection for claims is to it.
    let builder = PostgresStore::builder(&pair.url(&database)).unwrap().lanes(1);
    let engine = Engine::new(builder.open().await.unwrap());
    end(&engine, "before").await;
    pair.primary.pause();
    pair.standby.expect_standbys(&[]);
    pair.standby.promote();

    end(&engine, "after").await;
    let replayed = engine.admit(asked(EFFECT, "before")).await;
    assert!(matches!(replayed, Ok(Verdict::Replay(_))), "{replayed:?}");
}

/// Asks until the operation has ended.
async fn end(engine: &Engine, key: &str) {
    let mut last = String::new();
    for _ in 0..300 {
        match engine.admit(asked(EFFECT, key)).await {
            Ok(Verdict::Run(claim)) => {
                let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
                let settled = engine.settle(claim, ending).await;
                if matches!(settled, Ok(Settled::Stored { .. })) {
                    return;
                }
                last = format!("{settled:?}");
            }
            Ok(Verdict::Replay(_)) => return,
            other => last = format!("{other:?}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
    panic!("{key} did not end: {last}");
}
