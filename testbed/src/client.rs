//! Statements sent by `psql`, and databases that last as long as a test.

use std::path::PathBuf;

use crate::tool::{Trouble, bounded, run};
use crate::url::with_database;

/// Sends statements to one server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The program.
    pub(crate) psql: PathBuf,
    /// The address of the server, with a database that exists.
    pub(crate) url: String,
}

impl Client {
    /// Runs statements one after the other; gives their rows as lines, with `|` between the columns.
    pub(crate) fn sql(&self, database: &str, text: &str) -> Result<String, Trouble> {
        let url = with_database(&self.url, database);
        self.sql_at(&url, text)
    }

    pub(crate) fn sql_at(&self, url: &str, text: &str) -> Result<String, Trouble> {
        let mut psql = bounded(&self.psql);
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-", "-d", url]);
        run(&mut psql, text)
    }

    /// Creates a database with a name that nobody else has.
    pub(crate) fn database(&self, afterwards: Afterwards) -> Result<Database, Trouble> {
        let name = format!("onceward_test_{:016x}", fastrand::u64(..));
        self.sql_at(&self.url, &format!("CREATE DATABASE {name}"))?;
        let url = with_database(&self.url, &name);
        Ok(Database { name, url, client: self.clone(), afterwards })
    }
}

/// What becomes of a database when its test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Others use the server, so nothing is left on it.
    Drop,
    /// The server ends with the test, and may be dead or paused by then.
    Leave,
}

/// A database of its own for one test; dropped at the end, with whoever is still connected to it.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    client: Client,
    afterwards: Afterwards,
}

impl Database {
    /// Its address: `postgres://user@127.0.0.1:port/name`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs statements in it; gives their rows as lines, with `|` between the columns.
    ///
    /// ```no_run
    /// let database = testbed::postgres().database();
    /// assert_eq!(database.sql("SELECT 1, 'a'; SELECT 2"), "1|a\n2");
    /// ```
    ///
    /// # Panics
    ///
    /// With the server's words when a statement fails.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    /// Runs statements in it that may fail.
    ///
    /// ```no_run
    /// let database = testbed::postgres().database();
    /// assert!(database.try_sql("SELECT 1 / 0").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// With the server's words.
    pub fn try_sql(&self, text: &str) -> Result<String, Trouble> {
        self.client.sql_at(&self.url, text)
    }

    /// What `pg_dump` makes of it: statements for another database.
    ///
    /// # Panics
    ///
    /// With the words of the program when it fails.
    #[track_caller]
    pub fn dump(&self) -> String {
        let mut pg_dump = bounded(&self.client.psql.with_file_name("pg_dump"));
        run(pg_dump.args(["-d", &self.url]), "").unwrap_or_else(|trouble| panic!("{trouble}"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.afterwards == Afterwards::Leave {
            return;
        }
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = self.client.sql_at(&self.client.url, &statement);
    }
}
