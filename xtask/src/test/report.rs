//! The end of a test run: what ran against what, what was skipped, what failed, and the totals.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};

use super::program::{Ran, TestRun};
use super::timings::{self, Budgets, Clock};
use super::{Length, queue};
use crate::cargo::{Cargo, readable};
use crate::failure::Failure;
use crate::results::{Counts, Transcript};
use crate::workspace::Workspace;

pub(crate) struct Report {
    length: Length,
    entries: Vec<Entry>,
    /// What took time beside the suites.
    steps: Vec<(&'static str, Duration)>,
}

/// What one suite, or one check beside the suites, came to.
pub(super) struct Entry {
    id: &'static str,
    name: &'static str,
    end: End,
}

enum End {
    Ran {
        against: String,
        tally: Tally,
    },
    /// It has no tests to count, and it does not hold.
    Broken {
        tally: Tally,
    },
    Skipped {
        engine: &'static str,
        reason: String,
    },
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    /// What went wrong, each with the way to see it again.
    pub(super) problems: Vec<String>,
    /// Tests that failed beside others and passed alone.
    restless: Vec<String>,
    programs: Vec<ProgramTime>,
}

struct ProgramTime {
    label: String,
    elapsed: Duration,
    tests: Vec<TestRun>,
}

impl Tally {
    /// Adds the run of one test program, and prints its line of progress.
    pub(super) fn add(&mut self, suite: &str, label: &str, ran: Ran, repeat: &Cargo) {
        self.counts += ran.events.counts;
        let failed: Vec<&str> = ran.events.failures.iter().map(|(name, _)| name.as_str()).collect();
        let names = if !ran.events.is_complete {
            let unfinished: Vec<&str> = ran.unfinished().collect();
            let status = ran.status;
            Some(format!("it broke off ({status}) while these ran: {}", unfinished.join(", ")))
        } else if !failed.is_empty() {
            Some(failed.join(", "))
        } else if !ran.status.success() {
            Some(format!("it ended with {}", ran.status))
        } else {
            None
        };
        let mark = if names.is_some() { "FAILED" } else { "ok    " };
        let (counts, took) = (counted(ran.events.counts), readable(ran.elapsed));
        println!("{mark} {suite} — {label}: {counts} in {took}");
        if let Some(names) = names {
            for (name, output) in &ran.events.failures {
                print_block(&format!("{label}: {name}"), output);
            }
            print_block(&format!("{label}: what it said beside its tests"), &ran.said);
            self.problems.push(format!("{label}: {names}\nrepeat with: {repeat}"));
        }
        let (label, elapsed, tests) = (label.to_owned(), ran.elapsed, ran.events.tests);
        self.programs.push(ProgramTime { label, elapsed, tests });
    }

    /// Takes back the failures of a program whose failed tests have passed when they were run alone.
    pub(super) fn passed_alone(&mut self, label: &str, names: &[String]) {
        let count = names.len() as u64;
        self.counts.failed -= count;
        self.counts.passed += count;
        self.problems.retain(|problem| !problem.starts_with(&format!("{label}: ")));
        self.restless.push(format!("{label}: {}", names.join(", ")));
    }

    /// Adds a run of cargo that printed its results as text.
    pub(super) fn add_transcript(
        &mut self,
        transcript: &Transcript,
        status: ExitStatus,
        elapsed: Duration,
        repeat: &Cargo,
    ) {
        self.counts += transcript.counts;
        if !status.success() || transcript.counts.failed > 0 {
            let names = transcript.failed_tests.join(", ");
            self.problems.push(format!("{names} ({status})\nrepeat with: {repeat}"));
        }
        let label = repeat.to_string();
        self.programs.push(ProgramTime { label, elapsed, tests: Vec::new() });
    }

    /// The times of its programs, added up: they may have run side by side with others.
    fn elapsed(&self) -> Duration {
        self.programs.iter().map(|program| program.elapsed).sum()
    }
}

/// Prints what a failed program said, between two lines that name it, the end if it is very much.
pub(super) fn print_block(title: &str, text: &str) {
    const MOST: usize = 400;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return;
    }
    let left_out = lines.len().saturating_sub(MOST);
    let note =
        if left_out > 0 { format!(" (without its first {left_out} lines)") } else { String::new() };
    println!("---- {title}{note}\n{}\n----", lines[left_out..].join("\n"));
}

impl Entry {
    pub(super) fn ran(id: &'static str, name: &'static str, against: String, tally: Tally) -> Self {
        Self { id, name, end: End::Ran { against, tally } }
    }

    pub(super) fn broken(id: &'static str, name: &'static str, problems: Vec<String>) -> Self {
        Self { id, name, end: End::Broken { tally: Tally { problems, ..Tally::default() } } }
    }

    pub(super) fn skipped(
        id: &'static str,
        name: &'static str,
        engine: &'static str,
        reason: String,
    ) -> Self {
        Self { id, name, end: End::Skipped { engine, reason } }
    }

    fn tally(&self) -> Option<&Tally> {
        match &self.end {
            End::Ran { tally, .. } | End::Broken { tally } => Some(tally),
            End::Skipped { .. } => None,
        }
    }

    fn problems(&self) -> &[String] {
        self.tally().map_or(&[], |tally| &tally.problems)
    }

    fn programs(&self) -> &[ProgramTime] {
        self.tally().map_or(&[], |tally| &tally.programs)
    }

    /// Its share of the totals; whatever broke without a failed test is one failure.
    fn totals(&self) -> Counts {
        let Some(tally) = self.tally() else {
            return Counts { ignored: 1, ..Counts::default() };
        };
        let broken = u64::from(!tally.problems.is_empty());
        Counts { failed: tally.counts.failed.max(broken), ..tally.counts }
    }

    /// One line: how it ended, what it is, what it ran against, and how much.
    fn line(&self) -> String {
        let name = self.name;
        let mark = if self.problems().is_empty() { "ok    " } else { "FAILED" };
        match &self.end {
            End::Ran { against, tally } => {
                format!("{mark} {name} — {against}: {}", counted(tally.counts))
            }
            End::Broken { .. } => format!("{mark} {name}"),
            End::Skipped { engine, reason } => format!("SKIPPED {name} — {engine}: {reason}"),
        }
    }
}

impl Report {
    pub(super) fn new(length: Length) -> Self {
        Self { length, entries: Vec::new(), steps: Vec::new() }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Takes up what a step beside the suites took.
    pub(super) fn step(&mut self, name: &'static str, elapsed: Duration) {
        self.steps.push((name, elapsed));
    }

    /// Takes up the steps that were done before the tests.
    pub(crate) fn steps_before(&mut self, steps: Vec<(&'static str, Duration)>) {
        self.steps.splice(0..0, steps);
    }

    pub(crate) fn passed(&self) -> bool {
        self.entries.iter().all(|entry| entry.totals().failed == 0)
    }

    /// Prints everything but the totals, and writes the file of times.
    pub(crate) fn finish(
        &self,
        root: &Path,
        workspace: &Workspace,
        clock: &Clock,
    ) -> Result<(), Failure> {
        let path = workspace.target_directory().join("timings.json");
        let budgets = Budgets::read(root)?;
        timings::write(&path, &self.document(&budgets, clock))?;
        println!("\n{}", self.summary());
        println!("{}", self.times(&budgets, clock));
        println!("All times: {}", crate::source::shown(root, &path));
        Ok(())
    }

    /// The last line of a run, alone on its line.
    pub(crate) fn print_totals(&self) {
        println!("{}", counted(self.totals()));
    }

    fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        self.entries.iter().for_each(|entry| totals += entry.totals());
        totals
    }

    fn summary(&self) -> String {
        let mut text = String::from("What ran, and against what:\n");
        let skipped = |entry: &&Entry| matches!(entry.end, End::Skipped { .. });
        for entry in self.entries.iter().filter(|entry| !skipped(entry)) {
            text += &format!("  {}\n", entry.line());
        }

        text += "Engines skipped:\n";
        for entry in self.entries.iter().filter(skipped) {
            text += &format!("  {}\n", entry.line());
        }
        if !self.entries.iter().any(|entry| skipped(&entry)) {
            text += "  none\n";
        }

        let restless: Vec<&str> = self
            .entries
            .iter()
            .filter_map(Entry::tally)
            .flat_map(|tally| tally.restless.iter().map(String::as_str))
            .collect();
        if !restless.is_empty() {
            text += "FAILED beside other tests and passed alone; find out why:\n";
            text += &restless.iter().map(|line| format!("  {line}\n")).collect::<String>();
        }

        let failures = self.entries.iter().flat_map(|entry| {
            entry
                .problems()
                .iter()
                .map(|problem| format!("  {}: {}\n", entry.name, problem.replace('\n', "\n    ")))
        });
        let failures: String = failures.collect();
        if !failures.is_empty() {
            text += &format!("What failed:\n{failures}");
        }

        let ignored: u64 =
            self.entries.iter().filter_map(Entry::tally).map(|tally| tally.counts.ignored).sum();
        if self.length == Length::Usual && ignored > 0 {
            text += &format!(
                "Left out because marked as ignored: {ignored}. Run them with: cargo xtask test --long\n"
            );
        }
        text
    }

    /// The slowest tests, and each step and suite beside its budget.
    fn times(&self, budgets: &Budgets, clock: &Clock) -> String {
        const MOST: usize = 10;
        let programs = self.entries.iter().flat_map(Entry::programs);
        let mut slowest: Vec<(&str, &TestRun)> = programs
            .flat_map(|program| program.tests.iter().map(|test| (program.label.as_str(), test)))
            .collect();
        slowest.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let mut text = String::from("Slowest tests:\n");
        for (label, test) in slowest.iter().take(MOST) {
            text += &format!("  {:>6.1} s  {label}  {}\n", test.seconds, test.name);
        }

        text += &format!(
            "Time of each suite (its programs added up; {} run side by side), and its budget:\n",
            queue::LANES
        );
        for entry in self.entries.iter().filter(|entry| !entry.programs().is_empty()) {
            let took = entry.tally().map(Tally::elapsed).unwrap_or_default();
            text += &format!("  {}\n", budgets.line(entry.id, took));
        }
        text += "Time of each step, and its budget:\n";
        for (name, elapsed) in &self.steps {
            text += &format!("  {}\n", budgets.line(name, *elapsed));
        }
        let processors = clock.processor_time().map_or_else(|| "unknown".to_owned(), readable);
        text += &format!("In all: {}, processor time {processors}", readable(clock.elapsed()));
        text
    }

    fn document(&self, budgets: &Budgets, clock: &Clock) -> Value {
        let test = |test: &TestRun| json!({"name": test.name, "seconds": test.seconds, "passed": test.passed});
        let program = |program: &ProgramTime| {
            json!({
                "name": program.label,
                "seconds": timings::seconds(program.elapsed),
                "tests": program.tests.iter().map(test).collect::<Vec<_>>(),
            })
        };
        let suites = self.entries.iter().map(|entry| {
            let Counts { passed, failed, ignored } = entry.totals();
            json!({
                "suite": entry.id,
                "passed": passed, "failed": failed, "skipped": ignored,
                "seconds": timings::seconds(entry.tally().map(Tally::elapsed).unwrap_or_default()),
                "budget_seconds": timings::seconds(budgets.of(entry.id)),
                "programs": entry.programs().iter().map(program).collect::<Vec<_>>(),
            })
        });
        let steps = self.steps.iter().map(|(name, elapsed)| {
            json!({
                "step": name,
                "seconds": timings::seconds(*elapsed),
                "budget_seconds": timings::seconds(budgets.of(name)),
            })
        });
        json!({
            "seconds": timings::seconds(clock.elapsed()),
            "processor_seconds": clock.processor_time().map(timings::seconds),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "steps": steps.collect::<Vec<_>>(),
            "suites": suites.collect::<Vec<_>>(),
        })
    }
}

fn counted(counts: Counts) -> String {
    format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &'static str, counts: Counts, problems: &[&str]) -> Entry {
        let problems = problems.iter().map(ToString::to_string).collect();
        let tests = [0.5, 1.5].map(|seconds| TestRun {
            name: format!("takes_{seconds}"),
            seconds,
            passed: true,
        });
        let programs = vec![ProgramTime {
            label: format!("onceward tests/{name}.rs"),
            elapsed: Duration::from_secs(2),
            tests: tests.into(),
        }];
        let tally = Tally { counts, problems, programs, ..Tally::default() };
        Entry::ran(name, name, "no server".into(), tally)
    }

    #[test]
    fn totals_add_up_tests_and_what_broke_without_one() {
        let mut report = Report::new(Length::Usual);
        report.add(ran("model", Counts { passed: 3, failed: 0, ignored: 1 }, &[]));
        assert!(report.passed());
        report.add(ran(
            "simulation",
            Counts { passed: 1, failed: 2, ignored: 0 },
            &["seeds: a, b"],
        ));
        report.add(ran("SQLite store", Counts::default(), &["ran zero tests"]));
        report.add(Entry::skipped(
            "postgres",
            "PostgreSQL store",
            "PostgreSQL",
            "no server found".into(),
        ));
        assert!(!report.passed());
        assert_eq!(counted(report.totals()), "4 passed, 3 failed, 2 skipped");
    }

    #[test]
    fn the_summary_names_what_ran_what_was_skipped_and_what_failed() {
        let mut report = Report::new(Length::Usual);
        report.add(ran("model", Counts { passed: 3, failed: 0, ignored: 1 }, &[]));
        report.add(ran("SQLite store", Counts::default(), &["ran zero tests"]));
        report.add(Entry::skipped(
            "postgres",
            "PostgreSQL store",
            "PostgreSQL",
            "no server found".into(),
        ));
        assert_eq!(
            report.summary(),
            "What ran, and against what:\n  \
               ok     model — no server: 3 passed, 0 failed, 1 skipped\n  \
               FAILED SQLite store — no server: 0 passed, 0 failed, 0 skipped\n\
             Engines skipped:\n  \
               SKIPPED PostgreSQL store — PostgreSQL: no server found\n\
             What failed:\n  \
               SQLite store: ran zero tests\n\
             Left out because marked as ignored: 1. Run them with: cargo xtask test --long\n"
        );
    }

    #[test]
    fn a_run_without_skipped_engines_says_so() {
        let mut report = Report::new(Length::Long);
        report.add(ran("model", Counts { passed: 3, failed: 0, ignored: 0 }, &[]));
        assert!(report.summary().ends_with("Engines skipped:\n  none\n"));
    }

    #[test]
    fn times_name_the_slowest_tests_and_what_is_over_its_budget() {
        let mut report = Report::new(Length::Usual);
        report.add(ran("model", Counts { passed: 2, failed: 0, ignored: 0 }, &[]));
        report.step("build", Duration::from_secs(1));
        let budgets = Budgets::of_text("model 1\nbuild 5").unwrap();
        let times = report.times(&budgets, &Clock::start());
        let slowest = times.find("1.5 s  onceward tests/model.rs  takes_1.5").unwrap();
        assert!(slowest < times.find("0.5 s  onceward tests/model.rs").unwrap(), "{times}");
        assert_eq!(times.matches("over its budget").count(), 1, "{times}");
        let document = report.document(&budgets, &Clock::start());
        assert_eq!(document["suites"][0]["seconds"], 2.0);
        assert_eq!(document["suites"][0]["programs"][0]["tests"][1]["name"], "takes_1.5");
        assert_eq!(document["steps"][0]["budget_seconds"], 5.0);
    }

    #[test]
    fn what_passed_alone_is_no_failure_and_is_named() {
        let mut tally = Tally {
            counts: Counts { passed: 3, failed: 2, ignored: 0 },
            problems: vec!["a tests/x.rs: one, two\nrepeat with: …".into()],
            ..Tally::default()
        };
        tally.passed_alone("a tests/x.rs", &["one".into(), "two".into()]);
        let mut report = Report::new(Length::Usual);
        report.add(Entry::ran("x", "x", "no server".into(), tally));
        assert!(report.passed());
        assert_eq!(counted(report.totals()), "5 passed, 0 failed, 0 skipped");
        assert!(
            report.summary().contains("passed alone; find out why:\n  a tests/x.rs: one, two\n")
        );
    }
}
