//! A standby that nobody waits for: what is lost with it, and that strict refuses it.

use std::time::Duration;

use onceward::{
    Effect, Ending, Engine, Outcome, Verdict, protocol::Settled, store::postgres::PostgresStore,
};

use crate::pair::{Pair, asked};

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_failover_loses_what_was_acknowledged() {
    let pair = Pair::asynchronous();
    let database = pair.primary.database();
    let url = pair.url(&database);
    let store = PostgresStore::builder(&url).unwrap().accept_relaxed().open().await.unwrap();
    let engine = Engine::new(store);
    pair.primary.wait_for_standby(&pair.standby);
    // Behind, because it is away for a moment; the primary does not mind.
    pair.standby.stop();
    let Ok(Verdict::Run(claim)) = engine.admit(asked(Effect::External, "k")).await else {
        panic!("the key is free");
    };
    let ending = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    let settled = engine.settle(claim, ending).await.unwrap();
    assert!(matches!(settled, Settled::Stored { .. }), "acknowledged: {settled:?}");

    pair.primary.kill();
    pair.standby.restart();
    pair.standby.promote();
    let mut tries = 0;
    let again = loop {
        match engine.admit(asked(Effect::External, "k")).await {
            Ok(verdict) => break verdict,
            // Until the store has found the new primary.
            Err(error) => assert!(tries < 200, "{error}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(matches!(again, Verdict::Run(_)), "it would be paid twice: {again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_refuses_a_standby_that_nobody_waits_for() {
    let pair = Pair::asynchronous();
    let database = pair.primary.database();
    let refused = PostgresStore::connect(&pair.url(&database)).await.unwrap_err().to_string();
    assert!(refused.contains("synchronous_standby_names"), "{refused}");
    pair.primary.make_synchronous(&["standby"]);
    PostgresStore::connect(&pair.url(&database)).await.unwrap();
}
