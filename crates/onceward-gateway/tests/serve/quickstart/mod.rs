//! The quick starts of `examples/quickstart`: the commands of each page, run exactly as they are printed, give the
//! answers that it shows. Only the ports 3000 and 8080 are others, because tests run side by side.
//!
//! How a page is read, and what in it may differ, is said in `pages/page.rs`. A command that ends in `&` and is no `curl` is
//! a server: the test waits until it listens. What a page shows of a `curl` that only reads may be true a moment
//! later, as with a request that runs in the background: it is asked again, as a person would.

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

use crate::{
    gateway_support::{Finished, TEST_TIMEOUT, command, free_address},
    installed,
    pages::{Shell, Step, steps},
};

/// How long a person waits at most for the first replay who has `onceward` and the packages of the page.
const PROMISED: Duration = Duration::from_secs(120);

/// A copy of one folder, and what its commands need.
struct Start {
    name: &'static str,
    directory: TempDir,
    /// Searched for programs before all others.
    programs: Vec<PathBuf>,
    variables: Vec<(&'static str, PathBuf)>,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart").join(name)
}

fn text(name: &str, file: &str) -> String {
    fs::read_to_string(source(name).join(file)).unwrap()
}

/// Says loudly that a page is not run, and why.
fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED: the quick start {name}: {reason}; `cargo xtask test` installs it");
}

impl Start {
    fn new(name: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(source(name)).unwrap() {
            let file = entry.unwrap().path();
            // What a person who tried it has left there is not copied.
            let is_kept = ["md", "py", "txt", "mjs", "json", "go", "mod", "sum"]
                .contains(&file.extension().unwrap_or_default().to_str().unwrap());
            if is_kept {
                fs::copy(&file, directory.path().join(file.file_name().unwrap())).unwrap();
            }
        }
        let programs = directory.path().join(".programs");
        fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_onceward"), programs.join("onceward")).unwrap();
        Self { name, directory, programs: vec![programs], variables: Vec::new() }
    }

    /// With the packages of Python that its page installs: `pip` finds them there, and nowhere else.
    fn python(name: &'static str) -> Option<Self> {
        let stamp = installed::tools().join("python/packages.txt");
        let known = fs::read_to_string(stamp).unwrap_or_default();
        let is_there = |line: &str| known.split(' ').any(|word| word == line);
        if !text(name, "requirements.txt").lines().all(is_there) {
            skip(name, "its packages of Python are not here");
            return None;
        }
        let mut start = Self::new(name);
        start.programs.push(installed::tools().join("python/bin"));
        start.variables.push(("PIP_NO_INDEX", "1".into()));
        Some(start)
    }

    /// With the packages of Node that its page installs.
    fn node(name: &'static str) -> Option<Self> {
        let place = installed::tools().join("quickstart");
        let known = fs::read_to_string(place.join("installed.json")).unwrap_or_default();
        if known != text(name, "package-lock.json") {
            skip(name, "its packages of Node are not here");
            return None;
        }
        let mut start = Self::new(name);
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(place.join("node_modules")).arg(start.directory.path());
        assert!(copy.status().unwrap().success());
        start.variables.push(("npm_config_offline", "true".into()));
        Some(start)
    }

    /// With the modules of Go that it names, which were compiled there before.
    fn go(name: &'static str) -> Option<Self> {
        let place = installed::tools().join("go");
        let known = fs::read_to_string(place.join("quickstart.txt")).unwrap_or_default();
        if known != text(name, "go.sum") {
            skip(name, "its modules of Go are not here");
            return None;
        }
        let mut start = Self::new(name);
        start.variables.extend([
            ("GOPROXY", "off".into()),
            ("GOPATH", place.join("path")),
            ("GOCACHE", place.join("cache")),
        ]);
        Some(start)
    }

    /// Runs the whole page.
    fn run(&self) {
        let ports = Ports { service: free_address().unwrap(), gateway: free_address().unwrap() };
        let path = env::var_os("PATH").unwrap_or_default();
        let path = self.programs.iter().cloned().chain(env::split_paths(&path));
        let mut command = Command::new("bash");
        command.env("PATH", env::join_paths(path).unwrap()).env("USER", "ada");
        command.env("ONCEWARD_LISTEN", ports.gateway.to_string());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        let shell = Shell::start(&mut command, self.directory.path());
        let (begun, mut first_replay) = (Instant::now(), None);
        for step in steps(&text(self.name, "README.md")) {
            let step = Step {
                command: ports.put_into(&step.command),
                answer: ports.put_into(&step.answer),
            };
            self.take(&step, &shell, &ports);
            if first_replay.is_none() && step.answer.contains("idempotent-replayed: true") {
                first_replay = Some(begun.elapsed());
            }
        }
        let first_replay = first_replay.expect("the page shows a replay");
        eprintln!(
            "quick start {}: {first_replay:.1?} from its first command to its first replay; promised are \
             {PROMISED:?} without a Rust build, and 10 minutes with one",
            self.name
        );
        assert!(first_replay < PROMISED, "{}: {first_replay:?}", self.name);
    }

    fn take(&self, step: &Step, shell: &Shell, ports: &Ports) {
        let is_curl = step.command.starts_with("curl ");
        let (is_beside, is_read) =
            (step.command.ends_with('&'), is_curl && !step.command.contains(" -d "));
        let before = shell.said().len();
        shell.run(&step.command);
        if is_beside && !is_curl {
            let is_gateway = step.command.starts_with("onceward ");
            self.wait_for_listener(if is_gateway { ports.gateway } else { ports.service }, shell);
        }
        let (end, mut from) = (Instant::now() + TEST_TIMEOUT, before);
        while !step.is_answered_by(&shell.said()[from..]) {
            let (said, shown) = (&shell.said()[from..], &step.answer);
            let complaints = shell.complaints();
            assert!(
                Instant::now() < end,
                "{}: $ {}\n{said}\n--- instead of\n{shown}\n--- and to standard error:\n{complaints}",
                self.name,
                step.command
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
            let logs = ["service.log", "onceward.log"]
                .map(|log| fs::read_to_string(self.directory.path().join(log)).unwrap_or_default());
            assert!(
                Instant::now() < end,
                "{}: nothing listens on {address}: {}\n{logs:?}",
                self.name,
                shell.complaints()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Those that the page calls 3000 and 8080.
struct Ports {
    service: SocketAddr,
    gateway: SocketAddr,
}

impl Ports {
    fn put_into(&self, text: &str) -> String {
        let (service, gateway) = (self.service.port().to_string(), self.gateway.port().to_string());
        text.replace("3000", &service).replace("8080", &gateway)
    }
}

#[test]
fn fastapi() {
    Start::python("fastapi").iter().for_each(Start::run);
}

#[test]
fn django() {
    Start::python("django").iter().for_each(Start::run);
}

#[test]
fn express() {
    Start::node("express").iter().for_each(Start::run);
}

#[test]
fn go() {
    Start::go("go").iter().for_each(Start::run);
}

#[test]
fn the_configurations_of_the_page_are_right() {
    let page = fs::read_to_string(source("../../docs/quickstart.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let files: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("onceward.toml"), file).unwrap();
        let checked = Finished::of(command(&["check"]).current_dir(directory.path()));
        assert!(checked.is_success(), "{file}\n{checked}");
    }
}

/// The gateway of the front pages, that of the repository and that of the packages, is the one of these pages, and so is
/// its first request.
#[test]
fn the_front_page_shows_the_same_commands() {
    for page in ["../../README.md", "../../crates/onceward-gateway/README.md"] {
        let front = fs::read_to_string(source(page)).unwrap();
        let front = |start: &str| {
            let line = |line: &&str| line.starts_with(start) && !line.contains(":3000/");
            front.lines().find(line).expect("a command of the gateway").to_owned()
        };
        let (serve, curl) = (front("$ onceward serve "), front("$ curl "));
        for name in ["fastapi", "django", "express", "go"] {
            let steps = steps(&text(name, "README.md"));
            let has = |line: &str| {
                let command = line.trim_start_matches("$ ");
                steps.iter().any(|step| step.command.split(" 2> ").next() == Some(command))
            };
            assert!(has(&serve), "{page}, {name}: {serve}");
            assert!(has(&curl), "{page}, {name}: {curl}");
        }
    }
}
