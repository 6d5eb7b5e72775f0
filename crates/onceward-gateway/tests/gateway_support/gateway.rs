//! The gateway as a process.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tempfile::TempDir;
use testbed::{Process, Signal};

use super::{Call, Link, Reply, Upstream, Version, command};

/// A running gateway; it is killed when this is dropped.
pub(crate) struct Gateway {
    process: Process,
    pub(crate) address: SocketAddr,
    /// Where operators ask, if there is such a listener.
    pub(crate) admin: Option<SocketAddr>,
    /// Where its configuration and its store are.
    pub(crate) directory: Arc<TempDir>,
    file: String,
}

/// What a gateway is started with; it may be started again, also beside itself.
pub(crate) struct Plan {
    /// The whole configuration.
    pub(crate) text: String,
    /// Shared by those that shall have one store.
    pub(crate) directory: Arc<TempDir>,
    /// Of the configuration, in the directory.
    pub(crate) file: String,
    pub(crate) environment: Vec<(String, String)>,
}

impl Plan {
    /// In front of this upstream, with this text below `listen`, `upstream` and `store`: other options
    /// at its start, then tables and routes.
    pub(crate) fn new(upstream: &str, text: &str) -> Self {
        let top = "listen = \"127.0.0.1:0\"\nstore = \"sqlite://onceward.db\"\n";
        let text = format!("{top}upstream = \"{upstream}\"\n{text}");
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self { text, directory, file: "onceward.toml".into(), environment: Vec::new() }
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// With its records at this address.
    pub(crate) fn store(mut self, url: &str) -> Self {
        self.text = self.text.replacen("sqlite://onceward.db", url, 1);
        self
    }

    /// On a loopback address of its own: when it is killed, no other test gets its port.
    pub(crate) fn on_its_own_address(mut self) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let (number, id) = (COUNT.fetch_add(1, Ordering::Relaxed) % 250 + 1, std::process::id());
        let address = format!("127.{number}.{}.{}:0", id / 250 % 250 + 1, id % 250 + 1);
        self.text = self.text.replacen("127.0.0.1:0", &address, 1);
        self
    }

    /// The same store as another gateway.
    pub(crate) fn beside(mut self, other: &Gateway) -> Self {
        self.directory = other.directory.clone();
        self.file = "second.toml".into();
        self
    }

    /// Writes the configuration, and gives the command that serves by it.
    pub(crate) fn command(&self) -> Command {
        let path = self.directory.path();
        fs::write(path.join(&self.file), &self.text).unwrap();
        let mut command = command(&["serve", "--config", &self.file]);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.current_dir(path).envs(environment);
        command
    }

    /// What it says when it does not start.
    pub(crate) fn refusal(&self) -> String {
        let process = Process::start(&mut self.command()).unwrap();
        let ended = process.wait_for_end().unwrap();
        let said = process.stderr.text();
        assert_eq!(ended.code(), Some(1), "{said}");
        said
    }

    pub(crate) fn start(&self) -> Gateway {
        self.start_by(&mut self.command())
    }

    /// With a command that ends in serving by it.
    pub(crate) fn start_by(&self, command: &mut Command) -> Gateway {
        let process = Process::start(command).unwrap();
        let address = process.stderr.wait_for_address().unwrap();
        // Where operators ask is said before.
        let said = process.stderr.heard();
        let admin = said.split_once("operators on http://").map(|(_, rest)| {
            let end = rest.find(|letter: char| letter.is_whitespace() || letter == '"');
            rest[..end.unwrap_or(rest.len())].parse().unwrap()
        });
        let (directory, file) = (self.directory.clone(), self.file.clone());
        Gateway { process, address, admin, directory, file }
    }
}

impl Gateway {
    /// With a directory of its own; see [`Plan::new`] for the text.
    pub(crate) fn start(upstream: &Upstream, text: &str) -> Self {
        Plan::new(&upstream.url(), text).start()
    }

    /// Sends it on a connection of its own, with HTTP/1.1.
    pub(crate) async fn send(&self, call: &Call) -> Reply {
        self.send_by(Version::Http1, call).await
    }

    pub(crate) async fn send_by(&self, version: Version, call: &Call) -> Reply {
        Link::open(self.address, version).await.send(call).await
    }

    /// Asks as an operator.
    pub(crate) async fn ask(&self, call: &Call) -> Reply {
        let admin = self.admin.expect("this gateway has no listener for operators");
        Link::open(admin, Version::Http1).await.send(call).await
    }

    /// Sends it while other things happen.
    pub(crate) fn begin(&self, call: &Call) -> tokio::task::JoinHandle<Reply> {
        let (address, call) = (self.address, call.clone());
        tokio::spawn(async move { Link::open(address, Version::Http1).await.send(&call).await })
    }

    /// The status document of the operation that this answer speaks of.
    pub(crate) async fn status_of(&self, reply: &Reply, credentials: &Call) -> Reply {
        let reference = reply.header("onceward-operation").expect("the answer names no operation");
        let path = format!("/.onceward/operations/{reference}");
        self.send(&credentials.clone().without_key().retarget("GET", &path)).await
    }

    /// Writes its configuration anew and has it read.
    pub(crate) fn reload(&self, text: &str) {
        fs::write(self.directory.path().join(&self.file), text).unwrap();
        self.signal(Signal::HUP);
    }

    pub(crate) fn configuration(&self) -> String {
        fs::read_to_string(self.directory.path().join(&self.file)).unwrap()
    }

    pub(crate) fn store(&self) -> std::path::PathBuf {
        self.directory.path().join("onceward.db")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for a line with this text on standard error, and gives all that was said up to it.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.process.stderr.wait_for(text).unwrap();
        self.said_so_far()
    }

    /// Everything that it says until it ends.
    pub(crate) fn rest_of_log(&self) -> String {
        self.process.wait_for_end().unwrap();
        self.process.stderr.text()
    }

    /// What it said until it was listening, and whatever was waited for since then.
    pub(crate) fn said_so_far(&self) -> String {
        self.process.stderr.heard()
    }

    /// How it ended, after a signal.
    pub(crate) fn wait_for_end(&self) -> ExitStatus {
        self.process.wait_for_end().unwrap()
    }

    /// What kill -9 does.
    pub(crate) fn kill(self) -> Arc<TempDir> {
        self.process.kill().unwrap();
        self.directory
    }

    /// What a metric says; `name` is the whole series.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let reply = self.ask(&Call::new("GET", "/metrics")).await;
        let line = reply.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("there is no {name}")).parse().unwrap()
    }

    /// It runs, and no part of it has panicked.
    pub(crate) fn assert_well(&self) {
        let said = self.process.stderr.text();
        assert_eq!(self.process.ended(), None, "the gateway has ended: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that was resident so far, in bytes.
    pub(crate) fn resident_most(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// `POST /pay`, by `x-api-key`, without authorisation, and with these lines.
pub(crate) fn route(lines: &str) -> String {
    route_for("POST /pay", lines)
}

pub(crate) fn route_for(matched: &str, lines: &str) -> String {
    let has = |option: &str| lines.lines().any(|line| line.trim_start().starts_with(option));
    let scope = if has("scope") { "" } else { "scope = [\"secret:x-api-key\"]\n" };
    let authorize = if has("authorize") { "" } else { "authorize = \"none\"\n" };
    format!("[[route]]\nmatch = \"{matched}\"\n{scope}{authorize}{lines}\n")
}
