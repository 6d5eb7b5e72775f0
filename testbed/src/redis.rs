//! Private servers of Redis and Valkey: alone, with sentinels, and in clusters.

mod cluster;
mod installation;
mod sentinels;
mod watch;
mod wire;

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

pub use self::cluster::RedisCluster;
pub use self::installation::RedisInstallation;
pub use self::sentinels::RedisSentinels;
pub use self::watch::RedisWatch;
pub use self::wire::RedisReply;

use crate::REDIS;
use crate::home::Home;
use crate::port::free_port;
use crate::tool::{Trouble, wait_for};

/// The server for the tests of this program, as an address.
///
/// It is the one that [`REDIS`] gives, as `cargo xtask test` does; without it, a private one is started
/// that ends with this program. Tests share it, and give their keys prefixes of their own.
///
/// ```no_run
/// println!("{}", testbed::redis());
/// ```
///
/// # Panics
///
/// When there is none, with what to install.
pub fn redis() -> &'static str {
    static SHARED: LazyLock<Result<(String, Option<RedisServer>), Trouble>> = LazyLock::new(|| {
        if let Some(url) = env::var(REDIS).ok().filter(|url| !url.is_empty()) {
            return Ok((url, None));
        }
        let server = RedisServer::start(&RedisInstallation::preferred()?, &[])?;
        Ok((server.url(), Some(server)))
    });
    match &*SHARED {
        Ok((url, _)) => url,
        Err(trouble) => panic!("{trouble}"),
    }
}

/// A private server in a [`Home`] of its own, on a free port of the loopback interface.
///
/// It writes a log of all changes and syncs it with each, unless a setting says otherwise.
///
/// ```no_run
/// let installation = testbed::RedisInstallation::preferred()?;
/// let server = testbed::RedisServer::start(&installation, &[("maxmemory", "64mb")])?;
/// server.command(&["SET", "a", "b"]);
/// server.kill();
/// server.restart();
/// assert_eq!(server.command(&["GET", "a"]).to_string(), "b");
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct RedisServer {
    installation: RedisInstallation,
    home: Home,
    port: u16,
    settings: Vec<(String, String)>,
    /// `None` while it is down.
    child: Mutex<Option<Child>>,
}

/// Settings of every server; a test's own come after them and win.
const SETTINGS: [(&str, &str); 6] = [
    ("bind", "127.0.0.1"),
    ("save", ""),
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("repl-diskless-sync-delay", "0"),
    ("daemonize", "no"),
];

impl RedisServer {
    /// Makes a new server and starts it.
    ///
    /// # Errors
    ///
    /// With the end of its log, when it does not start.
    pub fn start(
        installation: &RedisInstallation,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        Self::start_in(Home::new()?, installation, settings)
    }

    /// The same with its files on a disk, for benchmarks.
    ///
    /// # Errors
    ///
    /// With the end of its log, when it does not start.
    pub fn start_on_disk(
        installation: &RedisInstallation,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        Self::start_in(Home::on_disk()?, installation, settings)
    }

    fn start_in(
        home: Home,
        installation: &RedisInstallation,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut server = Self {
            installation: installation.clone(),
            home,
            port: free_port()?,
            settings: SETTINGS.iter().chain(settings).map(owned).collect(),
            child: Mutex::new(None),
        };
        for _ in 0..5 {
            match server.launch() {
                Err(trouble) if trouble.to_string().contains("Address already in use") => {
                    server.port = free_port()?;
                }
                ended => return ended.map(|()| server),
            }
        }
        Err(Trouble::new("five free ports were taken by others before the server could have one"))
    }

    fn launch(&self) -> Result<(), Trouble> {
        let mut command = Command::new(self.installation.program());
        command.args(["--port", &self.port.to_string()]);
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).args(words(value));
        }
        let failed = |error| Trouble::new(format!("{}: {error}", self.log().display()));
        let log = File::create(self.log()).map_err(failed)?;
        let copy = log.try_clone().map_err(failed)?;
        let mut child = command
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            // An interrupt from the keyboard is for the test, which then ends its servers.
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::new(format!("the server could not be started: {error}")))?;
        let ready = wait_for("the server takes no connections", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                return Err(Trouble::new(format!(
                    "the server ended with {status}; its log:\n{log}"
                )));
            }
            // One that asks for a password is up too, and one that still reads its log is not.
            Ok(self.try_command(&["PING"]).map_or_else(
                |trouble| trouble.to_string().contains("NOAUTH").then_some(()),
                |_| Some(()),
            ))
        });
        *self.child() = Some(child);
        ready
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's program.
    pub fn installation(&self) -> &RedisInstallation {
        &self.installation
    }

    /// The port on 127.0.0.1; it stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, without user and options.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The directory that it works in.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Sends a command.
    ///
    /// # Panics
    ///
    /// With the server's words when it fails.
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> RedisReply {
        self.try_command(words).unwrap_or_else(|trouble| panic!("{words:?}: {trouble}"))
    }

    /// Sends a command that may fail.
    ///
    /// # Errors
    ///
    /// With the server's words.
    pub fn try_command(&self, words: &[&str]) -> Result<RedisReply, Trouble> {
        wire::ask(self.port, words)
    }

    /// Begins to see what clients ask it.
    ///
    /// # Errors
    ///
    /// When the server does not allow it.
    pub fn watch(&self) -> Result<RedisWatch, Trouble> {
        RedisWatch::start(self.port)
    }

    /// `kill -9`.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal, as STOP and CONT.
    pub fn signal(&self, signal: Signal) {
        if let Some(child) = self.child().as_ref() {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Starts it again on the same port, with the files that it left.
    ///
    /// # Panics
    ///
    /// With the end of its log, when it does not start.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch().unwrap_or_else(|trouble| panic!("{trouble}"));
    }

    /// Starts a replica of it, and waits until that has everything.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not catch up.
    pub fn replica(&self, settings: &[(&str, &str)]) -> Result<Self, Trouble> {
        let of = format!("127.0.0.1 {}", self.port);
        let mut all = vec![("replicaof", of.as_str())];
        all.extend(settings);
        let replica = Self::start(&self.installation, &all)?;
        replica.wait_for_primary()?;
        Ok(replica)
    }

    /// Waits until the link to its primary is up.
    ///
    /// # Errors
    ///
    /// When it does not come up.
    pub fn wait_for_primary(&self) -> Result<(), Trouble> {
        wait_for("the replica does not catch up", || {
            let info = self.try_command(&["INFO", "replication"]);
            Ok(info
                .is_ok_and(|info| info.to_string().contains("master_link_status:up"))
                .then_some(()))
        })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A setting may have several words, or be empty.
fn words(value: &str) -> Vec<&str> {
    if value.is_empty() { vec![""] } else { value.split(' ').collect() }
}
