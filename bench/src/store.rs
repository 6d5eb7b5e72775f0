//! `store`: the plan of a run, from empty files to the report.

use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;

use crate::{
    Failure, lookups,
    machine::Machine,
    measure::{Others, wait_until_idle},
    options::{Arguments, Part, Plan},
    pairs, reopen,
    report::Report,
    subject::{Contest, Subject, remove_sqlite},
    sweep,
};

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = arguments.plan();
    let directory = directory(arguments.dir.as_deref())?;
    let machine = Machine::at(directory.path())?;
    let runtime = runtime()?;
    let mut report = Report::new(machine, arguments.date.clone(), &plan);
    let prepared = side_by_side(&runtime, directory.path(), &plan, &mut report)?;
    if plan.has(Part::Sweep) {
        let others = Others::watch();
        report.sweep = Some(sweep::run(&runtime, directory.path(), &plan)?);
        report.others.push(("sweep", others.share()));
    }
    if plan.has(Part::Reopen) {
        let records = plan.reopen_records;
        let path = match prepared {
            Some(path) => path,
            None => {
                let path = directory.path().join("reopen.sqlite");
                drop(Subject::sqlite(&runtime, &path, records)?);
                path
            }
        };
        // Not watched: the process that is killed would count as another.
        report.reopen = Some(reopen::run(&runtime, &path, records, &plan)?);
    }
    directory.close()?;
    report.print();
    Ok(())
}

/// The runtime that makes the work: as many threads as there are cores.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().build()?)
}

/// A new directory that is removed at the end.
pub(crate) fn directory(given: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let beside = match given {
        Some(given) => given.to_owned(),
        None => {
            let program = std::env::current_exe()?;
            program.parent().ok_or("the program is in no directory")?.to_owned()
        }
    };
    std::fs::create_dir_all(&beside)?;
    Ok(tempfile::Builder::new().prefix("onceward-bench-").tempdir_in(beside)?)
}

/// Runs the parts that need both stores filled; returns a file that the last part can use.
fn side_by_side(
    runtime: &Runtime,
    directory: &Path,
    plan: &Plan,
    report: &mut Report,
) -> Result<Option<PathBuf>, Failure> {
    if !plan.has(Part::Pairs) && !plan.has(Part::Lookups) {
        return Ok(None);
    }
    let mut contests = Vec::new();
    for &records in plan.records.iter().filter(|&&records| records > 0) {
        contests.push(Contest::new(runtime, directory, records)?);
    }
    // What was filled in reaches the disk now and not while something else is measured.
    rustix::fs::sync();
    wait_until_idle();
    if plan.has(Part::Pairs) {
        let others = Others::watch();
        report.pairs = pairs::run(runtime, directory, plan, &contests)?;
        report.others.push(("pairs", others.share()));
        report.grown = contests.iter().map(Contest::grown).collect();
    }
    if plan.has(Part::Lookups) {
        let others = Others::watch();
        report.lookups = Some(lookups::run(plan, &contests)?);
        report.others.push(("look-ups", others.share()));
    }
    let mut prepared = None;
    for contest in contests {
        let wanted = contest.records == plan.reopen_records && plan.has(Part::Reopen);
        let path = contest.close()?;
        match wanted {
            true => prepared = Some(path),
            false => remove_sqlite(&path)?,
        }
    }
    Ok(prepared)
}
