//! `cargo xtask ci`: every check, cheapest first, up to the first that fails.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::cargo::{Cargo, readable};
use crate::failure::Failure;
use crate::test::{Clock, Length, Preparation, Selection, run_suites};
use crate::workspace::Workspace;
use crate::{dependencies, purity, surface, tidy};

/// Runs what the continuous integration runs, in its order, up to the first step that fails.
///
/// Formatting, licences and sources of dependencies, tidiness, lints, lints of single features,
/// documentation, purity of the core, and then `cargo xtask test`. A failing step says what to run to
/// see it again. Servers for the tests are installed and started meanwhile.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask ci      all of it\n  .ci/run             the same, from any directory\n\n\
                  Single steps:\n  cargo xtask tidy          style as a test\n  \
                  cargo xtask purity        the core stays pure\n  \
                  cargo xtask surface       what the libraries show has not changed unseen\n  \
                  cargo xtask dependencies  licences, bans and sources\n  \
                  cargo xtask test          the tests"
)]
pub(crate) struct Arguments {}

struct Step {
    name: &'static str,
    /// What a person types to run this step alone.
    alone: Vec<Cargo>,
    action: Action,
}

enum Action {
    /// The step is those very calls of cargo.
    Call,
    /// The step is code of this tool.
    Code(fn(&Path) -> Result<(), Failure>),
}

pub(crate) const FORMATTING: &str = "fmt --all --check";
pub(crate) const LINTS: &str = "clippy --workspace --all-targets --all-features -- -D warnings";

/// What users may take alone: nothing, the client, the relay, records in Redis, the layer without axum, transactions on either
/// database without the layer.
const FEATURE_SETS: [&str; 7] = [
    "",
    "--features client",
    "--features relay",
    "--features redis",
    "--features tower",
    "--features postgres,sqlx",
    "--features sqlite,sqlx",
];

fn steps() -> Vec<Step> {
    let call = |name, line| Step { name, alone: vec![Cargo::new(line)], action: Action::Call };
    let code = |name, line, check| {
        let alone = vec![Cargo::new(line)];
        Step { name, alone, action: Action::Code(check) }
    };
    let features =
        FEATURE_SETS.map(|set| Cargo::new(&format!("clippy -p onceward {set} -- -D warnings")));
    // With the examples, dependencies have the features that the lints have checked them with. The command
    // `onceward` has no page: the library of the same name owns it.
    let documentation = Cargo::new(
        "doc --workspace --no-deps --all-features --lib --examples \
         --bin onceward-bench --bin service --bin worker --bin xtask",
    )
    .environment("RUSTDOCFLAGS", "-D warnings");
    vec![
        call("formatting", FORMATTING),
        code("dependencies", "xtask dependencies", dependencies::check),
        code("tidiness", "xtask tidy", tidy::check),
        call("lints", LINTS),
        Step { name: "lints of features", alone: features.into(), action: Action::Call },
        Step { name: "pages", alone: vec![documentation], action: Action::Call },
        code("public surface", "xtask surface", surface::check),
        code("purity", "xtask purity", purity::check),
    ]
}

/// The names of the steps before the tests.
#[cfg(test)]
pub(crate) fn step_names() -> impl Iterator<Item = &'static str> {
    steps().into_iter().map(|step| step.name)
}

impl Step {
    fn run(&self, root: &Path) -> Result<(), Failure> {
        match self.action {
            Action::Call => self.alone.iter().try_for_each(|call| call.run(root)),
            Action::Code(check) => check(root),
        }
    }

    /// What a person types, in one line.
    fn alone(&self) -> String {
        let calls: Vec<String> = self.alone.iter().map(ToString::to_string).collect();
        calls.join(" && ")
    }
}

pub(crate) fn run(root: &Path, _: &Arguments) -> Result<ExitCode, Failure> {
    let (clock, workspace) = (Clock::start(), Workspace::read(root)?);
    let selection = Selection::everything(Length::Usual);
    let preparation = Preparation::start(&selection, &workspace);
    let mut finished = Vec::new();
    for step in steps() {
        println!("\n## {}: {}", step.name, step.alone());
        let started = Instant::now();
        let result = step.run(root);
        let elapsed = started.elapsed();
        if let Err(failure) = result {
            // Servers that were started meanwhile end here.
            drop(preparation.finish());
            return Err(failure.at_step(step.name, &readable(elapsed), &step.alone()));
        }
        println!("## {}: ok in {}", step.name, readable(elapsed));
        finished.push((step.name, elapsed));
    }

    let alone = Cargo::new("xtask test");
    println!("\n## tests: {alone}");
    let mut report = run_suites(root, &selection, &workspace, preparation)?;
    report.steps_before(finished);
    report.finish(root, &workspace, &clock)?;
    // The totals stay the last line of the output, as in `cargo xtask test`.
    if !report.passed() {
        println!("Stopped at the step \"tests\"; repeat it with: {alone}");
    }
    report.print_totals();
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
