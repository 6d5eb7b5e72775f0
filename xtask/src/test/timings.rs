//! How long everything took, beside what it may take; a note for people and a file for programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cargo::readable;
use crate::failure::Failure;
use crate::source;

const FILE: &str = "xtask/budgets.txt";

/// What each step and suite may take on two quiet cores.
pub(crate) struct Budgets(BTreeMap<String, Duration>);

impl Budgets {
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        Self::of_text(&source::read(&root.join(FILE))?)
    }

    /// A name and a number of seconds in a line; `#` starts a comment.
    pub(super) fn of_text(text: &str) -> Result<Self, Failure> {
        let lines = text.lines().filter_map(|line| line.split('#').next()).map(str::trim);
        let budgets = lines.filter(|line| !line.is_empty()).map(|line| {
            let (name, seconds) = line.rsplit_once(char::is_whitespace).ok_or(line)?;
            let seconds = seconds.parse().map_err(|_| line)?;
            Ok((name.trim().to_owned(), Duration::from_secs(seconds)))
        });
        let budgets: Result<_, &str> = budgets.collect();
        budgets.map(Self).map_err(|line| {
            Failure::new(
                format!("{FILE} has a line that is no budget: {line:?}"),
                "write a name and a number of seconds",
            )
        })
    }

    /// Nothing, for what has no budget yet.
    pub(super) fn of(&self, name: &str) -> Duration {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// One line: what it took, what it may take, and whether that is more.
    pub(super) fn line(&self, name: &str, took: Duration) -> String {
        let budget = self.of(name);
        let over = if took > budget { "  over its budget" } else { "" };
        format!("{name:<22} {:>12}   of {:>12}{over}", readable(took), readable(budget))
    }
}

/// How long a run has taken, by the clock on the wall and by the processors.
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Processor time of this process, of those that descend from it, and of all that have ended; `None`
    /// where the system does not tell.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        testbed::cpu_time_with_ended(std::process::id())
    }
}

/// Writes the file of all times, and says where it is.
pub(super) fn write(path: &Path, document: &Value) -> Result<(), Failure> {
    let text = format!("{document:#}\n");
    fs::write(path, text).map_err(|error| {
        Failure::new(
            format!("{} cannot be written: {error}", path.display()),
            "the tests ran; free the place and repeat if you need the file",
        )
    })
}

/// Seconds with three digits: more says nothing.
pub(super) fn seconds(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci;
    use crate::suites;
    use crate::workspace::root;

    #[test]
    fn a_budget_is_a_name_and_seconds() {
        let budgets =
            Budgets::of_text("# all\nsqlite 20 # quick\n\nlints of features  7\n").unwrap();
        assert_eq!(budgets.of("sqlite"), Duration::from_secs(20));
        assert_eq!(budgets.of("lints of features"), Duration::from_secs(7));
        assert!(budgets.line("sqlite", Duration::from_secs(21)).ends_with("over its budget"));
        assert!(!budgets.line("sqlite", Duration::from_secs(20)).contains("over"));
        for wrong in ["sqlite", "sqlite soon"] {
            assert!(Budgets::of_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_step_and_suite_has_a_budget_and_no_other_is_left() {
        let budgets = Budgets::read(&root().unwrap()).unwrap();
        let suites = suites::known().map(|suite| suite.id).chain(["documentation"]);
        let mut known: Vec<&str> =
            ci::step_names().chain(["build", "tests"]).chain(suites).collect();
        known.sort_unstable();
        assert_eq!(budgets.0.keys().map(String::as_str).collect::<Vec<_>>(), known);
    }

    #[test]
    fn the_processor_time_of_children_is_counted() {
        let clock = Clock::start();
        let before = clock.processor_time().unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(clock.processor_time().unwrap() > before);
    }
}
