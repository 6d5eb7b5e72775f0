//! A private PostgreSQL server that can be killed, paused, restarted and promoted.

mod replication;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

pub use self::replication::multi_host_url;

use crate::account;
use crate::client::{Afterwards, Client, Database};
use crate::home::{Home, inhabitants, signal};
use crate::installation::Installation;
use crate::port::free_port;
use crate::tool::{Trouble, bounded, run, wait_for};

/// A private server in a [`Home`] of its own, on a free port of the loopback interface.
///
/// The role `postgres` needs no password. `fsync` and the other settings of durability are as PostgreSQL has
/// them: what they promise is what tests prove.
///
/// ```no_run
/// let installation = testbed::Installation::preferred()?;
/// let server = testbed::Server::start(&installation, &[("max_connections", "20")])?;
/// server.sql("CREATE TABLE charge (amount bigint)");
/// server.kill();
/// server.restart();
/// assert_eq!(server.sql("SELECT count(*) FROM charge"), "0");
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct Server {
    name: String,
    installation: Installation,
    home: Home,
    port: u16,
    /// The first of its programs; `None` while it is down.
    postmaster: Mutex<Option<Child>>,
}

/// What every server is told; a test's own settings come after them and win.
const SETTINGS: [(&str, &str); 7] = [
    ("max_connections", "300"),
    // For transactions that outlive their connections.
    ("max_prepared_transactions", "20"),
    ("timezone", "UTC"),
    // A server that was primary can follow the new one without being copied again.
    ("wal_log_hints", "on"),
    ("wal_keep_size", "256MB"),
    ("max_replication_slots", "20"),
    // A standby looks for its primary again after this, and not after 5 s.
    ("wal_retrieve_retry_interval", "100ms"),
];

/// Logins whose role is a member of this one are asked for a password.
const WITH_PASSWORD: &str = "testbed_with_password";

impl Server {
    /// Makes a new server and starts it.
    ///
    /// # Errors
    ///
    /// With the words of the program that failed, and the end of the server's log.
    pub fn start(installation: &Installation, settings: &[(&str, &str)]) -> Result<Self, Trouble> {
        Self::start_in(Home::new()?, installation, settings)
    }

    /// The same with its files on a disk, for whoever measures how fast it is.
    ///
    /// # Errors
    ///
    /// With the words of the program that failed, and the end of the server's log.
    pub fn start_on_disk(
        installation: &Installation,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        Self::start_in(Home::on_disk()?, installation, settings)
    }

    fn start_in(
        home: Home,
        installation: &Installation,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        let server = Self::new("primary", installation, home)?;
        // Only the new and empty files are not flushed here; the server itself flushes what it writes.
        let mut initdb = server.tool("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        run(initdb.arg("-D").arg(server.data()), "")?;
        server.write_settings(settings)?;
        server.bring_up()
    }

    /// One that is not running and has no files yet.
    fn new(name: &str, installation: &Installation, home: Home) -> Result<Self, Trouble> {
        Ok(Self {
            name: name.to_owned(),
            installation: installation.clone(),
            home,
            port: free_port()?,
            postmaster: Mutex::new(None),
        })
    }

    fn write_settings(&self, settings: &[(&str, &str)]) -> Result<(), Trouble> {
        let lines = SETTINGS.iter().chain(settings).map(|(name, value)| {
            let value = value.replace('\'', "''");
            format!("{name} = '{value}'\n")
        });
        let access = format!(
            "host all +{WITH_PASSWORD} 127.0.0.1/32 scram-sha-256\n\
             host all,replication all 127.0.0.1/32 trust\n"
        );
        let configuration = self.data().join("postgresql.conf");
        fs::read_to_string(&configuration)
            .and_then(|text| fs::write(&configuration, text + &lines.collect::<String>()))
            .and_then(|()| fs::write(self.data().join("pg_hba.conf"), access))
            .map_err(|error| Trouble::new(format!("{}: {error}", configuration.display())))
    }

    /// Starts it for the first time; somebody may have taken the free port meanwhile.
    fn bring_up(mut self) -> Result<Self, Trouble> {
        for _ in 0..5 {
            match self.launch() {
                Err(trouble) if trouble.to_string().contains("Address already in use") => {
                    self.port = free_port()?;
                }
                ended => return ended.map(|()| self),
            }
        }
        Err(Trouble::new("five free ports were taken by others before PostgreSQL could have one"))
    }

    /// Starts the server and waits until it takes connections.
    fn launch(&self) -> Result<(), Trouble> {
        let mut command = Command::new(self.installation.program("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        // Not in the files, because a standby gets a copy of those.
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            format!("cluster_name={}", self.name),
            format!("primary_slot_name={}", self.name),
        ] {
            command.args(["-c", &setting]);
        }
        let log = File::options().create(true).append(true).open(self.log());
        let log =
            log.map_err(|error| Trouble::new(format!("{}: {error}", self.log().display())))?;
        let started = log.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let copy = log.try_clone().map_err(|error| Trouble::new(error.to_string()))?;
        let mut child = account::as_server(&mut command)
            .current_dir(self.home.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            // An interrupt from the keyboard is for the test, which then ends its servers.
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::new(format!("postgres could not be started: {error}")))?;

        let ready = wait_for("PostgreSQL takes no connections", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log = self.log_since(started);
                return Err(Trouble::new(format!(
                    "PostgreSQL ended with {status}; its log:\n{log}"
                )));
            }
            Ok(self.is_ready(child.id()).then_some(()))
        });
        *self.postmaster() = Some(child);
        ready
    }

    /// The server writes into its pid file, beside other things, how far it is.
    fn is_ready(&self, postmaster: u32) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        lines.first() == Some(&postmaster.to_string().as_str()) && lines.get(7) == Some(&"ready")
    }

    /// The name under which a primary knows it: `primary`, or what its standby was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port on 127.0.0.1; it stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The installation that it runs from.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The address of a database on it, for the role `postgres`.
    ///
    /// ```no_run
    /// # let installation = testbed::Installation::preferred()?;
    /// let server = testbed::Server::start(&installation, &[])?;
    /// let url = server.url("postgres"); // postgres://postgres@127.0.0.1:21873/postgres
    /// # Ok::<(), testbed::Trouble>(())
    /// ```
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// A new database with a name of its own; it stays until the server is dropped.
    ///
    /// # Panics
    ///
    /// When the server does not create it.
    #[track_caller]
    pub fn database(&self) -> Database {
        self.client().database(Afterwards::Leave).unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    /// Runs statements in the database `postgres`; gives their rows as lines, with `|` between the columns.
    ///
    /// # Panics
    ///
    /// With the server's words when a statement fails.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name))
    }

    /// Runs statements that may fail.
    ///
    /// # Errors
    ///
    /// With the server's words, or those of `psql` when there is no server.
    pub fn try_sql(&self, text: &str) -> Result<String, Trouble> {
        self.client().sql("postgres", text)
    }

    /// Makes a role that has to give this password, and gives the address of a database for it.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn login(&self, role: &str, password: &str, database: &str) -> String {
        self.sql(&format!(
            "SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{WITH_PASSWORD}') AS first \\gset
             \\if :first
             CREATE ROLE {WITH_PASSWORD};
             \\endif
             CREATE ROLE {role} LOGIN PASSWORD '{password}' IN ROLE {WITH_PASSWORD};"
        ));
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills every program of the server at once, as a machine that fails would.
    pub fn kill(&self) {
        // The first one first: it would start others again.
        if let Some(child) = &mut *self.postmaster() {
            let _ = child.kill();
        }
        self.until_none(|rest| signal(rest, Signal::KILL));
        self.reap();
    }

    /// Stops every program of the server where it stands; whoever waits for it waits on.
    pub fn pause(&self) {
        signal(&self.first_pid(), Signal::STOP);
        // Stopped, the first one starts no more; so this sees them all.
        signal(&inhabitants(&self.data()), Signal::STOP);
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        signal(&inhabitants(&self.data()), Signal::CONT);
    }

    /// Stops the server in good order; clients are disconnected, nothing is lost.
    ///
    /// # Panics
    ///
    /// When it does not stop.
    #[track_caller]
    pub fn stop(&self) {
        signal(&self.first_pid(), Signal::INT);
        self.until_none(|_| ());
        self.reap();
    }

    /// Starts it again on the same port and files, after [`Server::stop`] or [`Server::kill`]; stops it first
    /// when it is running.
    ///
    /// # Panics
    ///
    /// When it does not come up again, with the end of its log.
    #[track_caller]
    pub fn restart(&self) {
        if self.postmaster().is_some() {
            self.stop();
        }
        self.launch().unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name));
    }

    /// Changes settings for good and lets the server read them; some need a [`Server::restart`].
    ///
    /// ```no_run
    /// # let installation = testbed::Installation::preferred()?;
    /// let server = testbed::Server::start(&installation, &[])?;
    /// server.set("synchronous_commit", "off");
    /// # Ok::<(), testbed::Trouble>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the server does not know the setting.
    #[track_caller]
    pub fn set(&self, name: &str, value: &str) {
        let value = value.replace('\'', "''");
        self.sql(&format!("ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf();"));
    }

    /// The end of the server's log.
    pub fn log_tail(&self) -> String {
        self.log_since(0)
    }

    /// Runs `change` on what still lives of the server until nothing does.
    #[track_caller]
    fn until_none(&self, change: impl Fn(&[Pid])) {
        wait_for("programs of the server do not end", || {
            // What has ended is ours to collect; until then it is no inhabitant any more.
            let rest = inhabitants(&self.data());
            change(&rest);
            Ok(rest.is_empty().then_some(()))
        })
        .unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name));
    }

    fn reap(&self) {
        if let Some(mut child) = self.postmaster().take() {
            let _ = child.wait();
        }
    }

    fn first_pid(&self) -> Vec<Pid> {
        let number = self.postmaster().as_ref().map(Child::id);
        number.and_then(|number| Pid::from_raw(number.cast_signed())).into_iter().collect()
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Child>> {
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Client {
        Client { psql: self.installation.program("psql"), url: self.url("postgres") }
    }

    /// A program of the installation, run as the server's account and in its home.
    fn tool(&self, name: &str) -> Command {
        let mut command = bounded(&self.installation.program(name));
        account::as_server(&mut command)
            .current_dir(self.home.path())
            .env("HOME", self.home.path());
        command
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn log_since(&self, start: u64) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let start = usize::try_from(start).unwrap_or_default().min(text.len());
        let lines = String::from_utf8_lossy(&text[start..]).into_owned();
        let lines: Vec<_> = lines.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Clients are cut off before the files go.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut *self.postmaster() {
            let _ = child.kill();
        }
        signal(&inhabitants(&self.data()), Signal::KILL);
        self.reap();
    }
}
