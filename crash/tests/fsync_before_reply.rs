//! A Redis server under strace: what it has on disk before it answers.
//!
//! With `appendfsync always` each change is written to the log and synced before its answer leaves. With `everysec` it
//! is not, and while a sync is slow the server does not even write: then a killed *process* loses acknowledged changes,
//! although the machine lives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use onceward::{
    Effect, Ending, Engine, Fingerprint, Key, OperationId, OperationName, Outcome, Request, Scope,
    Terms, Verdict, protocol::Settled, store::redis::RedisStore,
};
use onceward_crash::strace::{Moment, parse};
use tempfile::TempDir;
use testbed::{RedisInstallation, RedisServer};

/// Operations one after the other, each claimed and settled.
const ALONE: usize = 30;

/// Operations at the same time, after that.
const TOGETHER: usize = 200;

/// A server whose system calls are written down.
struct Traced {
    server: RedisServer,
    trace: PathBuf,
    _directory: TempDir,
}

impl Traced {
    /// `None`, said loudly, where there is no server or nothing may be traced.
    fn start(test: &str, options: &str, settings: &[(&str, &str)]) -> Option<Self> {
        let installation = match installed() {
            Ok(installation) => installation,
            Err(reason) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
                return None;
            }
        };
        let directory = TempDir::new().unwrap();
        let (trace, program) = (directory.path().join("trace"), directory.path().join("server"));
        // The tracer is a grandchild, so that a test that kills its child kills the server.
        let text = format!(
            "#!/bin/sh\nexec strace -D -f -y -s 20000 -o '{}' {options} '{}' \"$@\"\n",
            trace.display(),
            installation.program().display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let traced = RedisInstallation::at(program).expect("the same server runs under strace");
        let server = RedisServer::start(&traced, settings).unwrap();
        Some(Self { server, trace, _directory: directory })
    }

    /// Kills the server, and reads what it did.
    fn moments(&self) -> Vec<Moment> {
        self.server.kill();
        let began = Instant::now();
        loop {
            let record = fs::read_to_string(&self.trace).unwrap();
            if record.lines().any(|line| line.ends_with("+++ killed by SIGKILL +++")) {
                return parse(&record);
            }
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "the trace does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The server, where one is and may be traced.
fn installed() -> Result<RedisInstallation, String> {
    let probe = Command::new("strace").args(["-o", "/dev/null", "-D", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return Err("strace is not installed, or may trace nothing".to_owned());
    }
    RedisInstallation::preferred().map_err(|trouble| trouble.to_string())
}

fn request(key: &str) -> Request {
    Request {
        operation: OperationId::new(
            Scope::global(),
            OperationName::new("POST /charges").unwrap(),
            Key::new(key).unwrap(),
        ),
        fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
        terms: Terms::of(Effect::External).build().unwrap(),
    }
}

/// Claims and settles; whether both were acknowledged.
async fn run(engine: Engine, key: String) -> bool {
    let Ok(Verdict::Run(claim)) = engine.admit(request(&key)).await else { return false };
    let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    matches!(engine.settle(claim, paid).await, Ok(Settled::Stored { .. }))
}

async fn engine(server: &RedisServer) -> Engine {
    let store = RedisStore::builder(&server.url()).unwrap().accept_relaxed().open().await.unwrap();
    Engine::new(store)
}

async fn run_all(server: &RedisServer) {
    let engine = engine(server).await;
    for number in 0..ALONE {
        assert!(run(engine.clone(), format!("alone-{number}")).await);
    }
    let together =
        (0..TOGETHER).map(|number| tokio::spawn(run(engine.clone(), format!("together-{number}"))));
    for ended in together.collect::<Vec<_>>() {
        assert!(ended.await.unwrap());
    }
}

/// What a trace shows of the answers to changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    /// Changes that were acknowledged.
    acknowledged: usize,
    /// Packets in which an acknowledgement left while something in the log was not synced.
    too_early: usize,
    /// Of the first ones, which came one after the other: those before which the log did not grow at all.
    without_a_trace: usize,
}

/// A change is acknowledged with the server's time: a number of microseconds. Other answers begin otherwise.
fn acknowledgements(arguments: &str) -> usize {
    let Some((_, answer)) = arguments.split_once(", \":") else { return 0 };
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_time = |part: &&str| part.len() > 16 && part.bytes().take(16).all(is_digit);
    answer.split(':').filter(is_time).count()
}

fn answers(moments: &[Moment]) -> Answers {
    let mut answers = Answers::default();
    let (mut is_dirty, mut has_grown) = (false, false);
    let is_log = |arguments: &str| arguments.contains(".aof");
    for moment in moments {
        match moment {
            Moment::Begun(call) if call.name == "write" && is_log(&call.arguments) => {
                is_dirty = true;
                has_grown = true;
            }
            Moment::Ended(call, 0) if call.syncs() && is_log(&call.arguments) => is_dirty = false,
            Moment::Begun(call)
                if call.arguments.contains("<socket:") || call.arguments.contains("<TCP:") =>
            {
                let count = acknowledgements(&call.arguments);
                if count == 0 {
                    continue;
                }
                answers.too_early += usize::from(is_dirty);
                let is_alone = answers.acknowledged < ALONE * 2;
                answers.without_a_trace += usize::from(is_alone && !has_grown);
                answers.acknowledged += count;
                has_grown = false;
            }
            _ => {}
        }
    }
    answers
}

const CALLS: &str = "-e trace=write,writev,sendto,fsync,fdatasync";

async fn traced(test: &str, fsync: &str) -> Option<Answers> {
    let traced = Traced::start(test, CALLS, &[("appendfsync", fsync)])?;
    run_all(&traced.server).await;
    let answers = answers(&traced.moments());
    let _ = writeln!(std::io::stderr(), "appendfsync {fsync}: {answers:?}");
    Some(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_log_that_is_always_synced_no_answer_leaves_before_its_sync() {
    let Some(answers) = traced("a sync before each answer", "always").await else { return };
    assert!(answers.acknowledged >= (ALONE + TOGETHER) * 2, "some are not seen: {answers:?}");
    assert_eq!((answers.too_early, answers.without_a_trace), (0, 0), "{answers:?}");
}

/// If this found nothing, the test before would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_leave_before_their_sync_are_found() {
    let Some(answers) = traced("answers before their sync", "everysec").await else { return };
    assert!(answers.too_early > 0, "{answers:?}");
}

/// The disk needs a second and a half for a sync; the server waits with its writes meanwhile, and answers.
#[tokio::test(flavor = "multi_thread")]
async fn with_everysec_a_slow_disk_and_a_killed_process_lose_what_was_acknowledged() {
    let slow = "-e trace=fdatasync,fsync -e inject=fdatasync:delay_enter=1500000";
    let settings = [("appendfsync", "everysec")];
    let Some(traced) = Traced::start("everysec on a slow disk", slow, &settings) else { return };
    let (server, began) = (&traced.server, Instant::now());
    let before = engine(server).await;
    let mut acknowledged = Vec::new();
    // It holds back, has written that, and holds back again.
    for holds_back in [true, false, true] {
        while (unwritten(server) >= 20_000) != holds_back {
            let key = format!("k-{}", acknowledged.len());
            assert!(run(before.clone(), key.clone()).await);
            acknowledged.push(key);
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "{} operations", acknowledged.len());
        }
    }
    server.kill();
    tokio::task::block_in_place(|| server.restart());
    let after = engine(server).await;
    let mut lost = 0;
    for key in &acknowledged {
        let verdict = after.admit(request(key)).await;
        lost += usize::from(!matches!(verdict, Ok(Verdict::Replay(_))));
    }
    let all = acknowledged.len();
    let _ = writeln!(
        std::io::stderr(),
        "everysec, a sync of 1.5 s, kill -9: {lost} of {all} acknowledged operations lost"
    );
    assert!(lost > 0 && lost < all, "as docs/redis.md says");
}

/// How many bytes of its log the server has in memory alone.
fn unwritten(server: &RedisServer) -> usize {
    let info = server.command(&["INFO", "persistence"]).to_string();
    let found = info.lines().find_map(|line| line.strip_prefix("aof_buffer_length:"));
    found.unwrap().trim().parse().unwrap()
}
