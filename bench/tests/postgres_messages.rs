//! Runs the benchmark of messages with tiny parameters: it works, whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward-bench"));
    command.args(arguments.split(' ')).output().unwrap()
}

#[test]
fn the_messages_benchmark_reports_every_part() {
    // Not the system's temporary directory: that may be in memory, which the benchmark refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Output { status, stdout, stderr } = bench(&format!(
        "messages --peers none --rounds 1 --seconds 0.2 --messages 300 --hold 0.1 --delivered 500 \
         --backlog 700 --date 2026-11-19 --dir {}",
        directory.path().display()
    ));
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let left_over = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left_over, 0, "files were left over");
    let report = String::from_utf8(stdout).unwrap();
    for expected in [
        "- Command: `cargo xtask bench messages --peers none",
        ", 2026-11-19",
        "| figure | measured | must | goal | verdict |",
        "| relay ÷ River | – | ≥ 5.00 | ≥ 10.00 | not measured |",
        "**A backlog** of 300 committed messages",
        "| **relay** | as it comes |",
        "| 16 | ",
        "| **relay**, not woken | 10 |",
        "| **relay**, woken by the process that commits | 10 |",
        "| an old snapshot, s |",
        "| delivered messages | 500 |",
        "| backlog of one lane | 700 |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_measured() {
    for (arguments, named) in [
        ("messages --peers kafka", "--peers"),
        ("messages --rounds 0", "--rounds"),
        ("messages --only publish", "--only"),
        ("messages --hold 0", "--hold"),
    ] {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{arguments}");
    }
}
