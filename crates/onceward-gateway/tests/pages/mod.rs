//! Pages of examples: their commands, run exactly as they are printed, give the answers that they show.
//!
//! How a page is read, and what in it may differ, is said in `page.rs`. Only ports are others than those of the page,
//! because tests run side by side.
#![allow(dead_code, unused_imports, reason = "each program of tests uses its part")]

mod page;
mod shell;

use std::{
    env, fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use testbed::{TEST_TIMEOUT, free_address};

pub(crate) use page::{Step, steps};
pub(crate) use shell::Shell;

/// Whether there is a Python whose SQLite has what the pages use; says loudly what is not run without it.
pub(crate) fn has_python(what: &str) -> bool {
    const OLDEST_SQLITE: [u32; 2] = [3, 38];
    let version = Command::new("python3")
        .args(["-c", "import sqlite3; print(*sqlite3.sqlite_version_info[:2])"])
        .output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let numbers = version.unwrap_or_default();
    let numbers = numbers.split_whitespace().filter_map(|number| number.parse().ok());
    let is_there = numbers.collect::<Vec<u32>>().as_slice() >= OLDEST_SQLITE.as_slice();
    if !is_there {
        eprintln!("SKIPPED: {what}: there is no python3 with SQLite 3.38 or newer");
    }
    is_there
}

/// A directory for the commands of a page, and what they need.
pub(crate) struct Example {
    name: &'static str,
    directory: TempDir,
    /// Ports of the page, and those that they are here.
    ports: Vec<(&'static str, SocketAddr)>,
    /// Searched for programs before all others.
    programs: Vec<PathBuf>,
    variables: Vec<(&'static str, String)>,
}

impl Example {
    /// A copy of the folder below `examples`, with other ports than these.
    pub(crate) fn new(name: &'static str, ports: &[&'static str]) -> Self {
        let example = Self::without_files(name, ports);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        for entry in fs::read_dir(source).unwrap() {
            let file = entry.unwrap().path();
            // What a person who tried it has left there is not copied.
            let is_kept = ["md", "py", "txt", "sql", "toml"]
                .contains(&file.extension().unwrap_or_default().to_str().unwrap());
            if is_kept {
                let text = example.with_ports(&fs::read_to_string(&file).unwrap());
                fs::write(example.file(file.file_name().unwrap()), text).unwrap();
            }
        }
        example
    }

    /// For a page that needs no files, but those that it writes.
    pub(crate) fn without_files(name: &'static str, ports: &[&'static str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ports = ports.iter().map(|port| (*port, free_address().unwrap())).collect();
        let programs = directory.path().join(".programs");
        fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_onceward"), programs.join("onceward")).unwrap();
        Self { name, directory, ports, programs: vec![programs], variables: Vec::new() }
    }

    pub(crate) fn with_programs(mut self, directory: PathBuf) -> Self {
        self.programs.push(directory);
        self
    }

    pub(crate) fn with_variable(mut self, name: &'static str, value: String) -> Self {
        self.variables.push((name, value));
        self
    }

    /// What a port of the page is here.
    pub(crate) fn address(&self, port: &str) -> SocketAddr {
        self.ports.iter().find(|(named, _)| *named == port).expect("the page names it").1
    }

    /// A file of the copy.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program that finds what the commands of the page find.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = self.programs.iter().cloned().chain(env::split_paths(&path));
        let path = env::join_paths(path).unwrap();
        // The program itself is looked for there, too.
        let mut command = Command::new("/usr/bin/env");
        command.arg(program).env("PATH", path).env("USER", "ada");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        command.current_dir(self.directory.path());
        command
    }

    /// Runs its `README.md`, but for commands that start like one of these, which are about the machine of the
    /// reader; gives what all of them said.
    pub(crate) fn walk_readme(&self, without: &[&str]) -> String {
        let page = fs::read_to_string(self.file("README.md")).unwrap();
        self.walk(&page, without)
    }

    /// The same for any page.
    pub(crate) fn walk(&self, page: &str, without: &[&str]) -> String {
        let shell = Shell::start(&mut self.command("bash"), self.directory.path());
        let mut steps = steps(&self.with_ports(page));
        assert!(!steps.is_empty(), "{}: the page shows no command", self.name);
        steps.retain(|step| !without.iter().any(|start| step.command.starts_with(start)));
        for step in &steps {
            self.take(step, &shell);
        }
        shell.said()
    }

    /// One command and its answer. What only reads is asked again until it is so, as a person would.
    fn take(&self, step: &Step, shell: &Shell) {
        let reads = ["ledger.py", "messages sinks", "messages list", "messages show"];
        let is_read = reads.iter().any(|name| step.command.contains(name));
        let mut from = shell.said().len();
        shell.run(&step.command);
        if step.is_beside() {
            let named = |port: &SocketAddr| step.command.contains(&port.port().to_string());
            let ports = self.ports.iter().map(|(_, port)| *port);
            ports.filter(named).for_each(|port| self.wait_for_listener(port, shell));
        }
        let end = Instant::now() + TEST_TIMEOUT;
        while !step.is_answered_by(&shell.said()[from..]) {
            assert!(
                Instant::now() < end,
                "{}: $ {}\n{}\n--- instead of\n{}\n--- and to standard error:\n{}",
                self.name,
                step.command,
                &shell.said()[from..],
                step.answer,
                shell.complaints()
            );
            thread::sleep(Duration::from_millis(100));
            if is_read {
                from = shell.said().len();
                shell.run(&step.command);
            }
        }
    }

    fn wait_for_listener(&self, address: SocketAddr, shell: &Shell) {
        let end = Instant::now() + TEST_TIMEOUT;
        while TcpStream::connect(address).is_err() {
            let complaints = shell.complaints();
            let (name, late) = (self.name, Instant::now() >= end);
            assert!(!late, "{name}: nothing listens on {address}: {complaints}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn with_ports(&self, text: &str) -> String {
        // In two steps, because a port of this machine may hold the digits of one of the page.
        let mark = |place: usize| format!("<port {place}>");
        let mut text = text.to_owned();
        for (place, (port, _)) in self.ports.iter().enumerate() {
            text = text.replace(port, &mark(place));
        }
        for (place, (_, here)) in self.ports.iter().enumerate() {
            text = text.replace(&mark(place), &here.port().to_string());
        }
        text
    }
}
