//! The gateway as a process.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc::Receiver},
    time::Instant,
};

use tempfile::TempDir;

use super::{BOUND, Call, Link, Reply, Upstream, Version, lines_of};

/// A running gateway; it is killed when this is dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    /// Where operators ask, if there is such a listener.
    pub(crate) admin: Option<SocketAddr>,
    /// Where its configuration and its store are.
    pub(crate) directory: Arc<TempDir>,
    file: String,
    child: Child,
    stderr: Mutex<Receiver<String>>,
    said: Mutex<String>,
}

/// What a gateway is started with.
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

    /// The same store as another gateway.
    pub(crate) fn beside(mut self, other: &Gateway) -> Self {
        self.directory = other.directory.clone();
        self.file = "second.toml".into();
        self
    }

    fn command(&self) -> Command {
        let path = self.directory.path();
        fs::write(path.join(&self.file), &self.text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(["serve", "--config", &self.file]).current_dir(path).envs(environment);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// What it says when it does not start.
    pub(crate) fn refusal(&self) -> String {
        let output = self.command().output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }

    pub(crate) fn start(self) -> Gateway {
        let mut child = self.command().spawn().unwrap();
        let stderr = lines_of(child.stderr.take().unwrap());
        let (mut said, mut admin) = (String::new(), None);
        let address = loop {
            let line = stderr.recv_timeout(BOUND);
            let line = line.unwrap_or_else(|_| panic!("the gateway does not start:\n{said}"));
            said += &format!("{line}\n");
            if let Some((_, rest)) = line.split_once("operators on http://") {
                let address = rest.split('"').next().unwrap();
                admin = Some(address.parse().unwrap());
            }
            if let Some((_, rest)) = line.split_once("listening on ") {
                let address = rest.split_once("://").unwrap().1.split(',').next().unwrap();
                break address.parse().unwrap();
            }
        };
        let (stderr, said) = (Mutex::new(stderr), Mutex::new(said));
        let (directory, file) = (self.directory, self.file);
        Gateway { address, admin, directory, file, child, stderr, said }
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
        self.signal("HUP");
    }

    pub(crate) fn configuration(&self) -> String {
        fs::read_to_string(self.directory.path().join(&self.file)).unwrap()
    }

    pub(crate) fn store(&self) -> std::path::PathBuf {
        self.directory.path().join("onceward.db")
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for a line with this text on standard error, and gives all that was said so far.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let (stderr, mut said) = (self.stderr.lock().unwrap(), self.said.lock().unwrap());
        loop {
            let line = stderr.recv_timeout(BOUND);
            let line = line.unwrap_or_else(|_| panic!("it never said {text:?}:\n{said}"));
            *said += &format!("{line}\n");
            if line.contains(text) {
                return said.clone();
            }
        }
    }

    /// Everything that it says until it ends.
    pub(crate) fn rest_of_log(&self) -> String {
        let (stderr, mut said) = (self.stderr.lock().unwrap(), self.said.lock().unwrap());
        while let Ok(line) = stderr.recv_timeout(BOUND) {
            *said += &format!("{line}\n");
        }
        said.clone()
    }

    /// What it said until it was listening, and whatever was waited for since then.
    pub(crate) fn said_so_far(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Nobody reads its standard error any more.
    pub(crate) fn close_log(&mut self) {
        self.stderr = Mutex::new(std::sync::mpsc::channel().1);
    }

    /// How it ended, after a signal.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < BOUND, "the gateway does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// What kill -9 does.
    pub(crate) fn kill(mut self) -> Arc<TempDir> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.directory.clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let (stderr, said) = (self.stderr.lock(), self.said.lock());
            if let (Ok(stderr), Ok(said)) = (stderr, said) {
                let rest: Vec<String> = stderr.iter().collect();
                eprintln!("the gateway said:\n{said}{}", rest.join("\n"));
            }
        }
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
