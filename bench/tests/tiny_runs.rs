//! Runs each benchmark with tiny parameters: it works, whatever the figures are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward-bench"));
    command.args(arguments.split(' '));
    command
}

/// The report of a run that leaves no file behind.
fn report(arguments: &str) -> String {
    // Not the system's temporary directory: that may be in memory, which the benchmark refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let date = ["--date", "2026-11-15", "--dir"];
    let Output { status, stdout, stderr } =
        bench(arguments).args(date).arg(directory.path()).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let left_over = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left_over, 0, "files were left over");
    let report = String::from_utf8(stdout).unwrap();
    assert!(!report.contains("--dir"), "{report}");
    assert!(report.contains(", 2026-11-15"), "{report}");
    assert!(report.contains("| figure | measured | must | goal | verdict |"), "{report}");
    report
}

#[test]
fn the_store_benchmark_reports_every_part() {
    let report = report(
        "store --quick --records 0,2k --in-flight 16 --rounds 1 --seconds 0.2 \
         --sweep-records 2k --reopen-records 2k",
    );
    for expected in [
        "- Command: `cargo xtask bench store --quick",
        "| 2,000 | 16 |",
        "**Look-ups**",
        "**Sweep** of 2,000",
        "**Reopen** of 2,000",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
}

#[test]
fn the_layer_benchmark_reports_every_part() {
    let report = report("layer --quick --turns 2 --waiters 50 --rounds 1");
    for expected in [
        "- Command: `cargo xtask bench layer --quick",
        "| new key, runs |",
        "| known key, is replayed |",
        "| SQLite | 50 |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
}

#[test]
fn the_retry_benchmark_reports_every_part() {
    let report = report("retry --quick --turns 2");
    for expected in [
        "- Command: `cargo xtask bench retry --quick --turns 2`",
        "| a decision to try again, with its budget |",
        "| added by our layer to a call |",
        "| added by tower's retry with a budget |",
        "| added by reqwest-retry to a client of reqwest-middleware |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
}

#[test]
fn the_operators_benchmark_reports_every_question() {
    // It starts the program that lies beside its own.
    gateway();
    let report = report("operators --records 8k --rounds 3");
    for expected in [
        "- Command: `cargo xtask bench operators --records 8k --rounds 3`",
        "- 8,000 records of 200 scopes and 8 operations",
        "; 2 unknown.",
        "| unknown | 2 |",
        "| failed_final | 2 |",
        "| in_progress | 2 |",
        "| succeeded | 50 |",
        "| an operation | 50 |",
        "| a scope that nobody has | 0 |",
        "| a key with its scope and operation | 1 |",
        "| a key alone, all pages | 1 |",
        "| one reference | 1 |",
        "| (start of the gateway) | |",
        "| the gateway's program | ",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
}

#[test]
fn the_gateway_benchmark_reports_every_part() {
    let report = report(&format!(
        "gateway --quick --only onceward,hyper --seconds 0.2 --gateway {}",
        gateway().display()
    ));
    for expected in [
        "- Command: `cargo xtask bench gateway --quick --only onceward,hyper --seconds 0.2`",
        "| bare hyper proxy | GET |",
        "| **onceward serve** | POST without a key |",
        "| **onceward serve** | POST, a new key |",
        "| first requests ÷ Restate's | – | ≥ 10.00 |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}");
    }
    let cells: Vec<Vec<&str>> = report
        .lines()
        .map(|line| line.split(" | ").collect())
        .filter(|cells: &Vec<_>| cells.len() == 8)
        .collect();
    let executed = |kind: &str| {
        let line = cells.iter().find(|cells| cells[0].contains("onceward") && cells[1] == kind);
        line.map(|cells| (cells[6], cells[7].trim_end_matches(" |"))).unwrap()
    };
    let (answered, ran) = executed("POST, a new key");
    assert_eq!(answered, ran);
    let (answered, ran) = executed("POST, a known key");
    assert_ne!(answered, "0");
    assert_eq!(ran, "0");
}

/// The gateway's program: built with the tests of the whole workspace, or now.
fn gateway() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_onceward-bench")).with_file_name("onceward");
    if !beside.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "-p", "onceward-gateway", "--target-dir"]);
        build.arg(beside.ancestors().nth(2).unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().unwrap().success(), "the gateway was not built");
    }
    beside
}

#[test]
fn nonsense_is_refused_before_anything_is_measured() {
    for (arguments, named) in [
        ("store --records many", "--records"),
        ("store --seconds 0", "--seconds"),
        ("store --rounds 0", "--rounds"),
        ("layer --waiters 10001", "10001"),
        ("operators --rounds 0", "--rounds"),
        ("gateway --only apache", "--only"),
        ("gateway --only onceward --gateway no-such-program", "no-such-program"),
    ] {
        let output = bench(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{arguments}");
    }
}
