//! `onceward call` as a process, against servers that fail in known ways.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod mistakes;
mod outcomes;
mod resumed;
mod server;

use std::{
    fmt,
    process::{Command, Output},
};

use serde_json::Value;

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.arg("call").args(arguments);
    command
}

/// Runs it with these arguments.
pub(crate) fn call(arguments: &[&str]) -> Called {
    Called::of(command(arguments).output().unwrap())
}

/// What a call ended with.
pub(crate) struct Called {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Called {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self}"))
    }
}

impl fmt::Display for Called {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(formatter, "exit {code}\n{stderr}\n{stdout}")
    }
}
