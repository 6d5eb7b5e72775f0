//! `onceward call` as a process, against servers that fail in known ways.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/command.rs"]
mod command;
mod mistakes;
mod outcomes;
mod resumed;
mod server;

use command::{Finished, run};

/// Runs it with these arguments.
pub(crate) fn call(arguments: &[&str]) -> Finished {
    run(&[&["call"], arguments].concat())
}
