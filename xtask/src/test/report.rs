//! The end of a test run: what ran against what, what was skipped, what failed, and the totals.

use std::process::ExitStatus;
use std::time::Duration;

use super::Length;
use crate::cargo::{Cargo, readable};
use crate::results::{Counts, Transcript};

pub(crate) struct Report {
    length: Length,
    entries: Vec<Entry>,
}

/// What one suite, or one check beside the suites, came to.
pub(super) struct Entry {
    name: &'static str,
    end: End,
}

enum End {
    Ran {
        against: String,
        tally: Tally,
        elapsed: Duration,
    },
    /// It has no tests to count: it holds or it does not.
    Checked {
        tally: Tally,
        elapsed: Duration,
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
}

impl Tally {
    /// Adds the run of one test program.
    pub(super) fn add(
        &mut self,
        label: &str,
        transcript: &Transcript,
        status: ExitStatus,
        repeat: &Cargo,
    ) {
        self.counts += transcript.counts;
        if status.success() && transcript.counts.failed == 0 {
            return;
        }
        let names = if transcript.failed_tests.is_empty() {
            format!("it ended with {status}")
        } else {
            transcript.failed_tests.join(", ")
        };
        self.problems.push(format!("{label}: {names}\nrepeat with: {repeat}"));
    }
}

impl Entry {
    pub(super) fn ran(
        name: &'static str,
        against: String,
        tally: Tally,
        elapsed: Duration,
    ) -> Self {
        Self { name, end: End::Ran { against, tally, elapsed } }
    }

    pub(super) fn checked(name: &'static str, tally: Tally, elapsed: Duration) -> Self {
        Self { name, end: End::Checked { tally, elapsed } }
    }

    pub(super) fn broken(name: &'static str, problems: Vec<String>, elapsed: Duration) -> Self {
        Self::checked(name, Tally { counts: Counts::default(), problems }, elapsed)
    }

    pub(super) fn skipped(name: &'static str, engine: &'static str, reason: String) -> Self {
        Self { name, end: End::Skipped { engine, reason } }
    }

    fn tally(&self) -> Option<&Tally> {
        match &self.end {
            End::Ran { tally, .. } | End::Checked { tally, .. } => Some(tally),
            End::Skipped { .. } => None,
        }
    }

    fn problems(&self) -> &[String] {
        self.tally().map_or(&[], |tally| &tally.problems)
    }

    /// Its share of the totals; whatever broke without a failed test is one failure.
    fn totals(&self) -> Counts {
        let Some(tally) = self.tally() else {
            return Counts { ignored: 1, ..Counts::default() };
        };
        let broken = u64::from(!tally.problems.is_empty());
        Counts { failed: tally.counts.failed.max(broken), ..tally.counts }
    }

    /// One line: how it ended, what it is, what it ran against, how much and how long.
    fn line(&self) -> String {
        let name = self.name;
        let mark = if self.problems().is_empty() { "ok    " } else { "FAILED" };
        match &self.end {
            End::Ran { against, tally, elapsed } => format!(
                "{mark} {name} — {against}: {} in {}",
                counted(tally.counts),
                readable(*elapsed)
            ),
            End::Checked { elapsed, .. } => format!("{mark} {name}, in {}", readable(*elapsed)),
            End::Skipped { engine, reason } => format!("SKIPPED {name} — {engine}: {reason}"),
        }
    }
}

impl Report {
    pub(super) fn new(length: Length) -> Self {
        Self { length, entries: Vec::new() }
    }

    /// Takes up an entry and prints its line of progress.
    pub(super) fn add(&mut self, entry: Entry) {
        println!("== {}", entry.line());
        self.entries.push(entry);
    }

    pub(crate) fn passed(&self) -> bool {
        self.entries.iter().all(|entry| entry.totals().failed == 0)
    }

    pub(crate) fn print_summary(&self) {
        println!("\n{}", self.summary());
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
}

fn counted(counts: Counts) -> String {
    format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &'static str, counts: Counts, problems: &[&str]) -> Entry {
        let problems = problems.iter().map(ToString::to_string).collect();
        let tally = Tally { counts, problems };
        Entry::ran(name, "no server".into(), tally, Duration::from_secs(2))
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
        report.add(Entry::skipped("PostgreSQL store", "PostgreSQL", "no server found".into()));
        assert!(!report.passed());
        assert_eq!(counted(report.totals()), "4 passed, 3 failed, 2 skipped");
    }

    #[test]
    fn the_summary_names_what_ran_what_was_skipped_and_what_failed() {
        let mut report = Report::new(Length::Usual);
        report.add(ran("model", Counts { passed: 3, failed: 0, ignored: 1 }, &[]));
        report.add(ran("SQLite store", Counts::default(), &["ran zero tests"]));
        report.add(Entry::skipped("PostgreSQL store", "PostgreSQL", "no server found".into()));
        assert_eq!(
            report.summary(),
            "What ran, and against what:\n  \
               ok     model — no server: 3 passed, 0 failed, 1 skipped in 2.0 s\n  \
               FAILED SQLite store — no server: 0 passed, 0 failed, 0 skipped in 2.0 s\n\
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
}
