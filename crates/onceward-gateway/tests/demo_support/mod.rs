//! Runs the demo with a bound on everything, and does what curl would do.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// More than anything here takes.
const BOUND: Duration = Duration::from_secs(60);

/// A running demo with a temporary directory of its own.
pub(crate) struct Demo {
    child: Child,
    started: Instant,
    temporary: TempDir,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    read: String,
    heard: String,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    /// What is left in its temporary directory.
    pub(crate) left_behind: usize,
    /// Its gateways that are still there.
    pub(crate) still_running: Vec<String>,
}

impl Demo {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_into(arguments, Stdio::piped())
    }

    pub(crate) fn start_into(arguments: &[&str], stdout: Stdio) -> Self {
        Self::start_with(arguments, stdout, &[])
    }

    pub(crate) fn start_with(
        arguments: &[&str],
        stdout: Stdio,
        variables: &[(&str, &str)],
    ) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", temporary.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().map_or_else(|| channel().1, lines_of);
        let stderr = lines_of(child.stderr.take().unwrap());
        let (started, read, heard) = (Instant::now(), String::new(), String::new());
        Self { child, started, temporary, stdout, stderr, read, heard }
    }

    /// What it prints up to the line that starts so, and so many lines more.
    pub(crate) fn read_until(&mut self, start: &str, more: usize) -> String {
        let mut left = None;
        while left != Some(0) {
            let line = self.stdout.recv_timeout(BOUND).unwrap_or_else(|error| {
                panic!("{error} before {start:?}, after {:?}", self.read);
            });
            left = match left {
                Some(lines) => Some(lines - 1),
                None => line.starts_with(start).then_some(more),
            };
            self.read += &line;
        }
        self.read.clone()
    }

    /// Waits until it says this on standard error, and gives the line.
    pub(crate) fn listen(&mut self, text: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(BOUND).unwrap_or_else(|error| {
                panic!("{error} before {text:?}, after {:?}", self.heard);
            });
            self.heard += &line;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Its gateways: the number of each process and how it was called.
    pub(crate) fn gateways(&self) -> Vec<String> {
        gateways_in(self.temporary.path())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// What Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    pub(crate) fn end(mut self) -> Ended {
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if self.started.elapsed() > BOUND {
                self.child.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(10));
        };
        let took = self.started.elapsed();
        let stdout = self.read.clone() + &self.stdout.iter().collect::<String>();
        let stderr = self.heard.clone() + &self.stderr.iter().collect::<String>();
        let left_behind = self.temporary.path().read_dir().unwrap().count();
        let still_running = if code.is_some() { self.gateways() } else { self.gateways_later() };
        Ended { code, stdout, stderr, took, left_behind, still_running }
    }

    /// Those that are still there when they had time to notice that the demo was killed.
    fn gateways_later(&self) -> Vec<String> {
        let noticed = Instant::now() + Duration::from_secs(10);
        while Instant::now() < noticed && !self.gateways().is_empty() {
            thread::sleep(Duration::from_millis(50));
        }
        self.gateways()
    }
}

/// A test that fails leaves no server behind.
impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line + "\n").is_err() {
                return;
            }
        }
    });
    receiver
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

/// What the server says to it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
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
        connection.set_read_timeout(Some(BOUND)).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        connection.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Reply { status, headers, body: body.to_owned() }
    }
}
