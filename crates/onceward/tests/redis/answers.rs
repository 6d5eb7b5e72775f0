//! What the server says instead of an answer: while it starts, while a script of another client runs, and when a person
//! has deleted everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{
    Ending, Engine, Outcome, Verdict,
    conformance::block_on,
    protocol::{Settled, conformance::Bench as _},
};

use crate::{support::private, till::asked};

fn paid() -> Ending {
    Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))
}

#[test]
fn a_server_that_reads_its_log_says_so_and_has_everything_afterwards() {
    block_on(async {
        // Six thousand commands at a third of a millisecond each; it looks up after every thousand.
        let (server, bench) = private(&[("key-load-delay", "300")]);
        server.command(&["EVAL", "for n = 1, 6000 do redis.call('RPUSH', 'padding', n) end", "0"]);
        let engine = Engine::new(bench.open().await);
        let Ok(Verdict::Run(claim)) = engine.admit(asked("k")).await else { panic!("it is new") };
        let settled = engine.settle(claim, paid()).await;
        assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
        let (began, mut heard) = (Instant::now(), Vec::new());
        server.kill();
        let starting = tokio::task::spawn_blocking(move || {
            server.restart();
            server
        });
        let verdict = loop {
            match engine.admit(asked("k")).await {
                Ok(verdict) => break verdict,
                Err(error) => heard.push(error.to_string()),
            }
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "{heard:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(matches!(verdict, Verdict::Replay(_)), "{verdict:?}");
        let said = heard.iter().any(|words| words.contains("LOADING") && words.contains("a start"));
        assert!(said, "{heard:?}");
        starting.await.unwrap();
    });
}

#[test]
fn a_script_of_another_client_that_does_not_end_is_named_and_ended_by_its_own_means() {
    block_on(async {
        let (server, bench) = private(&[("busy-reply-threshold", "50")]);
        let engine = Engine::new(bench.open().await);
        let Ok(Verdict::Run(claim)) = engine.admit(asked("k")).await else { panic!("it is new") };
        let server = Arc::new(server);
        let looping = Arc::clone(&server);
        let script = tokio::task::spawn_blocking(move || {
            looping.try_command(&["EVAL", "while true do end", "0"])
        });
        let began = Instant::now();
        let refused = loop {
            match engine.admit(asked("other")).await {
                Err(error) => break error.to_string(),
                // The script has not begun yet.
                Ok(_) => assert!(began.elapsed() < testbed::TEST_TIMEOUT),
            }
        };
        assert!(
            refused.contains("BUSY") && refused.contains("script of another client"),
            "{refused}"
        );
        // The settlement goes on by itself while it cannot be stored.
        let settled = tokio::spawn(engine.settle(claim, paid()));
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.command(&["SCRIPT", "KILL"]);
        assert!(script.await.unwrap().is_err(), "it was killed");
        drop(settled.await);
        let began = Instant::now();
        while !matches!(engine.admit(asked("k")).await, Ok(Verdict::Replay(_))) {
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "it was never settled");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn what_somebody_deletes_runs_again_and_its_owner_is_told() {
    block_on(async {
        let (server, bench) = private(&[]);
        let engine = Engine::new(bench.open().await);
        let Ok(Verdict::Run(ended)) = engine.admit(asked("ended")).await else { panic!("new") };
        let settled = engine.settle(ended, paid()).await;
        assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
        let Ok(Verdict::Run(running)) = engine.admit(asked("running")).await else { panic!("new") };
        server.command(&["FLUSHALL"]);
        server.command(&["SCRIPT", "FLUSH"]);
        let again = engine.admit(asked("ended")).await;
        assert!(matches!(again, Ok(Verdict::Run(_))), "as docs/redis.md says: {again:?}");
        let settled = engine.settle(running, paid()).await;
        assert!(matches!(settled, Ok(Settled::FencedOff(_))), "never called done: {settled:?}");
        let again = engine.admit(asked("running")).await;
        assert!(matches!(again, Ok(Verdict::Run(_))), "as docs/redis.md says: {again:?}");
    });
}
