//! The service that is crashed: a payments API behind the real layer, on SQLite.

use std::process::ExitCode;

use clap::Parser as _;
use onceward_crash::service::{self, Arguments};

fn main() -> ExitCode {
    match service::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
