//! `cargo xtask test`: every suite, what it ran against, and one line of totals.

mod build;
mod report;

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(crate) use self::report::Report;

use self::build::Programs;
use self::report::{Entry, Tally};
use crate::cargo::{Cargo, readable};
use crate::failure::Failure;
use crate::results::Transcript;
use crate::suites::{self, Against, REPEATS, SUITES, Servers, Suite};
use crate::tools;
use crate::workspace::{TestTarget, Workspace};

/// Runs every test and says what it ran against.
///
/// Builds the whole workspace once, runs each suite with a line of progress, runs the examples in
/// the documentation, and checks that the library builds without its default features. The summary
/// lists what each suite ran against and which engines were skipped, and why. A suite that ran zero
/// tests has failed. The last line is `N passed, N failed, N skipped`: a suite that broke without a
/// failed test counts as one failure, a skipped engine as one skipped.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test          every suite, without the tests marked as long\n  \
                  cargo xtask test --long   sets ONCEWARD_LONG=1 and runs those too"
)]
pub(crate) struct Arguments {
    /// Also runs the tests marked `#[ignore = "long…"]`, with `ONCEWARD_LONG=1`
    #[arg(long)]
    long: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let length = if arguments.long { Length::Long } else { Length::Usual };
    let report = run_suites(root, length)?;
    report.print_summary();
    report.print_totals();
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Usual,
    Long,
}

const LONG: (&str, &str) = ("ONCEWARD_LONG", "1");

/// Runs everything and reports; `Err` only when cargo cannot even describe the workspace.
pub(crate) fn run_suites(root: &Path, length: Length) -> Result<Report, Failure> {
    let workspace = Workspace::read(root)?;
    let targets = workspace.test_targets();
    let mut report = Report::new(length);

    let misassigned = suites::misassigned(&SUITES, &targets);
    if !misassigned.is_empty() {
        report.add(Entry::broken(
            "assignment of test targets to suites",
            misassigned,
            Duration::ZERO,
        ));
    }

    println!("== building every test");
    let started = Instant::now();
    let programs = match build::build(root) {
        Ok(programs) => programs,
        Err(failure) => {
            report.add(Entry::broken("build", vec![failure.to_string()], started.elapsed()));
            return Ok(report);
        }
    };
    println!("== built in {}", readable(started.elapsed()));

    if length == Length::Long {
        tools::patroni();
    }
    for suite in SUITES.iter().chain(&REPEATS) {
        let own: Vec<_> = targets.iter().filter(|target| (suite.claims)(target)).collect();
        announce(suite.name);
        report.add(run_suite(suite, &own, &workspace, &programs, length));
    }
    announce(DOCUMENTATION);
    report.add(run_documentation_examples(root, length));
    announce(WITHOUT_DEFAULT_FEATURES);
    report.add(check_without_default_features(root));
    Ok(report)
}

fn announce(name: &str) {
    println!("\n== {name}");
}

fn run_suite(
    suite: &Suite,
    targets: &[&TestTarget],
    workspace: &Workspace,
    programs: &Programs,
    length: Length,
) -> Entry {
    let started = Instant::now();
    let servers = match (suite.against)(workspace) {
        Against::Present(words) => Servers::none(words),
        Against::Servers(servers) => servers,
        Against::Broken(trouble) => {
            return Entry::broken(suite.name, vec![trouble], started.elapsed());
        }
        Against::Absent { engine, reason } => return Entry::skipped(suite.name, engine, reason),
    };
    let mut tally = Tally::default();
    for target in targets {
        run_target(target, programs, &servers, length, &mut tally);
    }
    if targets.is_empty() {
        tally.problems.push("this suite has no test target in the workspace".to_owned());
    } else if tally.counts.ran() == 0 && tally.problems.is_empty() {
        tally.problems.push("ran zero tests, so it proved nothing".to_owned());
    }
    let Servers { words, running, .. } = servers;
    drop(running);
    Entry::ran(suite.name, words, tally, started.elapsed())
}

/// Runs one test program as `cargo test` would, without asking cargo to resolve features for one
/// package alone: that would build half of the tree again inside the time of the suite.
fn run_target(
    target: &TestTarget,
    programs: &Programs,
    servers: &Servers,
    length: Length,
    tally: &mut Tally,
) {
    let label = target.label();
    let Some(mut command) = programs.command(target) else {
        tally.problems.push(format!("{label}: the build made no program for it"));
        return;
    };
    println!("-- {label}");
    command.envs(servers.environment.iter().map(|(name, value)| (name, value)));
    let mut repeat = target.cargo_test();
    for (name, value) in &servers.repeat {
        repeat = repeat.environment(name, value);
    }
    if length == Length::Long {
        command.arg("--include-ignored").env(LONG.0, LONG.1);
        repeat = repeat
            .environment(LONG.0, LONG.1)
            .arguments(&["--".to_owned(), "--include-ignored".to_owned()]);
    }
    let (transcript, status) = match stream(&mut command) {
        Ok(finished) => finished,
        Err(error) => {
            tally.problems.push(format!("{label}: could not be run: {error}"));
            return;
        }
    };
    if transcript.results == 0 && status.success() {
        tally.problems.push(format!(
            "{label}: ended without a `test result:` line, so its tests cannot be counted"
        ));
    }
    tally.add(&label, &transcript, status, &repeat);
}

const DOCUMENTATION: &str = "documentation examples";

/// Runs the doc tests of every library, once. Examples marked `ignore` stay ignored in a long run:
/// they are marked because they do not compile.
fn run_documentation_examples(root: &Path, length: Length) -> Entry {
    let mut call = Cargo::new("test --workspace --all-features --doc --no-fail-fast");
    if length == Length::Long {
        call = call.environment(LONG.0, LONG.1);
    }
    let started = Instant::now();
    let mut tally = Tally::default();
    match stream(&mut call.command(root)) {
        Ok((transcript, status)) => tally.add(DOCUMENTATION, &transcript, status, &call),
        Err(error) => tally.problems.push(call.not_started(&error).to_string()),
    }
    if tally.counts.ran() == 0 && tally.problems.is_empty() {
        tally.problems.push("ran zero tests: no library has an example that compiles".to_owned());
    }
    Entry::ran(DOCUMENTATION, "no server".to_owned(), tally, started.elapsed())
}

const WITHOUT_DEFAULT_FEATURES: &str = "library without default features (must build)";

fn check_without_default_features(root: &Path) -> Entry {
    let started = Instant::now();
    let mut tally = Tally::default();
    let call = Cargo::new("check -p onceward --no-default-features");
    if let Err(failure) = call.run(root) {
        tally.problems.push(failure.to_string());
    }
    Entry::checked(WITHOUT_DEFAULT_FEATURES, tally, started.elapsed())
}

/// Runs a test program with its output passed through, and reads that output on the way.
fn stream(command: &mut Command) -> io::Result<(Transcript, ExitStatus)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut transcript = Transcript::default();
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            io::stdout().write_all(&line)?;
            transcript.read(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    Ok((transcript, child.wait()?))
}
