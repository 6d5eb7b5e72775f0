//! A process that dies, fails or freezes at every step from the claim to the reply.
//!
//! A first run of each configuration records the points that a request passes. Then each point gets
//! a run of its own for each fault, with a client that asks until it knows, and the oracle judges.
//!
//! `ONCEWARD_STEP=<configuration>/<point>#<hit>=<abort, error, late or stall>` does one run and tells
//! its story; `ONCEWARD_SHOW=1` shows what the services say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bench;
mod configuration;
mod lanes;
mod record;
mod run;
mod sources;
mod step;
mod table;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use onceward_crash::history::Verdict;

use bench::{Bench, SIGABRT, signal};
use configuration::CONFIGURATIONS;
use lanes::each_in_parallel;
use record::POINTS;
use run::{Outcome, run};
use sources::points_in_the_sources;
use step::{Fault, Step};

/// Most of a run is waiting for a lease.
const LANES: usize = 32;

/// Places that no configuration passes, each with the reason why.
const PASSED_BY_NOBODY: [(&str, &str); 5] = [
    ("crash/src/service/bug/", "a bug on purpose, which only the tests of the oracle ask for"),
    (
        "crates/onceward/src/store/postgres/",
        "the service of these tests is on SQLite; `failover` and `postgres/kill` kill PostgreSQL's",
    ),
    ("crates/onceward/src/outbox/", MESSAGES),
    ("crates/onceward/src/inbox/", MESSAGES),
    ("crash/src/messages/", MESSAGES),
];

const MESSAGES: &str = "this service sends none; `messages` and `postgres_crash` pass them";

#[test]
fn every_fault_at_every_step_is_survived() {
    if let Ok(step) = std::env::var("ONCEWARD_STEP") {
        let step = Step::parse(&step).expect("<configuration>/<point>#<hit>=<fault>");
        let outcome = run(&step);
        println!("{}", outcome.story);
        assert!(outcome.complaints.is_empty(), "{:#?}", outcome.complaints);
        return;
    }
    let start = Instant::now();
    println!("{}", table::points());
    let steps = all_steps();
    let outcomes = each_in_parallel(LANES, &steps, run_or_tell);
    println!("{}", table::outcomes(&steps, &outcomes));
    println!("{} runs in {:.1?}", steps.len(), start.elapsed());
    let bad: Vec<_> = outcomes.iter().filter(|outcome| !outcome.complaints.is_empty()).collect();
    bad.iter().for_each(|outcome| println!("\n{}", outcome.story));
    assert!(bad.is_empty(), "{} of {} runs are not well", bad.len(), steps.len());
}

#[test]
fn every_crash_point_of_the_sources_is_a_step_of_some_configuration() {
    let points = points_in_the_sources();
    assert!(!points.is_empty(), "there are some");
    for (point, places) in &points {
        let is_exempt = |place: &&String| exemption(place).is_some();
        let places: Vec<&String> = places.iter().filter(|place| !is_exempt(place)).collect();
        let passes = |hits: &Vec<String>| hits.iter().any(|hit| name_of(hit) == point);
        let plain = POINTS.iter().filter(|(one, _)| one.is_plain());
        let by: BTreeSet<_> =
            plain.filter(|(_, hits)| passes(hits)).map(|(one, _)| one.name).collect();
        println!("{point}: at {places:?}, passed by {by:?}");
        // Where one name stands at several places, each is the way of another configuration.
        assert!(by.len() >= places.len(), "{point} is at {places:?}, but passed by {by:?}");
    }
    let recorded = POINTS.iter().flat_map(|(_, hits)| hits).map(|hit| name_of(hit));
    for point in recorded {
        assert!(points.contains_key(point), "{point} was recorded but is not in the sources");
    }
    let exempt: BTreeSet<_> = points.values().flatten().filter_map(|it| exemption(it)).collect();
    assert_eq!(exempt.len(), PASSED_BY_NOBODY.len(), "some are not in the sources any more");
}

#[test]
fn the_crash_points_are_armed() {
    for configuration in CONFIGURATIONS.iter().filter(|one| one.is_plain()) {
        let bench = Bench::new(configuration);
        let running = bench.start(Some("store.swap#1=abort".to_owned()));
        let answer = bench.attempt(&running);
        let ended = running.wait_for_end(testbed::TEST_TIMEOUT);
        assert_eq!(signal(ended), Some(SIGABRT), "{}: {answer}", configuration.name);
        assert!(bench.ledger().effects.is_empty(), "it died before it did anything");
    }
}

#[test]
fn a_fault_that_is_never_reached_is_noticed() {
    for fault in ["abort", "error", "stall"] {
        let step = Step::parse(&format!("sqlx/own.commit#9={fault}")).unwrap();
        let complaints = run(&step).complaints;
        let [complaint] = &complaints[..] else { panic!("{complaints:?}") };
        assert!(complaint.starts_with("never reached"), "{complaint}");
    }
}

/// Where and why nobody passes a place.
fn exemption(place: &str) -> Option<&'static (&'static str, &'static str)> {
    PASSED_BY_NOBODY.iter().find(|(path, _)| place.starts_with(path))
}

fn name_of(hit: &str) -> &str {
    hit.split_once('#').unwrap().0
}

fn all_steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (configuration, points) in POINTS.iter() {
        for point in points {
            let step = |fault| Step { configuration, point: point.clone(), fault };
            steps.extend(Fault::ALL.map(step));
        }
    }
    steps
}

/// What breaks in the bench is told with the step at which it did.
fn run_or_tell(step: &Step) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(step))).unwrap_or_else(|_| Outcome {
        verdict: Verdict::NotEnded,
        complaints: vec!["the bench panicked".to_owned()],
        story: format!("{step}: the bench panicked, see above"),
    })
}
