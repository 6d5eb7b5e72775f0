//! A private `PgBouncer`, in transaction mode.

use std::env;
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::account;
use crate::client::Database;
use crate::home::Home;
use crate::port::free_port;
use crate::server::Server;
use crate::tool::{Trouble, bounded, run, wait_for};
use crate::url::{authority, with_database};

/// A private `PgBouncer` before one server: every transaction may get another connection of the server.
///
/// It serves every database of that server, always as the same role.
#[derive(Debug)]
pub struct PgBouncer {
    url: String,
    /// `None` when somebody else runs it.
    _home: Option<Home>,
}

impl PgBouncer {
    /// Starts one before a private server.
    ///
    /// ```no_run
    /// # let installation = testbed::Installation::preferred()?;
    /// let server = testbed::Server::start(&installation, &[])?;
    /// let bouncer = testbed::PgBouncer::start(&server)?;
    /// let url = bouncer.url("postgres");
    /// # Ok::<(), testbed::Trouble>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When it is not installed, or does not start.
    pub fn start(server: &Server) -> Result<Self, Trouble> {
        Self::before(&server.url("postgres"))
    }

    /// Starts one before the server with this address; the role and password are taken from it.
    ///
    /// # Errors
    ///
    /// When it is not installed, or does not start.
    pub fn before(url: &str) -> Result<Self, Trouble> {
        let program = program().ok_or_else(|| {
            Trouble::new(
                "PgBouncer is not installed; install it with `sudo apt-get install pgbouncer`",
            )
        })?;
        let home = Home::new()?;
        let port = free_port()?;
        let configuration = home.path().join("pgbouncer.ini");
        let log = home.path().join("log");
        let failed = |error| Trouble::new(format!("{}: {error}", configuration.display()));
        fs::write(&configuration, configuration_for(url, port)).map_err(failed)?;
        account::give(&configuration).map_err(failed)?;
        let output = File::create(&log).map_err(failed)?;
        let copy = output.try_clone().map_err(failed)?;
        let mut command = Command::new(&program);
        let mut child = account::as_server(command.arg(&configuration))
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::new(format!("PgBouncer could not be started: {error}")))?;
        wait_for("PgBouncer takes no connections", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(Trouble::new(format!(
                    "PgBouncer ended with {status}; its log:\n{log}"
                )));
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).ok())
        })?;
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        Ok(Self { url, _home: Some(home) })
    }

    /// One that somebody else runs.
    pub(crate) fn existing(url: String) -> Self {
        Self { url, _home: None }
    }

    /// The address of a database of its server, through it.
    pub fn url(&self, database: &str) -> String {
        with_database(&self.url, database)
    }

    /// The address of a test's database, through it.
    pub fn url_of(&self, database: &Database) -> String {
        self.url(database.name())
    }
}

/// The version of the `PgBouncer` on this machine, as `1.18.0`.
///
/// ```
/// println!("{:?}", testbed::pgbouncer_version());
/// ```
pub fn pgbouncer_version() -> Option<String> {
    let printed = run(bounded(&program()?).arg("--version"), "").ok()?;
    printed.split_whitespace().nth(1).map(str::to_owned)
}

/// Debian puts it where only root looks.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.is_file())
}

fn configuration_for(url: &str, port: u16) -> String {
    let authority = authority(url);
    let (login, host) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, server_port) = host.rsplit_once(':').unwrap_or((host, "5432"));
    let password =
        if password.is_empty() { String::new() } else { format!(" password={password}") };
    format!(
        "[databases]\n\
         * = host={host} port={server_port} user={user}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = 10\n\
         max_client_conn = 500\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_the_server_goes_into_the_configuration() {
        for (url, line) in [
            ("postgres://a:b@h:1/main?x=1", "* = host=h port=1 user=a password=b"),
            ("postgres://a@h/main", "* = host=h port=5432 user=a"),
            ("postgres://h", "* = host=h port=5432 user=postgres"),
        ] {
            let configuration = configuration_for(url, 7);
            assert_eq!(configuration.lines().nth(1), Some(line));
        }
    }
}
