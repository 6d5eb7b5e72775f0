//! One shell with the jobs that it has started, as a person has it in a terminal.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use testbed::Process;

/// Marks the end of a command. The line before it may have no end.
const END: &str = "~~ command ended ~~";

/// Bash with job control; dropping it kills it, and all that it has started.
pub(crate) struct Shell {
    process: Process,
    command: PathBuf,
}

impl Shell {
    pub(crate) fn start(command: &mut Command, directory: &Path) -> Self {
        command.args(["--norc", "--noprofile"]).current_dir(directory);
        let process = Process::start(command).unwrap();
        process.tell("set -m");
        Self { process, command: directory.join(".command") }
    }

    /// Runs it as it is printed, until it has ended or runs beside the others.
    pub(crate) fn run(&self, command: &str) {
        fs::write(&self.command, command).unwrap();
        // What it starts must not read the commands that come later.
        self.process.tell(&format!("eval \"$(cat .command)\" < /dev/null; printf '\\n{END}\\n'"));
        self.process.stdout.wait_for(END).unwrap();
    }

    /// What all commands have written so far; the lines of answers have the ends of a terminal's.
    pub(crate) fn said(&self) -> String {
        self.process.stdout.text().replace(&format!("\n{END}\n"), "").replace("\r\n", "\n")
    }

    /// What they have complained of so far.
    pub(crate) fn complaints(&self) -> String {
        self.process.stderr.text()
    }
}
