//! Runs one test program and reads its events: which test began, how it ended, how long it took.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::results::Counts;

/// A program that runs longer hangs: it is killed, and the tests that had not ended are named.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// What one test program came to.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    pub(super) elapsed: Duration,
    pub(super) events: Events,
    /// What it wrote beside its events; shown when it fails.
    pub(super) said: String,
}

#[derive(Debug, PartialEq)]
pub(super) struct TestRun {
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) passed: bool,
}

/// The events of libtest, and what they add up to.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) counts: Counts,
    pub(super) tests: Vec<TestRun>,
    /// The output of each test that failed.
    pub(super) failures: Vec<(String, String)>,
    /// Whether the program got to its end.
    pub(super) is_complete: bool,
    running: BTreeSet<String>,
    /// Lines that are no events.
    other: String,
}

impl Ran {
    /// Runs it to its end; `long` programs may take as long as they like.
    pub(super) fn of(command: &mut Command, long: bool) -> io::Result<Self> {
        let mut errors = tempfile::tempfile()?;
        let started = Instant::now();
        // Events are not stable in libtest; a program that stops telling them fails the run.
        let mut child = command
            .args(["-Z", "unstable-options", "--format", "json", "--report-time"])
            .env("RUSTC_BOOTSTRAP", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let (ended, watch) = channel::<()>();
        let pid = Pid::from_child(&child);
        let watcher = thread::spawn(move || {
            if !long && watch.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                // It may have ended at this very moment.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let mut events = Events::default();
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line)? > 0 {
                events.read(&String::from_utf8_lossy(&line));
                line.clear();
            }
        }
        let status = child.wait()?;
        let elapsed = started.elapsed();
        drop(ended);
        // The thread only waits for the sender above.
        let _ = watcher.join();
        let mut bytes = Vec::new();
        errors.rewind()?;
        errors.read_to_end(&mut bytes)?;
        let said = format!("{}{}", events.other, String::from_utf8_lossy(&bytes));
        Ok(Self { status, elapsed, events, said })
    }

    /// Tests that had begun and not ended when the program did.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.events.running.iter().map(String::as_str)
    }
}

impl Events {
    fn read(&mut self, line: &str) {
        // A process that shares the output may have written the start of the line.
        let at = line.find("{ \"type\": ").unwrap_or(line.len());
        let (other, event) = line.split_at(at);
        match serde_json::from_str::<Value>(event) {
            Ok(event) => {
                self.other += other;
                self.take(&event);
            }
            Err(_) => self.other += line,
        }
    }

    fn take(&mut self, event: &Value) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| event[field].as_u64().unwrap_or_default();
        match (event["type"].as_str(), event["event"].as_str()) {
            (Some("test"), Some("started")) => {
                self.running.insert(text("name"));
            }
            (Some("test"), Some(end @ ("ok" | "failed"))) => {
                let (name, passed) = (text("name"), end == "ok");
                self.running.remove(&name);
                if !passed {
                    self.failures.push((name.clone(), text("stdout")));
                }
                let seconds = event["exec_time"].as_f64().unwrap_or_default();
                self.tests.push(TestRun { name, seconds, passed });
            }
            (Some("test"), Some("ignored")) => {
                self.running.remove(&text("name"));
            }
            (Some("suite"), Some("ok" | "failed")) => {
                let (passed, failed) = (number("passed"), number("failed"));
                self.counts = Counts { passed, failed, ignored: number("ignored") };
                self.is_complete = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Events {
        let mut events = Events::default();
        lines.iter().for_each(|line| events.read(line));
        events
    }

    #[test]
    fn tests_are_read_with_their_times() {
        let events = read(&[
            r#"{ "type": "suite", "event": "started", "test_count": 3 }"#,
            r#"{ "type": "test", "event": "started", "name": "a::b" }"#,
            r#"{ "type": "test", "event": "started", "name": "c" }"#,
            r#"{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 0.25 }"#,
            r#"{ "type": "test", "name": "c", "event": "failed", "exec_time": 1.5, "stdout": "why" }"#,
            r#"{ "type": "test", "name": "d", "event": "ignored" }"#,
            r#"{ "type": "suite", "event": "failed", "passed": 1, "failed": 1, "ignored": 1, "exec_time": 2.0 }"#,
        ]);
        assert!(events.is_complete && events.running.is_empty());
        assert_eq!(events.counts, Counts { passed: 1, failed: 1, ignored: 1 });
        assert_eq!(events.failures, [("c".to_owned(), "why".to_owned())]);
        let first = TestRun { name: "a::b".into(), seconds: 0.25, passed: true };
        assert_eq!(events.tests[0], first);
    }

    #[test]
    fn a_program_that_dies_has_no_end_and_names_what_ran() {
        let events = read(&[
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            "thread panicked\n",
            r#"child says { "type": "test", "event": "started", "name": "b" }"#,
        ]);
        assert!(!events.is_complete);
        assert_eq!(events.running.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(events.other, "thread panicked\nchild says ");
    }
}
