//! A disk that fails and a disk that is full: errors are told as errors, and nothing is lost.
//!
//! strace lets single calls fail, and all calls from one on; a small file system in memory is filled
//! up for real.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use onceward_crash::strace::{Call, CallSite, Fault, Moment, Strace, call_sites, parse, threads};
use support::{
    Bench, KEY, Kind, bound, each_in_parallel,
    skip::{announce, can_run, strace},
    worker::Worker,
};
use testbed::SmallDisk;

/// Most of a run is waiting for the disk, for a lease or for the patience of the engine.
const LANES: usize = 8;

/// Within this time after a fault is over, everything has an end.
const RECOVERY: Duration = Duration::from_secs(5);

#[test]
fn a_sync_that_fails() {
    failing_calls("a sync fails", "EIO", Call::syncs);
}

#[test]
fn a_write_without_room() {
    failing_calls("a write fails for want of room", "ENOSPC", |call| call.name == "pwrite64");
}

/// Lets each chosen call of a claim and its end fail: once, and from then on.
fn failing_calls(what: &str, error: &'static str, chosen: fn(&Call) -> bool) {
    if !can_run(what, strace()) {
        return;
    }
    let start = Instant::now();
    let benches = Kind::BOTH.map(Bench::used);
    let mut runs = Vec::new();
    for bench in &benches {
        let (running, closing) = recorded(bench, chosen);
        assert!(!running.is_empty() && !closing.is_empty(), "there must be something to fail");
        let all = running.iter().chain(&closing);
        runs.extend(all.map(|site| (bench, site.clone(), Fault::Once(error))));
        runs.extend(running.into_iter().map(|site| (bench, site, Fault::FromThenOn(error))));
    }
    let said = each_in_parallel(LANES, &runs, |(bench, site, fault)| match fault {
        Fault::FromThenOn(_) => fails_until_repaired(bench, site, *fault),
        _ => fails_once(bench, site, *fault),
    });
    let count = |word: &str| said.iter().filter(|line| line.starts_with(word)).count();
    announce(&format!(
        "{what}: {} runs ({} acknowledged, {} refused, {} unsettled) in {:.1?}",
        runs.len(),
        count("ack"),
        count("refused"),
        count("unsettled"),
        start.elapsed()
    ));
    assert!(count("refused") > 0 && count("unsettled") > 0, "errors are told as errors: {said:?}");
}

/// The chosen calls on the files of the store: from a claim to its end, and when it is closed.
fn recorded(bench: &Bench, chosen: fn(&Call) -> bool) -> (Vec<CallSite>, Vec<CallSite>) {
    let bench = bench.copy();
    let mut worker = Worker::start(&bench);
    let names = threads(worker.id()).unwrap();
    let strace = Strace::record(worker.id(), &bench.trace()).unwrap();
    assert!(worker.ask(&format!("run {KEY}")).starts_with("ack"));
    worker.finish();
    strace.wait();
    let record = parse(&fs::read_to_string(bench.trace()).unwrap());
    let says = |moment: &Moment| matches!(moment, Moment::Begun(call) if call.says());
    let end = record.iter().position(says).expect("it was acknowledged");
    let call_sites = |record: &[Moment]| {
        call_sites(record, &names, |call| chosen(call) && call.is_below(&bench.database()))
    };
    let (running, mut all) = (call_sites(&record[..end]), call_sites(&record));
    all.retain(|site| !running.contains(site));
    (running, all)
}

/// One failing call is no reason to fail, except in the user's own commit.
fn fails_once(bench: &Bench, site: &CallSite, fault: Fault) -> String {
    let bench = bench.copy();
    let mut worker = Worker::start(&bench);
    let strace = Strace::inject(worker.id(), site, fault, &bench.trace()).unwrap();
    worker.tell(&format!("run {KEY}"));
    let said = worker.finish();
    assert!(worker.status().success(), "{site:?}: {said:?}");
    strace.wait();
    was_injected(&bench, site);
    let [line] = &said[..] else { panic!("one command, one answer: {said:?}") };
    let is_own_commit = site.thread == "worker";
    assert!(line.starts_with("ack") || is_own_commit, "{site:?}: {line}");
    bench.check_after_restart(&said).unwrap();
    line.clone()
}

/// Calls fail until the disk is repaired; the same process must find its way out.
fn fails_until_repaired(bench: &Bench, site: &CallSite, fault: Fault) -> String {
    let bench = bench.copy();
    let mut worker = Worker::start(&bench);
    let strace = Strace::inject(worker.id(), site, fault, &bench.trace()).unwrap();
    let mut said = vec![worker.ask(&format!("run {KEY}"))];
    strace.detach();
    let begun = bench.effects(KEY).len();
    match said[0].split(' ').next() {
        Some("ack") => {}
        Some("refused") => assert_eq!(begun, 0, "nothing was run: {said:?}"),
        Some("unsettled") => assert!(said[0].len() > "unsettled ".len() + KEY.len()),
        _ => panic!("{site:?}: {said:?}"),
    }
    said.push(retry(&mut worker));
    said.extend(worker.finish());
    assert!(worker.status().success(), "{site:?}: {said:?}");
    bench.check(&said, &said[1]).unwrap();
    bench.check_after_restart(&said).unwrap();
    said.remove(0)
}

/// Asks until the outcome is known: a settlement under way wins over an unknown outcome.
fn retry(worker: &mut Worker) -> String {
    let end = Instant::now() + RECOVERY;
    loop {
        let line = worker.ask(&format!("retry {KEY}"));
        if bound(&line).is_some() {
            return line;
        }
        assert!(Instant::now() < end, "still not known: {line}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn was_injected(bench: &Bench, site: &CallSite) {
    let trace = fs::read_to_string(bench.trace()).unwrap();
    assert_eq!(trace.matches("(INJECTED)").count(), 1, "{site:?}: {trace}");
}

/// How much is kept free for settling what runs.
const RESERVE: u64 = 1 << 20;

#[test]
fn a_disk_that_fills_up() {
    for kind in Kind::BOTH {
        match SmallDisk::mount(16 << 20) {
            Ok(disk) => fill_up(&disk, kind),
            Err(reason) => drop(can_run("a disk fills up", Err(reason))),
        }
    }
}

fn fill_up(disk: &SmallDisk, kind: Kind) {
    let start = Instant::now();
    let bench = Bench::on(disk.path(), kind, RESERVE);
    let mut worker = Worker::start(&bench);
    let mut said = Vec::new();

    // So much at once that there is no room for its end.
    assert!(worker.ask(&format!("begin {KEY} {RESERVE}")).starts_with("begun"));
    disk.fill();
    said.push(worker.ask(&format!("end {KEY}")));
    assert!(said[0].starts_with("unsettled"), "it is not durable: {said:?}");
    disk.empty();
    said.push(retry(&mut worker));
    bench.check(&said, &said[1]).unwrap();

    let acknowledged = until_refused(disk, &mut worker);
    // A claim is refused below the reserve, but what was begun before can be ended there.
    let ended = worker.ask("end begun-before");
    assert!(ended.starts_with("ack begun-before"), "{ended}");
    disk.fill();
    repeats(&mut worker, &acknowledged);
    let refused = worker.ask("run refused");
    assert!(refused.starts_with("refused refused"), "{refused}");
    worker.kill();

    // On a full disk a store may or may not be opened, but an error is told.
    let mut worker = Worker::spawn(&["env".into()], &bench, &[]);
    let opened = worker.hear().expect("it says why");
    assert!(opened == "ready" || opened.starts_with("failed"), "{opened}");
    drop(worker);

    disk.empty();
    bench.check_after_restart(&said).unwrap();
    let mut worker = Worker::start(&bench);
    repeats(&mut worker, &acknowledged);
    assert!(worker.ask("run refused").starts_with("ack refused"), "there is room again");
    assert!(worker.end().success());
    announce(&format!(
        "a disk fills up, {kind:?}: {} acknowledged before claims were refused; opening it when \
         full: {:.60}; in {:.1?}",
        acknowledged.len(),
        opened,
        start.elapsed()
    ));
}

/// Takes away room bit by bit; what was acknowledged until claims are refused.
fn until_refused(disk: &SmallDisk, worker: &mut Worker) -> Vec<String> {
    assert!(worker.ask("begin begun-before").starts_with("begun"));
    let mut acknowledged = Vec::new();
    loop {
        let line = worker.ask(&format!("run filling-{} 4096", acknowledged.len()));
        if line.starts_with("refused") {
            assert!(line.contains("takes no new claims"), "{line}");
            assert!(!acknowledged.is_empty(), "there was room at first");
            return acknowledged;
        }
        assert!(line.starts_with("ack"), "{line}");
        acknowledged.push(line);
        assert!(disk.take(512 << 10), "claims are refused before there is no room at all");
        // The store looks at the room no more often than that.
        thread::sleep(Duration::from_millis(100));
    }
}

/// Duplicates get their answers, whether or not there is room.
fn repeats(worker: &mut Worker, acknowledged: &[String]) {
    for line in acknowledged {
        let key = line.split(' ').nth(1).unwrap();
        let replay = worker.ask(&format!("retry {key}"));
        assert_eq!(replay, line.replacen("ack", "replay", 1));
    }
}
