//! `cargo xtask check`: the inner loop, what a change most likely broke.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::cargo::{Cargo, readable};
use crate::ci::{FORMATTING, LINTS};
use crate::failure::Failure;
use crate::suites;
use crate::test::{Clock, Length, Preparation, Selection, run_suites};
use crate::tidy;
use crate::workspace::Workspace;

/// Checks what you changed: formatting, tidiness, lints, and the fast tests of the changed packages.
///
/// Changed is what differs from the last commit, or from the one that `--since` names, and what git
/// does not know yet. The fast suites of the changed packages and of those that depend on them
/// directly are run; `cargo xtask test` runs the rest.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask check                what is not committed yet\n  \
                  cargo xtask check --since main   all that this branch has changed"
)]
pub(crate) struct Arguments {
    /// The commit that the files are compared with
    #[arg(long, value_name = "REVISION", default_value = "HEAD")]
    since: String,
}

/// Suites that need no server and take seconds.
const FAST: [&str; 5] = ["core", "library", "server", "command-line", "tooling"];

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (started, clock) = (Instant::now(), Clock::start());
    let workspace = Workspace::read(root)?;
    let changed = changed_files(root, &arguments.since)?;
    if changed.is_empty() {
        println!("nothing has changed since {}; name another commit with --since", arguments.since);
        return Ok(ExitCode::SUCCESS);
    }
    Cargo::new(FORMATTING).run(root)?;
    tidy::check(root)?;
    let packages = affected(&workspace, &changed);
    if packages.is_empty() {
        println!("no package has changed, so there is nothing to compile");
        return Ok(ExitCode::SUCCESS);
    }
    let names = packages.iter().cloned().collect::<Vec<_>>().join(", ");
    println!("changed, or built on what has changed: {names}");
    Cargo::new(LINTS).run(root)?;

    let suites = fast_suites(&workspace, &packages);
    if suites.is_empty() {
        println!("no fast suite tests these packages; run: cargo xtask test");
        return Ok(ExitCode::SUCCESS);
    }
    let selection = Selection::of(&suites, Length::Usual)?;
    let preparation = Preparation::start(&selection, &workspace);
    let report = run_suites(root, &selection, &workspace, preparation)?;
    report.finish(root, &workspace, &clock)?;
    println!(
        "Checked {} in {}; `cargo xtask test` runs the rest",
        suites.join(", "),
        readable(started.elapsed())
    );
    report.print_totals();
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Files that differ from that commit, from the root of the repository.
fn changed_files(root: &Path, since: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut files = git(root, &["diff", "--name-only", "--no-renames", since, "--"])?;
    files.extend(git(root, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(files)
}

fn git(root: &Path, arguments: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(text.lines().map(PathBuf::from).collect())
        }
        Ok(output) => Err(Failure::new(
            format!("git cannot compare: {}", String::from_utf8_lossy(&output.stderr).trim()),
            "name a commit that exists with --since",
        )),
        Err(error) => Err(Failure::new(
            format!("git could not be started: {error}"),
            "install git, or run everything with: cargo xtask test",
        )),
    }
}

/// The packages with a changed file, and those that depend on one of them directly; all of them if
/// the manifest or the lock file of the workspace has changed.
fn affected(workspace: &Workspace, changed: &[PathBuf]) -> BTreeSet<String> {
    let members = workspace.member_directories();
    let is_of_all =
        |file: &PathBuf| ["Cargo.toml", "Cargo.lock"].iter().any(|name| file == Path::new(name));
    if changed.iter().any(is_of_all) {
        return members.into_iter().map(|(name, _)| name).collect();
    }
    let owner = |file: &PathBuf| {
        let found = members.iter().find(|(_, directory)| file.starts_with(directory));
        found.map(|(name, _)| name.clone())
    };
    let own: BTreeSet<String> = changed.iter().filter_map(owner).collect();
    let mut all = own.clone();
    all.extend(own.iter().flat_map(|name| workspace.dependents(name)));
    all
}

fn fast_suites(workspace: &Workspace, packages: &BTreeSet<String>) -> Vec<String> {
    let targets = workspace.test_targets();
    let own: Vec<_> = targets.iter().filter(|target| packages.contains(&target.package)).collect();
    suites::all()
        .filter(|suite| FAST.contains(&suite.id) && own.iter().any(|target| (suite.claims)(target)))
        .map(|suite| suite.id.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    fn suites_for(file: &str) -> Vec<String> {
        let workspace = Workspace::read(&root().unwrap()).unwrap();
        fast_suites(&workspace, &affected(&workspace, &[file.into()]))
    }

    #[test]
    fn a_change_runs_the_fast_suites_of_its_package_and_of_its_dependents() {
        assert_eq!(suites_for("crates/onceward-core/src/record.rs"), ["core", "library", "server"]);
        assert_eq!(suites_for("crates/onceward-gateway/src/main.rs"), ["command-line"]);
        assert_eq!(suites_for("docs/start.md"), [""; 0]);
        assert_eq!(suites_for("Cargo.lock").len(), FAST.len());
    }

    #[test]
    fn every_fast_suite_exists_and_needs_no_server() {
        for id in FAST {
            assert!(suites::all().any(|suite| suite.id == id), "{id}");
        }
    }
}
