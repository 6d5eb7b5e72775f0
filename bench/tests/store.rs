//! Runs the store benchmark with tiny parameters: it works, whatever the figures are.

use std::process::Command;

#[test]
fn a_tiny_run_reports_every_part() {
    // Not the system's temporary directory: that may be in memory, which the benchmark refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_onceward-bench"))
        .args(["store", "--quick", "--records", "0,2k", "--in-flight", "16", "--rounds", "1"])
        .args(["--seconds", "0.2", "--sweep-records", "2k", "--reopen-records", "2k"])
        .args(["--date", "2026-11-15", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{progress}");
    for expected in [
        "- Command: `cargo xtask bench store --quick",
        ", 2026-11-15",
        "| figure | measured | must | goal | verdict |",
        "| 2,000 | 16 |",
        "**Look-ups**",
        "**Sweep** of 2,000",
        "**Reopen** of 2,000",
    ] {
        assert!(report.contains(expected), "no `{expected}` in:\n{report}\n{progress}");
    }
    assert!(!report.contains("--dir"), "{report}");
    let left_over = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left_over, 0, "files were left over");
}

#[test]
fn nonsense_is_refused_before_anything_is_measured() {
    for arguments in [["--records", "many"], ["--seconds", "0"], ["--rounds", "0"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_onceward-bench"))
            .arg("store")
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(arguments[0]), "{arguments:?}");
    }
}
