//! The servers that all tests of a program share, each with databases of its own.

use std::env;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::client::{Afterwards, Client, Database};
use crate::installation::Installation;
use crate::pgbouncer::PgBouncer;
use crate::server::Server;
use crate::tool::Trouble;
use crate::{PGBOUNCER, POSTGRES};

/// The server for the tests of this program.
///
/// It is the one that [`POSTGRES`] gives, as `cargo xtask test` does; without it, a private one is started
/// that ends with this program.
///
/// ```no_run
/// let database = testbed::postgres().database();
/// ```
///
/// # Panics
///
/// When there is none, with what to install.
pub fn postgres() -> &'static SharedServer {
    static SHARED: LazyLock<Result<SharedServer, Trouble>> = LazyLock::new(SharedServer::find);
    SHARED.as_ref().unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// The `PgBouncer` before [`postgres`]: the one that [`PGBOUNCER`] gives, or a private one.
///
/// ```no_run
/// let database = testbed::postgres().database();
/// let url = testbed::pgbouncer().url_of(&database);
/// ```
///
/// # Panics
///
/// When there is none, with what to install.
pub fn pgbouncer() -> &'static PgBouncer {
    static SHARED: LazyLock<Result<PgBouncer, Trouble>> =
        LazyLock::new(|| match given(PGBOUNCER) {
            Some(url) => Ok(PgBouncer::existing(url)),
            None => PgBouncer::before(postgres().url()),
        });
    SHARED.as_ref().unwrap_or_else(|trouble| panic!("{trouble}"))
}

/// A server that tests share; they get databases on it.
#[derive(Debug)]
pub struct SharedServer {
    client: Client,
    /// Lives as long as this program; `None` when somebody else runs it.
    _server: Option<Server>,
}

impl SharedServer {
    fn find() -> Result<Self, Trouble> {
        if let Some(url) = given(POSTGRES) {
            return Ok(Self::existing(url));
        }
        let installation = Installation::preferred()?;
        let server = Server::start(&installation, &[])?;
        let client = Client { psql: installation.program("psql"), url: server.url("postgres") };
        Ok(Self { client, _server: Some(server) })
    }

    /// One that somebody else runs, at this address.
    ///
    /// ```
    /// let server = testbed::SharedServer::existing("postgres://me@db.internal/postgres".to_owned());
    /// assert_eq!(server.url(), "postgres://me@db.internal/postgres");
    /// ```
    pub fn existing(url: String) -> Self {
        // Any `psql` does; only the servers that we start need an installation.
        let installed = Installation::preferred().ok();
        let psql = installed.map_or(PathBuf::from("psql"), |found| found.program("psql"));
        Self { client: Client { psql, url }, _server: None }
    }

    /// The address of the server, with a database that is not for tests.
    pub fn url(&self) -> &str {
        &self.client.url
    }

    /// A new database with a name of its own, dropped when the test is over.
    ///
    /// # Panics
    ///
    /// When the server does not create it.
    #[track_caller]
    pub fn database(&self) -> Database {
        self.client.database(Afterwards::Drop).unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    /// The version of the server, as `15.18`.
    ///
    /// # Errors
    ///
    /// When it cannot be reached.
    pub fn version(&self) -> Result<String, Trouble> {
        let version = self.client.sql_at(&self.client.url, "SHOW server_version")?;
        Ok(version.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

fn given(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}
