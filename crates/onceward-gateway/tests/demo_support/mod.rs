//! Runs the demo with a bound on everything, and does what curl would do.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use testbed::{Process, Signal, TEST_TIMEOUT};

use crate::{
    command::{Finished, command},
    reply::Reply,
};

/// A running demo with a temporary directory of its own.
pub(crate) struct Demo {
    process: Process,
    temporary: TempDir,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What is left in its temporary directory.
    pub(crate) left_behind: usize,
    /// Its gateways that are still there.
    pub(crate) still_running: Vec<String>,
}

impl Demo {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = demo(arguments, &temporary);
        let process = Process::start(command.envs(variables.iter().copied())).unwrap();
        Self { process, temporary }
    }

    /// Runs it to its end, with its output going elsewhere.
    pub(crate) fn run_into(arguments: &[&str], stdout: Stdio) -> Ended {
        let temporary = tempfile::tempdir().unwrap();
        let finished = Finished::of(demo(arguments, &temporary).stdout(stdout));
        Ended::of(Some(finished.code), finished.stdout, finished.stderr, &temporary)
    }

    /// What it prints up to the line that starts so, and so many lines more.
    pub(crate) fn read_until(&self, start: &str, more: usize) -> String {
        while !self.process.stdout.wait_for(start).unwrap().starts_with(start) {}
        for _ in 0..more {
            self.process.stdout.wait_for("").unwrap();
        }
        self.process.stdout.heard()
    }

    /// Waits until it says this on standard error, and gives the line.
    pub(crate) fn listen(&self, text: &str) -> String {
        self.process.stderr.wait_for(text).unwrap()
    }

    /// Its gateways: the number of each process and how it was called.
    pub(crate) fn gateways(&self) -> Vec<String> {
        gateways_in(self.temporary.path())
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        self.process.kill().unwrap();
    }

    /// What Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.process.signal(Signal::INT);
    }

    pub(crate) fn end(self) -> Ended {
        let code = self.process.wait_for_end().unwrap().code();
        let (stdout, stderr) = (self.process.stdout.text(), self.process.stderr.text());
        Ended::of(code, stdout, stderr, &self.temporary)
    }
}

impl Ended {
    fn of(code: Option<i32>, stdout: String, stderr: String, temporary: &TempDir) -> Self {
        let left_behind = temporary.path().read_dir().unwrap().count();
        let mut still_running = gateways_in(temporary.path());
        // A demo that was killed ends no gateway; they notice it by themselves, a moment later.
        let noticed = Instant::now() + TEST_TIMEOUT;
        while code.is_none() && !still_running.is_empty() && Instant::now() < noticed {
            thread::sleep(Duration::from_millis(50));
            still_running = gateways_in(temporary.path());
        }
        Self { code, stdout, stderr, left_behind, still_running }
    }
}

fn demo(arguments: &[&str], temporary: &TempDir) -> Command {
    let mut command = command(&["demo"]);
    command.args(arguments).env("TMPDIR", temporary.path());
    command
}

/// A gateway of the demo has the name of its configuration, in that directory, on its command line.
fn gateways_in(directory: &Path) -> Vec<String> {
    let list = Command::new("ps").args(["-A", "-ww", "-o", "pid=,args="]).output().unwrap();
    assert!(list.status.success(), "{list:?}");
    let name = directory.to_str().unwrap();
    let lines = String::from_utf8_lossy(&list.stdout).into_owned();
    let lines = lines.lines().map(str::trim).filter(|line| line.contains(name));
    lines.map(str::to_owned).collect()
}

/// The number of the one line that is exactly this name, spaces and a number.
pub(crate) fn number(text: &str, name: &str) -> u64 {
    let words =
        |line: &str| line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let lines = text.lines().filter(|line| line.starts_with(name)).map(words);
    let numbers: Vec<u64> = lines
        .filter(|words: &Vec<String>| words.len() == 2 && words[0] == name)
        .map(|words| words[1].parse().unwrap())
        .collect();
    assert_eq!(numbers.len(), 1, "one line {name:?} in {text}");
    numbers[0]
}

/// A curl command.
#[derive(Debug)]
pub(crate) struct Curl {
    url: String,
    pub(crate) headers: HashMap<String, String>,
    data: Option<String>,
}

impl Curl {
    /// The commands in a text; a line may go on after a backslash.
    pub(crate) fn all(text: &str) -> Vec<Self> {
        let joined = text.replace("\\\n", " ");
        joined.lines().filter_map(|line| line.strip_prefix("curl ")).map(Self::parse).collect()
    }

    /// Every second part between quotes is one word; the others are split at blanks.
    fn parse(arguments: &str) -> Self {
        let parts = arguments.split('\'').enumerate();
        let mut words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        let mut curl = Self { url: String::new(), headers: HashMap::new(), data: None };
        while let Some(word) = words.next() {
            match word {
                "-i" => {}
                "-w" => assert_eq!(words.next(), Some("\\n")),
                "-d" => curl.data = words.next().map(str::to_owned),
                "-H" => {
                    let (name, value) = words.next().unwrap().split_once(": ").unwrap();
                    curl.headers.insert(name.to_owned(), value.to_owned());
                }
                url => curl.url = url.strip_prefix("http://").unwrap().to_owned(),
            }
        }
        curl
    }

    pub(crate) fn server(&self) -> &str {
        self.url.split_once('/').unwrap().0
    }

    pub(crate) fn send(&self) -> Reply {
        let (server, path) = self.url.split_once('/').unwrap();
        let method = if self.data.is_some() { "POST" } else { "GET" };
        let data = self.data.as_deref().unwrap_or_default();
        let mut request =
            format!("{method} /{path} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n");
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("content-length: {}\r\n\r\n{data}", data.len());
        let mut connection = TcpStream::connect(server).unwrap();
        connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).unwrap();
        Reply::parse(&bytes).expect("the answer is cut").0
    }
}
