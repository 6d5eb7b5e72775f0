//! The `onceward` command, run to its end.
#![allow(dead_code, reason = "each program of tests uses its part")]

use std::{fmt, process::Command};

use serde_json::Value;

/// `onceward` with these arguments; what else it takes is for the test to say.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.args(arguments);
    command
}

/// Runs it with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Finished {
    Finished::of(&mut command(arguments))
}

/// What it ended with.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Runs this command; a stream that it has set goes there, the others are read.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {output:?}"));
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.code == 0
    }

    /// What it printed for machines.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self}"))
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(formatter, "exit {code}\n{stderr}\n{stdout}")
    }
}
