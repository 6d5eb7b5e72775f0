//! Whole histories over the memory store, played by the shipped drivers on virtual time.
//!
//! One seed is one history: some processes, some clients that retry, and a world in which calls
//! fail, replies get lost, changes land late and twice, processes crash, freeze and drain, clocks
//! are set and records are swept. An oracle beside it keeps a ledger of effects and every answer,
//! and checks the invariants of `docs/guarantees.md`. A history that breaks one prints its seed.
//!
//! `ONCEWARD_SEED` replays one history and prints its trace; `ONCEWARD_HISTORIES` says how many are
//! played.

mod answer;
mod book;
mod checks;
mod client;
mod clock;
mod cluster;
mod execution;
mod hearing;
mod history;
mod process;
mod sabotage;
mod script;
mod settings;
mod tally;
mod world;

use std::{
    collections::BTreeMap,
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use history::{Report, how_to_replay, play};
use sabotage::Sabotage;
use tally::{Event, Tally};

/// Of all last words so many percent are an ok or a refusal of another request under the same key.
const AVAILABILITY_FLOOR: u64 = 75;

#[test]
fn hundred_thousand_histories_keep_the_invariants() {
    if let Some(seed) = number("ONCEWARD_SEED") {
        let report = play(seed, None, true);
        eprintln!("{}", report.trace.join("\n"));
        return assert_kept(&report);
    }
    keep_the_invariants(1_000_000_000, number("ONCEWARD_HISTORIES").unwrap_or(100_000));
}

#[test]
#[ignore = "long: two million histories take about ten minutes"]
fn millions_of_histories_keep_the_invariants() {
    keep_the_invariants(2_000_000_000, number("ONCEWARD_HISTORIES").unwrap_or(2_000_000));
}

#[test]
fn a_seed_replays_identically() {
    for seed in 0..200 {
        let (first, second) = (play(seed, None, true), play(seed, None, true));
        assert!(!first.trace.is_empty());
        assert_eq!(first, second);
    }
}

/// The checks can fail: every known mistake is found by the checks that are named for it.
#[test]
fn every_sabotage_is_found() {
    for (sabotage, checks) in Sabotage::ALL {
        let found = first_found(sabotage, checks);
        println!("{sabotage:?} is found in history (of seed):");
        for check in checks {
            let Some(seed) = found.get(check) else {
                panic!("{sabotage:?} was not found by {check:?}, only by {found:?}");
            };
            println!("  {seed:>5}  {check}");
        }
    }
    for check in checks::ALL {
        let can_fail = Sabotage::ALL.iter().any(|(_, checks)| checks.contains(&check));
        assert!(can_fail, "nothing shows that this check can fail: {check:?}");
    }
}

/// The seed in which each check fails first, until all the named ones have.
fn first_found(sabotage: Sabotage, checks: &[&str]) -> BTreeMap<&'static str, u64> {
    const TEST_TIMEOUT: u64 = 5_000;
    let mut found = BTreeMap::new();
    for seed in 0..TEST_TIMEOUT {
        for violation in play(seed, Some(sabotage), false).violations {
            found.entry(violation.check).or_insert(seed);
        }
        if checks.iter().all(|check| found.contains_key(check)) {
            break;
        }
    }
    found
}

fn keep_the_invariants(base: u64, count: u64) {
    const THREADS: u64 = 2;
    let (start, failed) = (Instant::now(), AtomicBool::new(false));
    let part = |thread: u64| {
        let mut tally = Tally::default();
        for seed in (base + thread..base + count).step_by(THREADS as usize) {
            let report = play(seed, None, false);
            tally.merge(&report.tally);
            if !report.violations.is_empty() || failed.load(Ordering::Relaxed) {
                failed.store(true, Ordering::Relaxed);
                return (tally, Some(report));
            }
        }
        (tally, None)
    };
    let mut tally = Tally::default();
    let parts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || part(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a history panicked")).collect()
    });
    for (part, report) in parts {
        tally.merge(&part);
        if let Some(report) = report {
            assert_kept(&report);
        }
    }
    eprintln!("{count} histories in {:?}:\n{tally}", start.elapsed());
    assert_not_empty(&tally);
}

fn assert_kept(report: &Report) {
    let Report { seed, violations, .. } = report;
    let lines =
        violations.iter().map(|violation| format!("{}: {}", violation.check, violation.detail));
    let lines: Vec<_> = lines.collect();
    assert!(violations.is_empty(), "{}\n{}", lines.join("\n"), how_to_replay(*seed));
}

/// Everything that can happen has happened, and a world that never works would not pass.
fn assert_not_empty(tally: &Tally) {
    for (event, text) in Event::ALL {
        assert!(tally.of(*event) > 0, "never happened: {text}");
    }
    let good = tally.of(Event::FinalOk) + tally.of(Event::FinalMismatch);
    let all = good + tally.of(Event::FinalRefused) + tally.of(Event::FinalUnknown);
    assert!(good * 100 >= all * AVAILABILITY_FLOOR, "{good} of {all} operations ended well");
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}
