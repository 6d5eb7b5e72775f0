//! Runs the benchmark of the Redis store with tiny parameters: it works, whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward-bench"));
    command.args(arguments.split(' ')).output().unwrap()
}

#[test]
fn the_redis_benchmark_reports_what_it_is_asked_for() {
    // Not the system's temporary directory: that may be in memory, which the benchmark refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Output { status, stdout, stderr } = bench(&format!(
        "redis --only pairs,trips,memory --rounds 1 --seconds 0.2 --records 2k --date 2026-11-19 --dir {}",
        directory.path().display()
    ));
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let left_over = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left_over, 0, "files were left over");
    let report = String::from_utf8(stdout).unwrap();
    for expected in [
        "- Command: `cargo xtask bench redis --only pairs,trips,memory",
        ", 2026-11-19",
        "| figure | measured | must | goal | verdict |",
        "| round trips of a first request's claim | 1.0 commands | ≤ 1.0 commands | – | reached |",
        "| of a duplicate, while the first runs | 1.0 commands |",
        "| of a duplicate, when it has ended | 1.0 commands |",
        "| of a settlement | 1.0 commands |",
        "| memory of a record with 500 B, 100,000 records | – |",
        "**Memory**: 2,000 records",
        "| the same, everysec | – | ≥ 5.00 | – | not measured |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
    for sync in ["always", "everysec"] {
        for in_flight in [1, 16, 128] {
            let start = format!("| {sync} | {in_flight} | ");
            let line = report.lines().find(|line| line.starts_with(&start)).unwrap();
            let rates = line.split(" | ").nth(2).unwrap();
            assert!(!rates.split(" / ").any(|rate| rate == "0"), "nothing was done: {line}");
        }
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_measured() {
    for (arguments, named) in [
        ("redis --rounds 0", "--rounds"),
        ("redis --seconds 0", "--seconds"),
        ("redis --only latency", "--only"),
        ("redis --records many", "--records"),
        ("redis --only gateway --gateway no-such-program", "no-such-program"),
    ] {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{arguments}");
    }
}
