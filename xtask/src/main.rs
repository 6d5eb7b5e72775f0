//! Tests, checks and benchmarks of this repository: `cargo xtask --help`.
#![allow(clippy::print_stdout, reason = "a command-line tool talks on standard output")]

mod bench;
mod cargo;
mod check;
mod ci;
mod compare;
mod dependencies;
mod failure;
mod mutants;
mod package;
mod purity;
mod results;
mod servers;
mod source;
mod suites;
mod surface;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Tests, checks and benchmarks of this repository.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    arg_required_else_help = true,
    after_help = "Examples:\n  cargo xtask check         what you changed, in two minutes\n  \
                  cargo xtask test          everything that a change must pass\n  \
                  cargo xtask test --long   the same with the long suites\n  \
                  cargo xtask ci            what the continuous integration runs, in its order\n  \
                  cargo xtask bench store   measure the stores\n  \
                  cargo xtask package       what is installed without Rust\n  \
                  cargo xtask compare       probe other implementations, and write docs/comparison.md"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Check(check::Arguments),
    Test(test::Arguments),
    Ci(ci::Arguments),
    Purity(purity::Arguments),
    Surface(surface::Arguments),
    Tidy(tidy::Arguments),
    Dependencies(dependencies::Arguments),
    Bench(bench::Arguments),
    Compare(compare::Arguments),
    Mutants(mutants::Arguments),
    Package(package::Arguments),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().task) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<ExitCode, Failure> {
    let root = workspace::root()?;
    match task {
        Task::Check(arguments) => check::run(&root, arguments),
        Task::Test(arguments) => test::run(&root, arguments),
        Task::Ci(arguments) => ci::run(&root, arguments),
        Task::Purity(arguments) => purity::run(&root, arguments).map(|()| ExitCode::SUCCESS),
        Task::Surface(arguments) => surface::run(&root, arguments).map(|()| ExitCode::SUCCESS),
        Task::Tidy(arguments) => tidy::run(&root, arguments).map(|()| ExitCode::SUCCESS),
        Task::Dependencies(arguments) => {
            dependencies::run(&root, arguments).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench(arguments) => bench::run(&root, arguments).map(|()| ExitCode::SUCCESS),
        Task::Compare(arguments) => compare::run(&root, arguments).map(|()| ExitCode::SUCCESS),
        Task::Mutants(arguments) => mutants::run(&root, arguments),
        Task::Package(arguments) => package::run(&root, arguments).map(|()| ExitCode::SUCCESS),
    }
}
