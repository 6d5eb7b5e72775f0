//! The primary is killed again and again, and its synchronous standby takes its place.

use std::env;

use crate::{
    oracle::judge,
    pair::Pair,
    till::{LEDGER, Till},
};

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_lost_and_no_effect_doubled_by_failovers_under_load() {
    let rounds = if env::var_os("ONCEWARD_LONG").is_some() { 200 } else { 5 };
    let mut pair = Pair::synchronous();
    let database = pair.primary.database();
    database.sql(LEDGER);
    // Opened once: it finds every new primary by itself.
    let till = Till::open(&pair.url(&database)).await;
    let serving = tokio::spawn({
        let till = till.clone();
        async move { till.serve(3).await }
    });

    let observed = till.observed.clone();
    let pair = tokio::task::spawn_blocking(move || {
        for round in 1..=rounds {
            observed.wait_for_more(60);
            pair.fail_over();
            eprintln!("failover {round}: {} answers so far", observed.count());
        }
        observed.wait_for_more(60);
        observed.close();
        pair
    })
    .await
    .unwrap();
    serving.await.unwrap();

    let name = database.name();
    let ledger = pair.primary.sql(&format!("\\connect {name}\nSELECT key, execution FROM ledger"));
    judge(&till.observed, &till.engine, &ledger).await;
}
