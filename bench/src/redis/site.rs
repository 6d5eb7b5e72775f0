//! The servers of a run, and what they count.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use onceward::{Store, store::redis::RedisStore};
use testbed::{RedisInstallation, RedisServer};
use tokio::runtime::Runtime;

use crate::{Failure, measure::Usage};

/// Settings of every server beside its rule for syncs: no server rewrites its log during a turn.
pub(crate) const SETTINGS: [(&str, &str); 2] =
    [("auto-aof-rewrite-percentage", "0"), ("maxmemory-policy", "noeviction")];

/// When a server syncs its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Before it answers.
    Always,
    /// Once in a second.
    EverySecond,
}

impl Sync {
    /// As the server's setting `appendfsync` calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
        }
    }
}

/// A private server with its log on a disk.
pub(crate) struct Site {
    pub(crate) server: RedisServer,
    pub(crate) sync: Sync,
    process: u32,
}

impl Site {
    pub(crate) fn start(sync: Sync) -> Result<Self, Failure> {
        let settings = [&SETTINGS[..], &[("appendfsync", sync.word())]].concat();
        let server = RedisServer::start_on_disk(&RedisInstallation::preferred()?, &settings)?;
        let process = info(&server, "server", "process_id")?.try_into()?;
        Ok(Self { server, sync, process })
    }

    /// A store with connections of its own.
    pub(crate) fn store(&self, runtime: &Runtime) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(open(runtime, &self.server)?))
    }

    /// Removes all records and what the log says of them, so that everybody begins with the same.
    pub(crate) fn clear(&self) -> Result<(), Failure> {
        const AT_MOST: Duration = Duration::from_secs(60);
        self.server.try_command(&["FLUSHALL", "SYNC"])?;
        self.server.try_command(&["BGREWRITEAOF"])?;
        let started = Instant::now();
        while info(&self.server, "persistence", "aof_rewrite_in_progress")? > 0
            || info(&self.server, "persistence", "aof_rewrite_scheduled")? > 0
        {
            if started.elapsed() > AT_MOST {
                return Err(format!("the log is still being rewritten after {AT_MOST:?}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// What the server and this process have used so far.
    pub(crate) fn cpu(&self) -> Used {
        Used { client: Usage::now(), server: testbed::cpu_time_with_ended(self.process) }
    }
}

/// Opens a store on a server.
pub(crate) fn open(runtime: &Runtime, server: &RedisServer) -> Result<RedisStore, Failure> {
    let builder = RedisStore::builder(&server.url())?.accept_relaxed();
    Ok(runtime.block_on(builder.open())?)
}

/// A number that a server tells about itself.
pub(crate) fn info(server: &RedisServer, section: &str, name: &str) -> Result<i64, Failure> {
    let text = server.try_command(&["INFO", section])?.to_string();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.ok_or_else(|| format!("the server does not tell its {name}"))?.trim().parse()?)
}

/// User and system time of both sides.
pub(crate) struct Used {
    client: Usage,
    server: Option<Duration>,
}

impl Used {
    /// The client's and the server's since then.
    pub(crate) fn since(&self, earlier: &Self) -> (Duration, Option<Duration>) {
        let server = self.server.zip(earlier.server);
        let server = server.map(|(now, before)| now.saturating_sub(before));
        (self.client.cpu_since(earlier.client), server)
    }
}
