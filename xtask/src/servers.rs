//! The servers of a suite: those that somebody gave, or private ones that run as long as it does.

use std::env;

use testbed::{
    Installation, PgBouncer, RedisInstallation, RedisServer, Server, SharedServer, Trouble,
};

use crate::suites::{Against, Servers};
use crate::tools;
use crate::workspace::Workspace;

/// The main version of PostgreSQL, and `PgBouncer` before it.
pub(crate) fn postgres(workspace: &Workspace) -> Against {
    postgres_of(workspace, testbed::POSTGRES, tools::postgres)
}

/// Version 18 in its place.
pub(crate) fn postgres_18(workspace: &Workspace) -> Against {
    postgres_of(workspace, testbed::POSTGRES_18, || tools::postgres_18(workspace))
}

/// The main version, for tests that start servers for themselves.
pub(crate) fn failing_postgres(_: &Workspace) -> Against {
    match tools::postgres() {
        Err(reason) => Against::Absent { engine: "PostgreSQL", reason },
        Ok(installation) => {
            let directory = installation.directory().display().to_string();
            let environment = vec![(testbed::POSTGRES_BIN, directory)];
            let version = installation.version();
            let words =
                format!("PostgreSQL {version}, primaries and standbys, private, on loopback");
            let repeat = environment.clone();
            Against::Servers(Servers { words, environment, repeat, running: Vec::new() })
        }
    }
}

/// Redis 7, or the version that the distribution has.
pub(crate) fn redis(_: &Workspace) -> Against {
    let given = env::var(testbed::REDIS).ok().filter(|url| !url.is_empty());
    redis_of("Redis", given, tools::redis())
}

/// Valkey 9 in its place.
pub(crate) fn valkey(workspace: &Workspace) -> Against {
    redis_of("Valkey", None, tools::valkey(workspace))
}

fn redis_of(
    engine: &'static str,
    given: Option<String>,
    installation: Result<RedisInstallation, String>,
) -> Against {
    let installation = match installation {
        Ok(installation) => installation,
        Err(reason) => return Against::Absent { engine, reason },
    };
    // Tests that kill a server start one of this version for themselves.
    let program = installation.program().display().to_string();
    let repeat = vec![(testbed::REDIS_BIN, program)];
    let mut environment = repeat.clone();
    if let Some(url) = given {
        environment.push((testbed::REDIS, url));
        let words = format!("the server that {} gives", testbed::REDIS);
        return Against::Servers(Servers { words, environment, repeat, running: Vec::new() });
    }
    match RedisServer::start(&installation, &[]) {
        Err(trouble) => Against::Broken(trouble.to_string()),
        Ok(server) => {
            environment.push((testbed::REDIS, server.url()));
            let words = format!("{}, private, on loopback", installation.version());
            Against::Servers(Servers {
                words,
                environment,
                repeat,
                running: vec![Box::new(server)],
            })
        }
    }
}

fn postgres_of(
    workspace: &Workspace,
    variable: &'static str,
    installation: impl FnOnce() -> Result<Installation, String>,
) -> Against {
    let installed = || Ok((installation()?, tools::pgbouncer()?));
    let (installation, pgbouncer) = match installed() {
        Ok(installed) => installed,
        Err(reason) => return Against::Absent { engine: "PostgreSQL", reason },
    };
    // Tests that kill a server start one of this version for themselves.
    let directory = installation.directory().display().to_string();
    let repeat = vec![(testbed::POSTGRES_BIN, directory)];
    let started = match env::var(variable).ok().filter(|url| !url.is_empty()) {
        Some(url) => Started::existing(url, variable),
        None => Started::private(&installation),
    };
    match started {
        Err(trouble) => Against::Broken(trouble.to_string()),
        Ok(Started { words, url, server, bouncer }) => {
            let mut environment = repeat.clone();
            environment.push((testbed::POSTGRES, url));
            environment.push((testbed::PGBOUNCER, bouncer.url("postgres")));
            Against::Servers(Servers {
                words: format!("{words}, PgBouncer {pgbouncer}, {}", languages(workspace)),
                environment,
                repeat,
                running: vec![Box::new(bouncer), Box::new(server)],
            })
        }
    }
}

/// The services in other languages that tests put behind the gateway.
fn languages(workspace: &Workspace) -> String {
    let python = tools::python(workspace).map(|_| tools::program("python3"));
    let found = [("Python", python), ("Node", tools::node(workspace))].map(|(name, found)| {
        found.unwrap_or_else(|reason| format!("no services in {name} (skipped: {reason})"))
    });
    found.join(", ")
}

struct Started {
    words: String,
    url: String,
    /// `None` when somebody else runs it.
    server: Option<Server>,
    bouncer: PgBouncer,
}

impl Started {
    fn private(installation: &Installation) -> Result<Self, Trouble> {
        let server = Server::start(installation, &[])?;
        Ok(Self {
            words: format!("PostgreSQL {}, private, on loopback", installation.version()),
            url: server.url("postgres"),
            bouncer: PgBouncer::start(&server)?,
            server: Some(server),
        })
    }

    fn existing(url: String, variable: &str) -> Result<Self, Trouble> {
        let version = SharedServer::existing(url.clone()).version()?;
        Ok(Self {
            words: format!("PostgreSQL {version}, the one that {variable} gives"),
            bouncer: PgBouncer::before(&url)?,
            url,
            server: None,
        })
    }
}
