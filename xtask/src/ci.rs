//! `cargo xtask ci`: every check, cheapest first, up to the first that fails.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cargo::{Cargo, readable};
use crate::failure::Failure;
use crate::test::{Length, run_suites};
use crate::{purity, tidy, tools};

/// Runs what the continuous integration runs, in its order, up to the first step that fails.
///
/// Formatting, lints, documentation, dependencies (cargo-deny), purity of the core, tidiness, and
/// then `cargo xtask test`. A failing step says what to run to see it again.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask ci      all of it\n  .ci/run             the same, from any directory\n\n\
                  Single steps:\n  cargo xtask tidy    style as a test\n  cargo xtask purity  the core stays pure\n  \
                  cargo xtask test    the tests"
)]
pub(crate) struct Arguments {}

struct Step {
    name: &'static str,
    /// What a person types to run this step alone.
    alone: Cargo,
    action: Action,
}

enum Action {
    /// The step is that very call of cargo.
    Call,
    /// The step is code of this tool.
    Code(fn(&Path) -> Result<(), Failure>),
}

fn steps() -> Vec<Step> {
    let call = |name, alone| Step { name, alone, action: Action::Call };
    let code =
        |name, line, check| Step { name, alone: Cargo::new(line), action: Action::Code(check) };
    let documentation = Cargo::new("doc --workspace --no-deps --all-features")
        .environment("RUSTDOCFLAGS", "-D warnings");
    vec![
        call("formatting", Cargo::new("fmt --all --check")),
        call("lints", Cargo::new("clippy --workspace --all-targets --all-features -- -D warnings")),
        call(
            "lints without default features",
            Cargo::new("clippy -p onceward --no-default-features -- -D warnings"),
        ),
        call(
            "lints of the layer without axum",
            Cargo::new("clippy -p onceward --no-default-features --features tower -- -D warnings"),
        ),
        call(
            "lints of transactions without the layer",
            Cargo::new("clippy -p onceward --features sqlx -- -D warnings"),
        ),
        call(
            "lints of PostgreSQL alone",
            Cargo::new(
                "clippy -p onceward --no-default-features --features postgres,sqlx -- -D warnings",
            ),
        ),
        call("documentation", documentation),
        code("dependencies", DENY, dependencies),
        code("purity", "xtask purity", purity::check),
        code("tidiness", "xtask tidy", tidy::check),
    ]
}

const DENY: &str = "deny check bans licenses sources";

fn dependencies(root: &Path) -> Result<(), Failure> {
    tools::ensure_cargo_deny(root)?;
    Cargo::new(DENY).run(root)
}

pub(crate) fn run(root: &Path, _: &Arguments) -> Result<ExitCode, Failure> {
    let mut finished: Vec<(&str, Duration)> = Vec::new();
    for step in steps() {
        let Step { name, alone, action } = step;
        println!("\n## {name}: {alone}");
        let started = Instant::now();
        let result = match action {
            Action::Call => alone.run(root),
            Action::Code(check) => check(root),
        };
        let elapsed = started.elapsed();
        result.map_err(|failure| failure.at_step(name, &readable(elapsed), &alone.to_string()))?;
        println!("## {name}: ok in {}", readable(elapsed));
        finished.push((name, elapsed));
    }

    let alone = Cargo::new("xtask test");
    println!("\n## tests: {alone}");
    let started = Instant::now();
    let report = run_suites(root, Length::Usual)?;
    report.print_summary();
    finished.push(("tests", started.elapsed()));
    println!("Steps:");
    for (name, elapsed) in finished {
        println!("  {name}: {}", readable(elapsed));
    }
    // The totals stay the last line of the output, as in `cargo xtask test`.
    if !report.passed() {
        println!("Stopped at the step \"tests\"; repeat it with: {alone}");
    }
    report.print_totals();
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
