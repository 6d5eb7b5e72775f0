//! kill -9 at every system call by which a claim and its end change what is on the disk.
//!
//! A first run records the calls of every thread, then each call gets a run of its own in which the
//! process is killed just before it. Killed after the last one is what the next one covers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::process::ExitStatusExt as _,
    time::{Duration, Instant},
};

use onceward_crash::strace::{
    CallSite, Fault, MUTATING, Moment, Strace, call_sites, parse, threads,
};
use support::{
    Bench, KEY, Kind, each_in_parallel,
    skip::{announce, can_run, strace},
    worker::Worker,
};

/// Most of a run is waiting for the disk, for a lease or for strace.
const LANES: usize = 8;

/// A checkpoint begins a second after a commit; this is long enough for it.
const CHECKPOINT: Duration = Duration::from_secs(4);

/// Linux keeps 15 bytes of a name.
const CHECKPOINT_THREAD: &str = "onceward-checkp";

/// What a worker does in which a call is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// One claim and its end, then the store is closed at once.
    RunAndClose,
    /// One claim and its end, then the worker waits for the checkpoint.
    RunAndWait,
    /// A worker was killed in the middle: this one finds out, and closes the store at once.
    RetryAndClose,
}

/// One use of one store, that is copied for each run.
struct Scene {
    usage: Use,
    bench: Bench,
    options: &'static [&'static str],
}

/// What became of a run.
struct Run {
    was_killed: bool,
    /// What the retry was told, or why that is wrong.
    told: Result<String, String>,
}

impl Scene {
    fn new((usage, kind): &(Use, Kind)) -> Self {
        let bench = match usage {
            Use::RunAndClose | Use::RunAndWait => Bench::used(*kind),
            Use::RetryAndClose => Bench::interrupted(*kind),
        };
        Self { usage: *usage, bench, options: &[] }
    }

    fn command(&self) -> String {
        match self.usage {
            Use::RunAndClose | Use::RunAndWait => format!("run {KEY}"),
            Use::RetryAndClose => format!("retry {KEY}"),
        }
    }
}

#[test]
fn killed_at_every_call_of_a_claim_and_its_end() {
    if !can_run("killed at every system call", strace()) {
        return;
    }
    let start = Instant::now();
    let uses = [Use::RunAndClose, Use::RunAndWait, Use::RetryAndClose];
    let cases = uses.map(|usage| Kind::BOTH.map(|kind| (usage, kind)));
    let scenes = each_in_parallel(LANES, cases.as_flattened(), Scene::new);
    let call_sites = each_in_parallel(LANES, &scenes, |scene| (scene, recorded(scene)));
    for (scene, call_sites) in &call_sites {
        let what = format!("{:?} {:?}", scene.bench.kind, scene.usage);
        announce(&format!("{what}: {} system calls ({})", call_sites.len(), by_thread(call_sites)));
        assert!(!call_sites.is_empty(), "{what} must write something");
    }
    let runs: Vec<_> = call_sites
        .iter()
        .flat_map(|(scene, call_sites)| call_sites.iter().map(move |site| (*scene, site)))
        .collect();
    let runs = each_in_parallel(LANES, &runs, |(scene, site)| kill_at(scene, site));
    assert_eq!(violations(&runs), [""; 0]);
    summarize(&runs, start);
}

/// If this found nothing, the test before would prove nothing.
#[test]
fn wrong_programs_are_found_out() {
    if !can_run("wrong programs are found out", strace()) {
        return;
    }
    for options in [&["--bug", "apart"], &["--bug", "early"]] {
        let bench = Bench::used(Kind::Transactional);
        let scene = Scene { usage: Use::RunAndClose, bench, options };
        let call_sites = recorded(&scene);
        let runs = each_in_parallel(LANES, &call_sites, |site| kill_at(&scene, site));
        let violations = violations(&runs);
        announce(&format!("{options:?}: wrong in {} of {} runs", violations.len(), runs.len()));
        assert!(!violations.is_empty(), "{options:?} is not found out");
    }
}

#[test]
fn killed_at_every_call_of_the_creation() {
    if !can_run("killed at every system call of the creation", strace()) {
        return;
    }
    let start = Instant::now();
    let call_sites = recorded_creation();
    announce(&format!("creation: {} system calls ({})", call_sites.len(), by_thread(&call_sites)));
    let runs = each_in_parallel(LANES, &call_sites, kill_at_creation);
    assert_eq!(violations(&runs), [""; 0]);
    summarize(&runs, start);
}

fn violations(runs: &[Run]) -> Vec<&str> {
    runs.iter().filter_map(|run| run.told.as_ref().err()).map(String::as_str).collect()
}

/// A call beyond the end of a run kills nobody, which is no fault, but nearly all must be reached.
fn summarize(runs: &[Run], start: Instant) {
    let (all, killed) = (runs.len(), runs.iter().filter(|run| run.was_killed).count());
    announce(&format!("killed at {killed} of {all} system calls in {:.1?}", start.elapsed()));
    assert!(all > 0 && killed * 10 >= all * 9, "killed at {killed} of {all}");
}

fn by_thread(call_sites: &[CallSite]) -> String {
    let mut counts = BTreeMap::new();
    for site in call_sites {
        *counts.entry(&*site.thread).or_insert(0) += 1;
    }
    counts.iter().map(|(thread, count)| format!("{thread} {count}")).collect::<Vec<_>>().join(", ")
}

/// The calls of one run that may change the store, the ledger or what the outside is told.
fn recorded(scene: &Scene) -> Vec<CallSite> {
    let bench = scene.bench.copy();
    let mut worker = Worker::start_with(&bench, scene.options);
    let names = threads(worker.id()).unwrap();
    let strace = Strace::record(worker.id(), &bench.trace()).unwrap();
    worker.ask(&scene.command());
    let waits = scene.usage == Use::RunAndWait;
    match waits {
        true => {
            assert!(!worker.ends_within(CHECKPOINT / 2));
            worker.kill();
        }
        false => assert_eq!(worker.finish(), [""; 0]),
    }
    strace.wait();
    let record = parse(&fs::read_to_string(bench.trace()).unwrap());
    let mut call_sites = call_sites(&record, &names, |call| call.mutates(bench.directory()));
    if waits {
        call_sites.retain(|site| site.thread == CHECKPOINT_THREAD);
    }
    call_sites
}

fn kill_at(scene: &Scene, site: &CallSite) -> Run {
    let bench = scene.bench.copy();
    let mut worker = Worker::start_with(&bench, scene.options);
    let strace = Strace::inject(worker.id(), site, Fault::Kill, &bench.trace()).unwrap();
    worker.tell(&scene.command());
    let mut said = Vec::new();
    if scene.usage == Use::RunAndWait {
        said.extend(worker.hear());
        worker.ends_within(CHECKPOINT);
    }
    said.extend(worker.finish());
    let was_killed = was_killed(&mut worker, site);
    strace.wait();
    Run { was_killed, told: bench.check_after_restart(&said) }
}

fn was_killed(worker: &mut Worker, site: &CallSite) -> bool {
    let status = worker.status();
    let was_killed = status.signal() == Some(9);
    assert!(was_killed || status.success(), "{site:?}: {status}");
    was_killed
}

/// Everything that the first thread writes until it says that the store is open.
fn recorded_creation() -> Vec<CallSite> {
    let bench = Bench::empty(Kind::Transactional);
    let trace = format!("trace={MUTATING}");
    let strace = strace_command(&bench, &["-f", "-y", "-e", &trace]);
    let mut worker = Worker::spawn(&strace, &bench, &[]);
    assert_eq!(worker.finish(), ["ready"]);
    let mut record = parse(&fs::read_to_string(bench.trace()).unwrap());
    let says = |moment: &Moment| matches!(moment, Moment::Begun(call) if call.says());
    let ready = record.iter().position(says).unwrap();
    record.truncate(ready + 1);
    let Moment::Begun(first) = &record[ready] else { unreachable!() };
    let names = [(first.thread, "worker".to_owned())];
    let call_sites = call_sites(&record, &names, |call| call.mutates(bench.directory()));
    assert!(call_sites.iter().all(|site| site.thread == "worker"), "{call_sites:?}");
    call_sites
}

fn kill_at_creation(site: &CallSite) -> Run {
    let bench = Bench::empty(Kind::Transactional);
    let (trace, inject) = (format!("trace={}", site.call), site.inject(Fault::Kill));
    let strace = strace_command(&bench, &["-y", "-e", &trace, "-e", &inject]);
    let mut worker = Worker::spawn(&strace, &bench, &[]);
    worker.finish();
    // strace ends as its process ended.
    let was_killed = was_killed(&mut worker, site);
    let told = bench.check_after_restart(&[]);
    let ran = |told: &String| told.starts_with("ran");
    assert!(told.as_ref().is_ok_and(ran), "nothing was run before: {told:?}");
    Run { was_killed, told }
}

fn strace_command(bench: &Bench, options: &[&str]) -> Vec<OsString> {
    let mut command = vec!["strace".into(), "-o".into(), bench.trace().into_os_string()];
    command.extend(options.iter().map(OsString::from));
    command
}
