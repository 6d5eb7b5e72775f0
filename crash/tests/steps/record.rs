//! The record pass: which points a request passes when nothing goes wrong.

use std::{fs, sync::LazyLock};

use onceward_crash::{history::Answer, service::Stake};

use super::{
    bench::Bench,
    configuration::{Before, Configuration, RUNNABLE},
    lanes::each_in_parallel,
};

/// Few enough that no run is so slow that its claim is renewed.
const LANES: usize = 4;

/// The points of every configuration, recorded once.
pub(crate) static POINTS: LazyLock<Vec<(&'static Configuration, Vec<String>)>> =
    LazyLock::new(|| {
        let points = each_in_parallel(LANES, &RUNNABLE, |one| recorded_twice(one));
        RUNNABLE.iter().copied().zip(points).collect()
    });

fn recorded_twice(configuration: &'static Configuration) -> Vec<String> {
    let (points, again) = (recorded(configuration), recorded(configuration));
    let name = configuration.name;
    assert_eq!(points, again, "{name}: every run passes the same points");
    for expected in configuration.expected_points() {
        assert!(points.iter().any(|point| point == expected), "{name}: {expected} in {points:?}");
    }
    assert_eq!(points.last().unwrap(), "reply#1", "{name}: nothing comes after the answer");
    points
}

fn recorded(configuration: &'static Configuration) -> Vec<String> {
    let bench = Bench::new(configuration);
    let running = bench.start(Some(format!("record={}", bench.record().display())));
    let answer = bench.attempt(&running);
    running.kill().unwrap();
    let is_unknown_before = configuration.stake == Stake::External
        && matches!(configuration.before, Before::Abandoned(_));
    match answer {
        Answer::Ok(_) => assert!(!is_unknown_before, "{}: {answer}", configuration.name),
        Answer::OutcomeUnknown(_) => assert!(is_unknown_before, "{}", configuration.name),
        _ => panic!("{}: {answer}", configuration.name),
    }
    let points = fs::read_to_string(bench.record()).unwrap();
    points.lines().map(str::to_owned).collect()
}
