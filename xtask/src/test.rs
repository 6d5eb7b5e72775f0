//! `cargo xtask test`: every suite, what it ran against, how long it took, and one line of totals.

mod build;
mod preparation;
mod program;
mod queue;
mod report;
mod timings;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

pub(crate) use self::preparation::Preparation;
pub(crate) use self::report::Report;
pub(crate) use self::timings::{Budgets, Clock};

use self::build::Programs;
use self::program::Ran;
use self::queue::Job;
use self::report::{Entry, Tally, print_block};
use crate::cargo::{Cargo, readable};
use crate::failure::Failure;
use crate::results::Transcript;
use crate::suites::{self, Against, ENGINES, Load, SUITES, Servers, Suite};
use crate::workspace::{TestTarget, Workspace};

/// Runs every test, or the suites that are named, and says what they ran against.
///
/// Builds what is needed once, while servers are installed and started, and runs the programs side
/// by side. The summary lists what each suite ran against, which engines were skipped and why, the
/// slowest tests, and the time of each suite beside its budget; target/timings.json has all times. A
/// suite that ran zero tests has failed. The last line is `N passed, N failed, N skipped`: a suite
/// that broke without a failed test counts as one failure, a skipped engine as one skipped.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test                  every suite, without the tests marked as long\n  \
                  cargo xtask test sqlite gateway   these two\n  \
                  cargo xtask test --list           what there is\n  \
                  cargo xtask test --long           sets ONCEWARD_LONG=1 and runs the long tests too\n  \
                  cargo xtask test --engines        runs clusters and groups of servers too"
)]
pub(crate) struct Arguments {
    /// The suites to run; all if none is named
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// Also runs the tests marked `#[ignore = "long…"]`, with `ONCEWARD_LONG=1`
    #[arg(long)]
    long: bool,
    /// Also runs the suites that start clusters and groups of servers, when no suite is named
    #[arg(long)]
    engines: bool,
    /// Lists the suites with their programs and budgets, and runs nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let length = if arguments.long { Length::Long } else { Length::Usual };
    let mut selection = Selection::of(&arguments.suites, length)?;
    if arguments.engines && arguments.suites.is_empty() {
        selection.suites.extend(&ENGINES);
    }
    let workspace = Workspace::read(root)?;
    if arguments.list {
        list(&selection, &workspace, &Budgets::read(root)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (clock, preparation) = (Clock::start(), Preparation::start(&selection, &workspace));
    let report = run_suites(root, &selection, &workspace, preparation)?;
    report.finish(root, &workspace, &clock)?;
    report.print_totals();
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Usual,
    Long,
}

const LONG: (&str, &str) = ("ONCEWARD_LONG", "1");

/// The examples in the documentation: cargo runs them, not a program that it builds.
const DOCUMENTATION: (&str, &str) = ("documentation", "documentation examples");

/// What is to be run.
pub(crate) struct Selection {
    suites: Vec<&'static Suite>,
    documentation: bool,
    length: Length,
}

impl Selection {
    pub(crate) fn everything(length: Length) -> Self {
        Self { suites: suites::all().collect(), documentation: true, length }
    }

    /// The suites of these names, all if there are none.
    pub(crate) fn of(names: &[String], length: Length) -> Result<Self, Failure> {
        if names.is_empty() {
            return Ok(Self::everything(length));
        }
        let known: Vec<&str> =
            suites::known().map(|suite| suite.id).chain([DOCUMENTATION.0]).collect();
        if let Some(stranger) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Failure::new(
                format!("there is no suite {stranger:?}"),
                format!("name one or more of: {}", known.join(", ")),
            ));
        }
        let is_named = |id: &str| names.iter().any(|name| name == id);
        Ok(Self {
            suites: suites::known().filter(|suite| is_named(suite.id)).collect(),
            documentation: is_named(DOCUMENTATION.0),
            length,
        })
    }

    fn is_everything(&self) -> bool {
        self.documentation && self.suites.len() >= suites::all().count()
    }
}

fn list(selection: &Selection, workspace: &Workspace, budgets: &Budgets) {
    let targets = workspace.test_targets();
    for suite in &selection.suites {
        println!("{:<18} {}, {} s", suite.id, suite.name, budgets.of(suite.id).as_secs());
        for target in targets.iter().filter(|target| (suite.claims)(target)) {
            println!("{:<18}   {}", "", target.label());
        }
    }
    if selection.documentation {
        let (id, name) = DOCUMENTATION;
        println!("{id:<18} {name}, {} s", budgets.of(id).as_secs());
    }
}

/// Runs what is selected and reports; `Err` only when cargo cannot even describe the workspace.
pub(crate) fn run_suites(
    root: &Path,
    selection: &Selection,
    workspace: &Workspace,
    preparation: Preparation,
) -> Result<Report, Failure> {
    let (targets, budgets) = (workspace.test_targets(), Budgets::read(root)?);
    let mut report = Report::new(selection.length);
    let misassigned = suites::misassigned(&SUITES, &targets);
    if !misassigned.is_empty() {
        report.add(Entry::broken("assignment", "test targets and suites", misassigned));
    }

    let chosen: Vec<&TestTarget> = targets
        .iter()
        .filter(|target| selection.suites.iter().any(|suite| (suite.claims)(target)))
        .collect();
    println!("== building the tests");
    let started = Instant::now();
    let programs = match build::build(root, &chosen, selection.is_everything()) {
        Ok(programs) => programs,
        Err(failure) => {
            report.add(Entry::broken("build", "build of the tests", vec![failure.to_string()]));
            return Ok(report);
        }
    };
    report.step("build", started.elapsed());
    println!("== built in {}", readable(started.elapsed()));

    let started = Instant::now();
    let runs = suite_runs(selection, &targets, preparation, &mut report);
    let jobs = jobs(&runs, selection, &budgets);
    println!("== running {} programs, {} at a time", jobs.len(), queue::LANES);
    let documentation = Mutex::new(None);
    queue::run_all(jobs, |work| match work {
        Work::Program(suite, target) => {
            run_target(suite, target, &programs, selection.length);
        }
        Work::Documentation => {
            let entry = run_documentation_examples(root, selection.length);
            *documentation.lock().expect("no test run panics") = Some(entry);
        }
    });
    for run in runs {
        run.repeat_failures(&programs, selection.length);
        report.add(run.into_entry());
    }
    if let Some(entry) = documentation.into_inner().expect("no test run panics") {
        report.add(entry);
    }
    report.step("tests", started.elapsed());
    Ok(report)
}

/// A suite while its programs run.
struct SuiteRun<'a> {
    suite: &'static Suite,
    targets: Vec<&'a TestTarget>,
    servers: Servers,
    tally: Mutex<Tally>,
    /// Tests that have failed, by their program.
    failed: Mutex<Vec<(TestTarget, Vec<String>)>>,
}

enum Work<'a> {
    Program(&'a SuiteRun<'a>, &'a TestTarget),
    Documentation,
}

/// The suites that can run here; the others are in the report already.
fn suite_runs<'a>(
    selection: &Selection,
    targets: &'a [TestTarget],
    preparation: Preparation,
    report: &mut Report,
) -> Vec<SuiteRun<'a>> {
    let mut runs = Vec::new();
    for (suite, against) in selection.suites.iter().zip(preparation.finish()) {
        let servers = match against {
            Against::Present(words) => Servers::none(words),
            Against::Servers(servers) => servers,
            Against::Broken(trouble) => {
                report.add(Entry::broken(suite.id, suite.name, vec![trouble]));
                continue;
            }
            Against::Absent { engine, reason } => {
                report.add(Entry::skipped(suite.id, suite.name, engine, reason));
                continue;
            }
        };
        let targets = targets.iter().filter(|target| (suite.claims)(target)).collect();
        let (tally, failed) = (Mutex::default(), Mutex::default());
        runs.push(SuiteRun { suite, targets, servers, tally, failed });
    }
    runs
}

fn jobs<'a>(
    runs: &'a [SuiteRun<'a>],
    selection: &Selection,
    budgets: &Budgets,
) -> Vec<Job<Work<'a>>> {
    let mut jobs = Vec::new();
    for run in runs {
        let (load, expected) = (run.suite.load, budgets.of(run.suite.id));
        let job =
            |target: &&'a TestTarget| Job { load, expected, work: Work::Program(run, target) };
        jobs.extend(run.targets.iter().map(job));
    }
    if selection.documentation {
        let expected = budgets.of(DOCUMENTATION.0);
        jobs.push(Job { load: Load::Computes, expected, work: Work::Documentation });
    }
    jobs
}

/// More failures than this are not the doing of what ran beside them.
const MOST_REPEATED: usize = 3;

impl SuiteRun<'_> {
    /// Runs the tests that failed once more, alone, when everything else has ended. A test that passes then
    /// does not fail the run, and the summary names it: it does not stand being run beside others.
    fn repeat_failures(&self, programs: &Programs, length: Length) {
        for (target, names) in self.failed.lock().expect("no test run panics").iter() {
            let Some(mut command) = programs.command(target) else { continue };
            command.envs(self.servers.environment.iter().map(|(name, value)| (name, value)));
            command.args(names).args(["--exact", "--test-threads", "1"]);
            if length == Length::Long {
                command.env(LONG.0, LONG.1);
            }
            if length == Length::Long || self.suite.usual.with_ignored {
                command.arg("--include-ignored");
            }
            let Ok(ran) = Ran::of(&mut command, length == Length::Long) else { continue };
            let label = target.label();
            println!("again, alone: {label}: {}", names.join(", "));
            if ran.status.success() && ran.events.counts.passed == names.len() as u64 {
                self.tally.lock().expect("no test run panics").passed_alone(&label, names);
            }
        }
    }

    fn into_entry(self) -> Entry {
        let mut tally = self.tally.into_inner().expect("no test run panics");
        if self.targets.is_empty() {
            tally.problems.push("this suite has no test target in the workspace".to_owned());
        } else if tally.counts.ran() == 0 && tally.problems.is_empty() {
            tally.problems.push("ran zero tests, so it proved nothing".to_owned());
        }
        let Servers { words, running, .. } = self.servers;
        drop(running);
        Entry::ran(self.suite.id, self.suite.name, words, tally)
    }
}

/// Runs one test program as `cargo test` would, without asking cargo to resolve features for one
/// package alone: that would build half of the tree again inside the time of the suite.
fn run_target<'a>(run: &SuiteRun<'a>, target: &'a TestTarget, programs: &Programs, length: Length) {
    let label = target.label();
    let Some(mut command) = programs.command(target) else {
        let problem = format!("{label}: the build made no program for it");
        run.tally.lock().expect("no test run panics").problems.push(problem);
        return;
    };
    let Servers { environment, repeat, .. } = &run.servers;
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.args(["--test-threads", threads(run.suite.load)]);
    let mut again = target.cargo_test();
    for (name, value) in repeat {
        again = again.environment(name, value);
    }
    match length {
        Length::Usual => {
            command.args(run.suite.usual.only);
            command.args(run.suite.usual.without.iter().flat_map(|name| ["--skip", name]));
            if run.suite.usual.with_ignored {
                command.arg("--include-ignored");
                again = again.arguments(&["--".to_owned(), "--include-ignored".to_owned()]);
            }
        }
        Length::Long => {
            command.arg("--include-ignored").env(LONG.0, LONG.1);
            again = again
                .environment(LONG.0, LONG.1)
                .arguments(&["--".to_owned(), "--include-ignored".to_owned()]);
        }
    }
    let ran = Ran::of(&mut command, length == Length::Long);
    if let Ok(Ran { events, .. }) = &ran
        && events.is_complete
        && (1..=MOST_REPEATED).contains(&events.failures.len())
    {
        let names = events.failures.iter().map(|(name, _)| name.clone()).collect();
        run.failed.lock().expect("no test run panics").push((target.clone(), names));
    }
    let mut tally = run.tally.lock().expect("no test run panics");
    match ran {
        Err(error) => tally.problems.push(format!("{label}: could not be run: {error}")),
        Ok(ran) => tally.add(run.suite.name, &label, ran, &again),
    }
}

/// How many tests of one program run at a time.
fn threads(load: Load) -> &'static str {
    match load {
        Load::Computes => "2",
        Load::Waits => "4",
    }
}

/// Runs the doc tests of every library, once. Examples marked `ignore` stay ignored in a long run:
/// they are marked because they do not compile.
fn run_documentation_examples(root: &Path, length: Length) -> Entry {
    let mut call = Cargo::new("test --workspace --all-features --doc --no-fail-fast");
    if length == Length::Long {
        call = call.environment(LONG.0, LONG.1);
    }
    let started = Instant::now();
    let mut tally = Tally::default();
    match call.command(root).output() {
        Ok(output) => {
            let mut transcript = Transcript::default();
            let printed = String::from_utf8_lossy(&output.stdout);
            printed.lines().for_each(|line| transcript.read(line));
            tally.add_transcript(&transcript, output.status, started.elapsed(), &call);
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                print_block(DOCUMENTATION.1, &format!("{printed}{errors}"));
            }
        }
        Err(error) => tally.problems.push(call.not_started(&error).to_string()),
    }
    if tally.counts.ran() == 0 && tally.problems.is_empty() {
        tally.problems.push("ran zero tests: no library has an example that compiles".to_owned());
    }
    Entry::ran(DOCUMENTATION.0, DOCUMENTATION.1, "no server".to_owned(), tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name() {
        let names =
            |words: &[&str]| -> Vec<String> { words.iter().map(ToString::to_string).collect() };
        let two = Selection::of(&names(&["sqlite", "documentation"]), Length::Usual).unwrap();
        assert_eq!((two.suites.len(), two.documentation), (1, true));
        assert!(!two.is_everything());
        assert!(Selection::of(&[], Length::Long).unwrap().is_everything());
        let stranger = Selection::of(&names(&["sqlight"]), Length::Usual).err().unwrap();
        assert!(stranger.to_string().contains("simulation, sqlite, crash"), "{stranger}");
    }
}
