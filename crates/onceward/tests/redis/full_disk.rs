//! A disk that has no room for the server's log.

use std::time::{Duration, Instant};

use onceward::{
    Ending, Engine, Outcome, Verdict,
    conformance::block_on,
    protocol::{Settled, conformance::Bench as _},
};
use testbed::{RedisServer, SmallDisk};

use crate::{support::private, till::asked};

/// In bytes.
const DISK: usize = 16 << 20;

/// Claims and settles until something is refused: the keys that were answered, and the words.
async fn run_until_refused(engine: &Engine) -> (Vec<String>, String) {
    let mut answered = Vec::new();
    for number in 0..100_000 {
        let key = format!("k-{number}");
        let claim = match engine.admit(asked(&key)).await {
            Ok(Verdict::Run(claim)) => claim,
            Ok(other) => panic!("{key} is new: {other:?}"),
            Err(error) => return (answered, error.to_string()),
        };
        let paid = Ending::Succeeded(Outcome::inline(201, vec![b'x'; 500]));
        if let Ok(Settled::Stored { .. }) = engine.settle(claim, paid).await {
            answered.push(key);
        }
    }
    panic!("the disk is full, and nothing was refused");
}

async fn until_it_takes_claims(engine: &Engine) {
    let began = Instant::now();
    while !matches!(engine.admit(asked("later")).await, Ok(Verdict::Run(_) | Verdict::Busy { .. }))
    {
        assert!(began.elapsed() < testbed::TEST_TIMEOUT, "it never takes claims again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Fills the disk, empties it again, and looks for what was answered; returns what was refused with.
async fn fill_up(fsync: &str, mend: fn(&RedisServer)) -> Option<String> {
    let disk = match SmallDisk::mount(DISK) {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("SKIPPED: Redis on a full disk: {reason}");
            return None;
        }
    };
    let directory = disk.path().display().to_string();
    let (server, bench) = private(&[("dir", &directory), ("appendfsync", fsync)]);
    let engine = Engine::new(bench.open().await);
    // There is room for some.
    disk.take(DISK - (200 << 10));
    let (answered, words) = run_until_refused(&engine).await;
    assert!(answered.len() >= 10, "the disk was full before: {words}");
    disk.empty();
    tokio::task::block_in_place(|| mend(&server));
    until_it_takes_claims(&engine).await;
    // What it had in memory alone would be gone now.
    tokio::task::block_in_place(|| server.restart());
    until_it_takes_claims(&engine).await;
    println!("appendfsync {fsync}: {} keys answered, then {words}", answered.len());
    for key in &answered {
        let verdict = engine.admit(asked(key)).await;
        assert!(matches!(verdict, Ok(Verdict::Replay(_))), "{key} was answered: {verdict:?}");
    }
    Some(words)
}

#[test]
fn a_log_that_cannot_be_synced_ends_the_server_before_it_answers() {
    block_on(async {
        // It has ended itself, and an operator starts it again.
        let words = fill_up("always", RedisServer::restart).await;
        assert!(words.is_none_or(|words| words.contains("does not answer")), "nobody is there");
    });
}

#[test]
fn a_log_that_cannot_be_written_refuses_changes_until_it_can() {
    block_on(async {
        let Some(words) = fill_up("everysec", |_| {}).await else { return };
        assert!(words.contains("MISCONF") && words.contains("disk"), "{words}");
    });
}
