//! The same under Patroni, which sees by itself that a leader is gone.

use testbed::{Installation, Patroni};

use crate::{
    oracle::judge,
    till::{LEDGER, Till},
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: Patroni takes its time to see that a leader is gone"]
async fn no_answer_is_lost_and_no_effect_doubled_under_patroni() {
    let cluster = Patroni::start(&Installation::preferred().unwrap()).unwrap();
    cluster.try_sql(LEDGER).unwrap();
    let till = Till::open(&cluster.url("postgres")).await;
    let serving = tokio::spawn({
        let till = till.clone();
        async move { till.serve(3).await }
    });

    let observed = till.observed.clone();
    let cluster = tokio::task::spawn_blocking(move || {
        for round in 1..=5 {
            observed.wait_for_more(60);
            let leader = cluster.leader();
            // A machine that fails, and one that hangs and comes back as a leader of the past.
            match round % 2 {
                1 => cluster.kill(leader),
                _ => cluster.pause(leader),
            }
            observed.wait_for_more(60);
            match round % 2 {
                1 => cluster.restart(leader),
                _ => cluster.resume(leader),
            }
            cluster.wait_until_synchronous();
            eprintln!("round {round}: {} answers so far", observed.count());
        }
        observed.wait_for_more(60);
        observed.close();
        cluster
    })
    .await
    .unwrap();
    serving.await.unwrap();

    let ledger = cluster.try_sql("SELECT key, execution FROM ledger").unwrap();
    judge(&till.observed, &till.engine, &ledger).await;
}
