//! What is run: the kinds of effect, how they are committed, and what happened before.

use std::{io::Write as _, sync::LazyLock, time::Duration};

use onceward_crash::{
    checker::EffectKind,
    service::{Driver, Stake},
};
use testbed::RedisInstallation;

/// Long enough that nothing is renewed in a run without a fault, short enough to wait for.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A service, what it is asked for, and what it finds.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    pub(crate) stake: Stake,
    pub(crate) driver: Driver,
    /// An answer is a little longer; over 64 KiB it is kept beside its record.
    pub(crate) payload_bytes: usize,
    pub(crate) before: Before,
    pub(crate) records: Records,
}

/// Where the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Sqlite,
    Redis,
}

/// What became of an earlier attempt of the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// There was none.
    Nothing,
    /// Its process died at this point, and its lease is over.
    Abandoned(&'static str),
    /// It was answered, and its process was killed after that.
    Ended,
}

const SMALL: usize = 12;
const LARGE: usize = 100 << 10;

pub(crate) const CONFIGURATIONS: [Configuration; 16] = [
    first("sqlx", Stake::Transactional, Driver::Sqlx, SMALL),
    first("rusqlite", Stake::Transactional, Driver::Rusqlite, SMALL),
    first("external", Stake::External, Driver::Sqlx, SMALL),
    first("repeatable", Stake::Repeatable, Driver::Sqlx, SMALL),
    first("sqlx-large", Stake::Transactional, Driver::Sqlx, LARGE),
    first("external-large", Stake::External, Driver::Sqlx, LARGE),
    Configuration {
        before: Before::Abandoned("own.commit#1"),
        ..first("sqlx-abandoned", Stake::Transactional, Driver::Sqlx, SMALL)
    },
    Configuration {
        before: Before::Abandoned("own.commit#1"),
        ..first("rusqlite-abandoned", Stake::Transactional, Driver::Rusqlite, SMALL)
    },
    Configuration {
        before: Before::Abandoned("store.swap#2"),
        ..first("repeatable-abandoned", Stake::Repeatable, Driver::Sqlx, SMALL)
    },
    Configuration {
        before: Before::Abandoned("store.swap#2"),
        ..first("external-abandoned", Stake::External, Driver::Sqlx, SMALL)
    },
    Configuration {
        before: Before::Ended,
        ..first("rusqlite-ended", Stake::Transactional, Driver::Rusqlite, SMALL)
    },
    on_redis("redis-external", Stake::External, SMALL, Before::Nothing),
    on_redis("redis-repeatable", Stake::Repeatable, SMALL, Before::Nothing),
    on_redis("redis-large", Stake::External, LARGE, Before::Nothing),
    on_redis("redis-abandoned", Stake::Repeatable, SMALL, Before::Abandoned("store.swap#2")),
    on_redis("redis-ended", Stake::External, SMALL, Before::Ended),
];

/// Effects in the same database do not exist there.
const fn on_redis(
    name: &'static str,
    stake: Stake,
    payload_bytes: usize,
    before: Before,
) -> Configuration {
    let records = Records::Redis;
    Configuration { name, stake, driver: Driver::Sqlx, payload_bytes, before, records }
}

/// Those that can be run here: a machine may have no Redis server.
pub(crate) static RUNNABLE: LazyLock<Vec<&'static Configuration>> = LazyLock::new(|| {
    let has_redis = std::env::var_os(testbed::REDIS).is_some_and(|url| !url.is_empty())
        || RedisInstallation::preferred().is_ok();
    if !has_redis {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the steps on Redis: no server is installed");
    }
    let is_runnable = |one: &&Configuration| has_redis || one.records == Records::Sqlite;
    CONFIGURATIONS.iter().filter(is_runnable).collect()
});

const fn first(
    name: &'static str,
    stake: Stake,
    driver: Driver,
    payload_bytes: usize,
) -> Configuration {
    let (before, records) = (Before::Nothing, Records::Sqlite);
    Configuration { name, stake, driver, payload_bytes, before, records }
}

impl Configuration {
    /// Whether it is one of the kinds of effect themselves: no two of them pass the same places.
    pub(crate) fn is_plain(&self) -> bool {
        self.before == Before::Nothing
            && self.payload_bytes == SMALL
            && self.records == Records::Sqlite
    }

    pub(crate) fn payload(&self) -> String {
        "5".repeat(self.payload_bytes)
    }

    pub(crate) fn effect_kind(&self) -> EffectKind {
        match self.stake {
            Stake::Transactional => EffectKind::Transactional,
            Stake::External => EffectKind::External,
            Stake::Repeatable => EffectKind::Repeatable,
        }
    }

    /// The points that a run must pass, or else the points are not where they should be.
    pub(crate) fn expected_points(&self) -> &'static [&'static str] {
        match (self.before, self.stake) {
            (Before::Ended, _) if self.records == Records::Redis => &["store.swap#1", "reply#1"],
            _ if self.records == Records::Redis => {
                &["store.swap#1", "effect#1", "store.swap#2", "reply#1"]
            }
            (Before::Ended, _) | (Before::Abandoned(_), Stake::External) => {
                &["store.swap#1", "sqlite.begin#1", "sqlite.write#1", "sqlite.commit#1", "reply#1"]
            }
            (_, Stake::Transactional) => &[
                "store.swap#1",
                "sqlite.begin#1",
                "sqlite.write#1",
                "sqlite.commit#1",
                "own.begin#1",
                "effect#1",
                "own.swap#1",
                "own.commit#1",
                "store.get#1",
                "reply#1",
            ],
            (_, Stake::External | Stake::Repeatable) => &[
                "store.swap#1",
                "sqlite.begin#1",
                "sqlite.write#1",
                "sqlite.commit#1",
                "effect#1",
                "store.swap#2",
                "sqlite.begin#2",
                "sqlite.write#2",
                "sqlite.commit#2",
                "reply#1",
            ],
        }
    }
}
