//! Side-by-side benchmarks: `cargo xtask bench --help`.
//!
//! `store.rs` is the plan of a run; `load.rs` makes the work; `measure.rs` reads what it cost;
//! `append_log.rs` is the bound that the stores are compared with; `report.rs` writes the result.

mod append_log;
mod load;
mod lookups;
mod machine;
mod measure;
mod options;
mod pairs;
mod progress;
mod reopen;
mod report;
mod store;
mod subject;
mod sweep;
mod verdict;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};

/// What went wrong, in words; a benchmark has no one to handle it but its reader.
type Failure = Box<dyn Error + Send + Sync>;

/// Side-by-side benchmarks of Onceward.
#[derive(Parser)]
#[command(name = "onceward-bench", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    Store(options::Arguments),
    #[command(hide = true)]
    StoreVictim(reopen::VictimArguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().benchmark {
        Benchmark::Store(arguments) => store::run(&arguments),
        Benchmark::StoreVictim(arguments) => reopen::be_the_victim(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nthe benchmark broke off: {failure}");
            ExitCode::FAILURE
        }
    }
}
