//! A shop that enqueues, a relay or a consumer with a ledger, as its arguments say.

use std::process::ExitCode;

use clap::Parser as _;
use onceward_crash::messages::{self, Arguments};

fn main() -> ExitCode {
    match messages::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
