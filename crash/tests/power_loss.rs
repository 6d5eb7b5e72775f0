//! The power fails: whatever is left on the disk, what was acknowledged is there.
//!
//! A worker runs under strace, and from the trace all states are made that the disk may be in at any
//! moment. The store must open each of them and know everything that had been said until then.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../src/bin/worker/operation.rs"]
mod operation;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use onceward::{Effect, State, Store as _, protocol::Found, store::sqlite::SqliteStore};
use onceward_crash::{
    power::{Crash, Disk, Trace},
    strace::Strace,
};
use support::{
    Bench, Kind, charges, each_in_parallel,
    skip::{announce, can_run, strace},
    worker::Worker,
};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// Opening a store is work for a core.
const LANES: usize = 2;

/// How many states of a trace the usual run opens, evenly spread over its moments.
const USUAL: usize = 500;

const KEYS: [&str; 4] = ["charge-1", "charge-2", "charge-3", "charge-4"];

/// A checkpoint begins a second after a commit; this is long enough for it.
const CHECKPOINT: Duration = Duration::from_millis(1500);

#[test]
fn nothing_acknowledged_is_lost_with_an_external_effect() {
    if can_run("power loss, external", strace()) {
        let broken = broken_promises("external", &traced(Kind::External, &[]), Kind::External);
        assert_eq!(broken, [""; 0]);
    }
}

#[test]
fn an_effect_in_the_same_transaction_lives_and_dies_with_its_record() {
    if can_run("power loss, transactional", strace()) {
        let trace = traced(Kind::Transactional, &[]);
        let broken = broken_promises("transactional", &trace, Kind::Transactional);
        assert_eq!(broken, [""; 0]);
    }
}

/// If this found nothing, the two before would prove nothing.
#[test]
fn a_connection_that_does_not_wait_for_the_disk_loses_what_it_acknowledged() {
    if can_run("power loss, relaxed", strace()) {
        let trace = traced(Kind::Transactional, &["--bug", "relaxed"]);
        let broken = broken_promises("relaxed", &trace, Kind::Transactional);
        let lost = broken.iter().filter(|promise| promise.contains("was acknowledged")).count();
        assert_eq!(lost, broken.len(), "record and row still die together: {broken:?}");
        assert!(lost > 0, "a loss must be found");
    }
}

/// The same for the other half of the promise.
#[test]
fn an_effect_in_a_transaction_of_its_own_lives_without_its_record() {
    if can_run("power loss, two transactions", strace()) {
        let trace = traced(Kind::Transactional, &["--bug", "apart"]);
        let broken = broken_promises("apart", &trace, Kind::Transactional);
        assert!(broken.iter().any(|promise| promise.contains("charged as")), "{broken:?}");
    }
}

/// A sync fails, is tried again, and the power fails after that.
#[test]
fn nothing_acknowledged_is_lost_after_a_sync_that_failed() {
    if !can_run("power loss after a failed sync", strace()) {
        return;
    }
    let faults = Kind::BOTH.map(|kind| [1, 2, 3].map(|number| (kind, number)));
    // A worker under strace mostly waits for its disk.
    each_in_parallel(6, faults.as_flattened(), |&(kind, number)| {
        let what = format!("{kind:?}, sync {number} of each thread failed");
        let trace = traced_with_failing_sync(kind, number);
        assert_eq!(broken_promises(&what, &trace, kind), [""; 0]);
    });
}

/// What is wrong in the states in which something is wrong.
fn broken_promises(what: &str, trace: &Trace, kind: Kind) -> Vec<String> {
    let start = Instant::now();
    let (crashes, all) = chosen(Crash::all(trace));
    let found = each_in_parallel(LANES, &crashes, |crash| broken_promise(trace, crash, kind));
    let broken: Vec<_> = found.into_iter().flatten().collect();
    announce(&format!(
        "power loss, {what}: {} of {all} states at {} moments, {} of them with a broken promise, in {:.1?}",
        crashes.len(),
        trace.points.len(),
        broken.len(),
        start.elapsed()
    ));
    assert!(crashes.len() > 100, "there must be something to check");
    broken
}

/// States of every moment, and how many there are: all of them in a long run, a share of each trace in a usual one.
fn chosen(states: Vec<Crash>) -> (Vec<Crash>, usize) {
    let all = states.len();
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let step = if is_long { 1 } else { all.div_ceil(USUAL) };
    (states.into_iter().step_by(step).collect(), all)
}

/// Two operations, a checkpoint, and two more that overwrite the log from its beginning.
fn traced(kind: Kind, options: &[&str]) -> Trace {
    let bench = Bench::empty(kind);
    let mut strace = vec!["strace".into(), "-o".into(), bench.trace().into_os_string()];
    strace.extend(Trace::options().into_iter().map(Into::into));
    let mut worker = Worker::spawn(&strace, &bench, options);
    assert_eq!(worker.hear().as_deref(), Some("ready"));
    for key in KEYS {
        assert!(worker.ask(&format!("run {key}")).starts_with("ack"));
        if key == KEYS[1] {
            thread::sleep(CHECKPOINT);
        }
    }
    assert_eq!(worker.finish(), [""; 0]);
    assert!(worker.status().success());
    let trace = read(&bench, Disk::default());
    assert_eq!(trace.said.len(), 1 + KEYS.len());
    trace
}

/// Three operations on a store that is there, and one sync of each thread that makes some fails.
fn traced_with_failing_sync(kind: Kind, number: u32) -> Trace {
    let bench = Bench::used(kind);
    let mut worker = Worker::start(&bench);
    let disk = Disk::with(bench.directory()).unwrap();
    let mut options = Trace::options();
    options.extend(["-e".into(), format!("inject=fsync:error=EIO:when={number}")]);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let strace = Strace::trace(worker.id(), &options, &bench.trace()).unwrap();
    for key in &KEYS[1..] {
        let said = worker.ask(&format!("run {key}"));
        assert!(said.starts_with("ack") || said.starts_with("unsettled"), "{said}");
    }
    assert_eq!(worker.finish(), [""; 0]);
    strace.wait();
    let trace = read(&bench, disk);
    assert_eq!(trace.said.len(), KEYS.len() - 1);
    trace
}

fn read(bench: &Bench, disk: Disk) -> Trace {
    let record = fs::read_to_string(bench.trace()).unwrap();
    Trace::read(&record, bench.directory(), "onceward.db", disk).unwrap()
}

fn broken_promise(trace: &Trace, crash: &Crash, kind: Kind) -> Option<String> {
    let directory = in_memory();
    crash.files(trace).write_into(directory.path()).unwrap();
    check(&directory.path().join("onceward.db"), crash.said(trace), kind).err()
}

/// Where files are fastest: nothing here depends on the disk that is really there.
fn in_memory() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    TempDir::new_in(&memory).or_else(|_| TempDir::new()).unwrap()
}

fn check(database: &Path, said: &[String], kind: Kind) -> Result<(), String> {
    let store = SqliteStore::open(database).map_err(|error| format!("not opened: {error}"))?;
    let connection = rusqlite::Connection::open(database).unwrap();
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    if sound != "ok" {
        return Err(format!("not sound: {sound}"));
    }
    let runtime = Builder::new_current_thread().build().unwrap();
    for key in KEYS {
        let answer = runtime.block_on(stored_answer(&store, key))?;
        let promised = said.iter().find_map(|line| line.strip_prefix(&format!("ack {key} ")));
        if promised.is_some() && promised != answer.as_deref() {
            return Err(format!("{key} was acknowledged as {promised:?} and is {answer:?}"));
        }
        let rows = charges(&connection, key);
        if kind == Kind::Transactional && rows != Vec::from_iter(answer.clone()) {
            return Err(format!("{key} is recorded as {answer:?} and charged as {rows:?}"));
        }
    }
    Ok(())
}

/// The answer that duplicates would get; `None`: it has not ended.
async fn stored_answer(store: &SqliteStore, key: &str) -> Result<Option<String>, String> {
    let digest = operation::request(key, Effect::External).operation.digest();
    match store.get(&digest).await {
        Ok(Found::Nothing) => Ok(None),
        Ok(Found::Record(stored)) => match stored.record.state {
            State::Succeeded(outcome) => Ok(Some(operation::shown(&outcome))),
            State::InProgress | State::Released => Ok(None),
            other => Err(format!("{key} is {other:?}, which nobody wrote")),
        },
        other => Err(format!("{key} cannot be read: {other:?}")),
    }
}
