//! Small faults are put into the core, one at a time: a test must notice each of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::cargo::Cargo;
use crate::failure::Failure;
use crate::source;

/// Puts small faults into the core, one at a time, and fails if no test notices one.
///
/// The faults are cargo-mutants' own: a condition turned round, a result replaced, a field left out, in the
/// files that decide. The quick tests of the core are asked first; what they miss, the model checker is
/// asked about. What may survive is listed, each with its reason, in docs/mutants.md.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask mutants\n  \
                  cargo xtask mutants --minutes 90   on a slow or busy machine")]
pub(crate) struct Arguments {
    /// How long it may take in all; what was not tried by then is a failure
    #[arg(long, value_name = "N", default_value_t = 40)]
    minutes: u64,
}

const VERSION: &str = "27.1.0";
const LISTED: &str = "docs/mutants.md";
/// Below the target directory, so that nothing of it is ever committed.
const OUTPUT: &str = "target/mutants";

/// The files that decide what runs, what is remembered, what is tried again, and what becomes of a message.
const FILES: [&str; 6] = [
    "admission.rs",
    "claim.rs",
    "message/delivery.rs",
    "message/work.rs",
    "record.rs",
    "retry/decide.rs",
];

/// Quick because what they leave out are the fingerprints, which use none of these files, and the models.
const QUICK_TESTS: &str = "-- --lib --test message --test protocol --test retry -- \
                           --skip fingerprint:: --skip model::";
/// They take half a minute and more for each, so they are asked only about those that the quick tests miss.
const MODEL: &str = "--iterate --baseline skip --timeout 300 -- --test model --test message";

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    ensure_cargo_mutants(root)?;
    let listed = listed(&source::read(&root.join(LISTED))?);
    let output = root.join(OUTPUT);
    // An earlier run would be continued.
    let _ = fs::remove_dir_all(&output);
    fs::create_dir_all(&output).map_err(|error| unwritten(&output, &error))?;

    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let quick = call("--minimum-test-timeout 60", QUICK_TESTS);
    let mut tally = Tally::default();
    pass(&quick, root, end, arguments)?;
    tally.add(&output)?;
    if !tally.missed.is_empty() {
        let (options, tests) = MODEL.split_once(" -- ").expect("it is written like that");
        pass(&call(options, &format!("-- {tests}")), root, end, arguments)?;
        tally.missed.clear();
        tally.add(&output)?;
    }
    tally.report(&listed)
}

fn ensure_cargo_mutants(root: &Path) -> Result<(), Failure> {
    if Cargo::new("mutants --version").succeeds(root) {
        return Ok(());
    }
    let install =
        Cargo::new("install cargo-mutants --locked --version").arguments(&[VERSION.into()]);
    println!("`cargo mutants` is not installed; installing it with: {install}");
    install.run(root)
}

/// Without optimisation, because each fault is compiled once and run for a second.
fn call(options: &str, tests: &str) -> Cargo {
    let files = FILES.map(|file| format!("--file crates/onceward-core/src/{file}")).join(" ");
    let line = format!(
        "mutants --package onceward-core --test-package onceward-core --all-features {files} \
         --jobs 1 --no-shuffle --line-col false --colors never --output {OUTPUT} \
         --cargo-arg=--config=profile.dev.package.onceward-core.opt-level=0 {options} {tests}"
    );
    Cargo::new(&line).environment("PROPTEST_CASES", "16")
}

/// Runs it until the end of the time, with all that it has started.
fn pass(call: &Cargo, root: &Path, end: Instant, arguments: &Arguments) -> Result<(), Failure> {
    println!("{call}");
    let left = end.saturating_duration_since(Instant::now()).as_secs().max(1);
    let inner = call.command(root);
    let mut bounded = Command::new("timeout");
    bounded.args(["--signal=INT", "--kill-after=30", &format!("{left}s")]);
    bounded.arg(inner.get_program()).args(inner.get_args()).current_dir(root);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    let status = bounded.status().map_err(|error| call.not_started(&error))?;
    match status.code() {
        // All were noticed; some were not; some tests did not end.
        Some(0 | 2 | 3) => Ok(()),
        Some(124 | 137) => Err(Failure::new(
            format!("not all mutants were tried within {} minutes", arguments.minutes),
            "give it more time with --minutes, on a machine that does nothing else",
        )),
        _ => Err(Failure::new(
            format!("`{call}` failed ({status})"),
            "read its messages above; the tests must pass before anything is changed",
        )),
    }
}

/// What became of the mutants.
#[derive(Default)]
struct Tally {
    caught: usize,
    timed_out: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Tally {
    /// Adds what cargo-mutants has written about its last pass.
    fn add(&mut self, output: &Path) -> Result<(), Failure> {
        let lines = |name: &str| -> Result<Vec<String>, Failure> {
            let text = source::read(&output.join("mutants.out").join(name))?;
            Ok(text.lines().map(without_place).collect())
        };
        self.caught += lines("caught.txt")?.len();
        self.unviable += lines("unviable.txt")?.len();
        // What was too slow for the quick tests is tried again with the model.
        self.timed_out = lines("timeout.txt")?.len();
        self.missed.extend(lines("missed.txt")?);
        Ok(())
    }

    fn report(&self, listed: &BTreeMap<String, usize>) -> Result<ExitCode, Failure> {
        let Self { caught, timed_out, unviable, missed } = self;
        println!(
            "\n{} mutants: {caught} caught, {} missed, {timed_out} never ended, {unviable} did not compile",
            caught + missed.len() + timed_out + unviable,
            missed.len()
        );
        let mut excused = listed.clone();
        let is_new = |mutant: &&String| match excused.get_mut(*mutant) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        };
        let new: Vec<String> = missed.iter().filter(is_new).cloned().collect();
        for (mutant, _) in excused.iter().filter(|(_, left)| **left > 0) {
            println!("listed in {LISTED}, but noticed by now: {mutant}");
        }
        if new.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::of_findings(
            "the search for tests that are missing",
            &new,
            "write a test that fails with it; if none can, add it to docs/mutants.md with the reason",
        ))
    }
}

/// The mutants of the table in docs/mutants.md; the same words may stand there more than once.
fn listed(document: &str) -> BTreeMap<String, usize> {
    let mut listed = BTreeMap::new();
    for line in document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').splitn(2, " | ").map(str::trim).collect();
        if let [mutant, reason] = cells[..]
            && let Some(mutant) = mutant.strip_prefix('`').and_then(|it| it.strip_suffix('`'))
            && mutant.starts_with("crates/")
            && !reason.is_empty()
        {
            *listed.entry(without_place(mutant)).or_default() += 1;
        }
    }
    listed
}

/// `file.rs:12:9: replace …` without the line, which changes with everything above it.
fn without_place(mutant: &str) -> String {
    let Some((file, rest)) = mutant.split_once(".rs:") else { return mutant.to_owned() };
    let what = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':').trim_start();
    format!("{file}.rs: {what}")
}

fn unwritten(place: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("{} could not be made: {error}", place.display()),
        "check that the target directory can be written to",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTANT: &str = "crates/onceward-core/src/claim.rs: replace a || b with a && b in f";

    #[test]
    fn a_mutant_is_known_by_its_words_wherever_it_stands() {
        let placed = "crates/onceward-core/src/claim.rs:86:30: replace a || b with a && b in f";
        assert_eq!(without_place(placed), MUTANT);
        assert_eq!(without_place(MUTANT), MUTANT);
    }

    #[test]
    fn only_rows_with_a_reason_are_listed() {
        let document = format!(
            "| mutant | reason |\n|---|---|\n| `{MUTANT}` | it is the same |\n| `{MUTANT}` | |\n"
        );
        assert_eq!(listed(&document), BTreeMap::from([(MUTANT.to_owned(), 1)]));
    }

    #[test]
    fn a_row_excuses_one_mutant_and_no_more() {
        let listed = BTreeMap::from([(MUTANT.to_owned(), 1)]);
        let tally = |count| Tally { missed: vec![MUTANT.to_owned(); count], ..Tally::default() };
        assert!(tally(0).report(&listed).is_ok());
        assert!(tally(1).report(&listed).is_ok());
        let failure = tally(2).report(&listed).unwrap_err().to_string();
        assert!(failure.contains("found 1 problem:"), "{failure}");
    }
}
