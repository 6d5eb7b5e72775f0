//! The worker as its parent sees it.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use super::Bench;

/// Nothing takes so long that is not stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that is told what to do; killed when this is dropped.
pub(crate) struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
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
        let mut process = Command::new(&before[0])
            .args(&before[1..])
            .arg(env!("CARGO_BIN_EXE_worker"))
            .arg("--database")
            .arg(bench.database())
            .arg("--ledger")
            .arg(bench.ledger())
            .args(["--effect", bench.kind.as_str()])
            .args(["--reserve-bytes", &bench.reserve_bytes.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { input: process.stdin.take(), process, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// It may be dead already; then there is nobody to tell.
    pub(crate) fn tell(&mut self, command: &str) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(format!("{command}\n").as_bytes());
        }
    }

    /// The next line; `None`: it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the worker says nothing for {PATIENCE:?}"),
        }
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear().unwrap_or_else(|| panic!("the worker died of `{command}`"))
    }

    /// Waits for its end, but not for long; `true`: it has ended.
    pub(crate) fn ends_within(&mut self, patience: Duration) -> bool {
        self.lines.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }

    /// Lets it close its store, and takes what it still says.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        self.input = None;
        std::iter::from_fn(|| self.hear()).collect()
    }

    /// Lets it close its store.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.finish();
        self.status()
    }

    /// How it ended, after `finish`.
    pub(crate) fn status(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// On Unix this is SIGKILL: nothing is flushed, settled or closed.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
