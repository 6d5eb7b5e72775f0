//! The worker as its parent sees it.

use std::{
    ffi::OsString,
    process::{Command, ExitStatus},
    time::Duration,
};

use testbed::Process;

use super::Bench;

/// A process that is told what to do; killed when this is dropped.
pub(crate) struct Worker {
    process: Process,
}

impl Worker {
    /// Starts one and waits until its store is open.
    pub(crate) fn start(bench: &Bench) -> Self {
        Self::start_with(bench, &[])
    }

    pub(crate) fn start_with(bench: &Bench, more: &[&str]) -> Self {
        let mut worker = Self::spawn(&["env".into()], bench, more);
        assert_eq!(worker.hear().as_deref(), Some("ready"));
        worker
    }

    /// Starts one behind a command of its own, such as strace, and waits for nothing.
    pub(crate) fn spawn(before: &[OsString], bench: &Bench, more: &[&str]) -> Self {
        let mut command = Command::new(&before[0]);
        command
            .args(&before[1..])
            .arg(env!("CARGO_BIN_EXE_worker"))
            .arg("--database")
            .arg(bench.database())
            .arg("--ledger")
            .arg(bench.ledger())
            .args(["--effect", bench.kind.as_str()])
            .args(["--reserve-bytes", &bench.reserve_bytes.to_string()])
            .args(more);
        Self { process: Process::start(&mut command).unwrap() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// It may be dead already; then there is nobody to tell.
    pub(crate) fn tell(&mut self, command: &str) {
        self.process.tell(command);
    }

    /// The next line; `None`: it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        self.process.stdout.next_line().unwrap()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear().unwrap_or_else(|| panic!("the worker died of `{command}`"))
    }

    /// Waits for its end, but not for long; `true`: it has ended.
    pub(crate) fn ends_within(&mut self, patience: Duration) -> bool {
        self.process.wait_for_end_within(patience).is_some()
    }

    /// Lets it close its store, and takes what it still says.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        self.process.close_stdin();
        std::iter::from_fn(|| self.hear()).collect()
    }

    /// Lets it close its store.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.finish();
        self.status()
    }

    /// How it ended, after `finish`.
    pub(crate) fn status(&mut self) -> ExitStatus {
        self.process.wait_for_end().unwrap()
    }

    /// On Unix this is SIGKILL: nothing is flushed, settled or closed.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
    }
}
