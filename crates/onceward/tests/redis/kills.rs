//! `kill -9` of the server, again and again, while customers ask.

use std::sync::Arc;

use onceward::{Engine, conformance::block_on, protocol::conformance::Bench as _};
use testbed::RedisServer;

use crate::{
    support::private,
    till::{Sum, Till},
};

const PAIRS: usize = 16;

/// So many answers are given before each kill.
const ANSWERS: usize = 300;

/// What became of the customers of a server that was killed so often.
async fn killed(kills: usize, settings: &[(&str, &str)]) -> Sum {
    let (server, bench) = private(settings);
    let server = Arc::new(server);
    let till = Till::new(Engine::new(bench.open().await));
    let serving = tokio::spawn({
        let till = till.clone();
        async move { till.serve(PAIRS).await }
    });
    for _ in 0..kills {
        till.wait_for_more(ANSWERS).await;
        let dying: Arc<RedisServer> = Arc::clone(&server);
        tokio::task::spawn_blocking(move || dying.restart()).await.unwrap();
    }
    till.wait_for_more(ANSWERS).await;
    till.close();
    serving.await.unwrap();
    till.sum().await
}

#[test]
fn killed_again_and_again_under_load_nothing_is_lost_and_nothing_runs_twice() {
    block_on(async {
        let sum = killed(5, &[]).await;
        let Sum { effects, answered, unknown, twice, lost } = &sum;
        println!("5 kills: {effects} effects, {answered} keys answered, {unknown} unknown");
        assert_eq!(twice, &[""; 0], "had more than once");
        assert_eq!(lost, &[""; 0], "acknowledged, and not there any more");
        assert!(answered >= &(ANSWERS * 3), "pairs ask with the same keys: {answered}");
    });
}

/// If this found nothing, the test before would prove nothing.
#[test]
fn without_a_log_a_kill_makes_everything_run_again_and_that_is_noticed() {
    block_on(async {
        let sum = killed(1, &[("appendonly", "no")]).await;
        let Sum { effects, answered, twice, lost, .. } = &sum;
        let (twice, lost) = (twice.len(), lost.len());
        println!(
            "without a log, 1 kill: {effects} effects, {answered} keys answered, {twice} had twice, {lost} lost"
        );
        assert!(lost > ANSWERS / 4, "what was answered before the kill is gone: {lost}");
    });
}
