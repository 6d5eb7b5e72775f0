//! Runs the layer benchmark with tiny parameters: it works, whatever the figures are.

use std::process::Command;

#[test]
fn a_tiny_run_reports_every_part() {
    // Not the system's temporary directory: that may be in memory, which the benchmark refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_onceward-bench"))
        .args(["layer", "--quick", "--turns", "2", "--waiters", "50", "--rounds", "1"])
        .args(["--date", "2026-11-16", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{progress}");
    for expected in [
        "- Command: `cargo xtask bench layer --quick",
        ", 2026-11-16",
        "| figure | measured | must | goal | verdict |",
        "| new key, runs |",
        "| known key, is replayed |",
        "| SQLite | 50 |",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}\n{progress}");
    }
    let left_over = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left_over, 0, "files were left over");
}

#[test]
fn more_waiters_than_the_layer_allows_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_onceward-bench"))
        .args(["layer", "--waiters", "10001"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("10001"));
}
