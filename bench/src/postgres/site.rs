//! The server of a run, its databases, and what the server counts.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use onceward::{
    Store,
    store::postgres::{PostgresStore, PostgresStoreBuilder},
};
use testbed::{Database, Installation, Server};
use tokio::runtime::Runtime;

use crate::{
    Failure, load,
    postgres::{
        pgbench::Pgbench,
        script::{CHARGE, Sample},
    },
};

/// What the server is told beside what PostgreSQL has by itself.
pub(crate) const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "256MB"), ("max_wal_size", "4GB"), ("fsync", "on")];

/// A private server.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) runtime: Runtime,
    fillfactor: Option<u8>,
    /// The first process of the server.
    postmaster: u32,
}

impl Site {
    /// Starts one with these settings beside the usual ones.
    pub(crate) fn start(more: &[String], fillfactor: Option<u8>) -> Result<Self, Failure> {
        let mut settings = SETTINGS.to_vec();
        for setting in more {
            let setting = setting.split_once('=');
            settings.push(setting.ok_or("a setting is written as name=value")?);
        }
        let server = Server::start_on_disk(&Installation::preferred()?, &settings)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let file = PathBuf::from(server.try_sql("SHOW data_directory")?).join("postmaster.pid");
        let text = std::fs::read_to_string(file)?;
        let postmaster = text.lines().next().unwrap_or_default().trim().parse()?;
        Ok(Self { server, runtime, fillfactor, postmaster })
    }

    /// What the server and this process, with all that they started, have used so far.
    pub(crate) fn cpu(&self) -> Option<Cpu> {
        let client = testbed::cpu_time_with_ended(std::process::id())?;
        // The server was started by this process.
        let server = testbed::cpu_time_with_ended(self.postmaster)?;
        Some(Cpu { server, client: client.saturating_sub(server) })
    }

    /// A new database with the tables of a store and one of a business.
    pub(crate) fn database(&self) -> Result<BenchDatabase, Failure> {
        let database = self.server.database();
        let migrating = PostgresStore::builder(database.url())?.migrate();
        self.runtime.block_on(migrating)?;
        database.try_sql(CHARGE)?;
        if let Some(fillfactor) = self.fillfactor {
            let text = format!("ALTER TABLE onceward.record SET (fillfactor = {fillfactor})");
            database.try_sql(&text)?;
        }
        Ok(BenchDatabase { database })
    }

    /// Removes a database with whoever is still connected to it: disks are finite.
    pub(crate) fn drop(&self, place: BenchDatabase) -> Result<(), Failure> {
        let name = place.database.name().to_owned();
        drop(place);
        self.server.try_sql(&format!("DROP DATABASE {name} WITH (FORCE)"))?;
        Ok(())
    }

    fn program(&self, name: &str) -> PathBuf {
        self.server.installation().directory().join(name)
    }

    /// `pgbench` for a database, with bodies as the store writes them.
    pub(crate) fn pgbench(&self, place: &BenchDatabase) -> Result<Pgbench, Failure> {
        let sample = self.sample(place)?;
        Ok(Pgbench { program: self.program("pgbench"), url: place.url().to_owned(), sample })
    }

    /// Makes one pair and reads what the store wrote for it.
    pub(crate) fn sample(&self, place: &BenchDatabase) -> Result<Sample, Failure> {
        let body = || place.database.try_sql("SELECT body FROM onceward.record LIMIT 1");
        let names = "SELECT scope FROM onceward.record; SELECT operation FROM onceward.record";
        let work = load::Work::default();
        let store = self.runtime.block_on(PostgresStore::connect(place.url()))?;
        let claim = self.runtime.block_on(load::claim(&store, &work, u64::MAX))?;
        let claimed = body()?;
        self.runtime.block_on(load::settle(&store, work.settlement(&claim)))?;
        let names = place.database.try_sql(names)?;
        let (scope, operation) = names.split_once('\n').ok_or("one record was expected")?;
        let sample = Sample {
            claim: claimed,
            answer: body()?,
            scope: scope.to_owned(),
            operation: operation.to_owned(),
        };
        place.database.try_sql("TRUNCATE onceward.record")?;
        Ok(sample)
    }
}

/// User and system time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) server: Duration,
    pub(crate) client: Duration,
}

impl Cpu {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            server: self.server.saturating_sub(earlier.server),
            client: self.client.saturating_sub(earlier.client),
        }
    }
}

/// How a store writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Connections for claims, and as many for all else; `None`: as it comes.
    pub(crate) lanes: Option<usize>,
    /// Changes in one statement; `None`: as it comes.
    pub(crate) batch: Option<usize>,
}

impl Lanes {
    /// As the store comes.
    pub(crate) const USUAL: Self = Self { lanes: None, batch: None };

    /// How many connections write; as many as a store has that is told nothing, if nothing is said.
    pub(crate) fn connections(self) -> usize {
        2 * self.lanes.unwrap_or(PostgresStoreBuilder::LANES)
    }
}

/// One database.
pub(crate) struct BenchDatabase {
    pub(crate) database: Database,
}

impl BenchDatabase {
    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    pub(crate) fn sql(&self, text: &str) -> Result<String, Failure> {
        Ok(self.database.try_sql(text)?)
    }

    pub(crate) fn store(&self, site: &Site, how: Lanes) -> Result<PostgresStore, Failure> {
        let mut builder = PostgresStore::builder(self.url())?.without_migrations();
        if let Some(lanes) = how.lanes {
            builder = builder.lanes(lanes);
        }
        if let Some(batch) = how.batch {
            builder = builder.batch(batch);
        }
        Ok(site.runtime.block_on(builder.open())?)
    }

    /// Waits until nobody is connected: then the server has counted everything.
    pub(crate) fn wait_until_left(&self) -> Result<(), Failure> {
        const AT_MOST: Duration = Duration::from_secs(10);
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let started = Instant::now();
        while self.sql(others)? != "0" {
            if started.elapsed() > AT_MOST {
                return Err(format!("somebody is still connected after {AT_MOST:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What the server has counted so far.
    pub(crate) fn counts(&self) -> Result<Counts, Failure> {
        let text = self.sql(
            "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, wal_fpi, n_tup_upd, n_tup_hot_upd \
             FROM pg_stat_wal, pg_stat_user_tables \
             WHERE schemaname = 'onceward' AND relname = 'record'",
        )?;
        Counts::read(&text).ok_or_else(|| format!("not what was asked for: {text}").into())
    }

    /// The size of the table and its indexes for each record; `None` if there are none.
    pub(crate) fn bytes_each(&self) -> Result<Option<f64>, Failure> {
        let text = self.sql(
            "SELECT pg_total_relation_size('onceward.record')::float8 / nullif(count(*), 0) \
             FROM onceward.record",
        )?;
        Ok(text.parse().ok())
    }
}

/// Runs something with a store, and leaves the database when it is done.
pub(crate) fn with_store<T>(
    site: &Site,
    place: &BenchDatabase,
    how: Lanes,
    run: impl FnOnce(Arc<dyn Store>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let result = run(Arc::new(place.store(site, how)?))?;
    place.wait_until_left()?;
    Ok(result)
}

/// What the server counts for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) wal_bytes: f64,
    pub(crate) full_pages: f64,
    pub(crate) updates: f64,
    pub(crate) hot_updates: f64,
}

impl Counts {
    fn read(text: &str) -> Option<Self> {
        let numbers: Result<Vec<f64>, _> = text.trim().split('|').map(str::parse).collect();
        let &[wal_bytes, full_pages, updates, hot_updates] = numbers.ok()?.as_slice() else {
            return None;
        };
        Some(Self { wal_bytes, full_pages, updates, hot_updates })
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            wal_bytes: self.wal_bytes - earlier.wal_bytes,
            full_pages: self.full_pages - earlier.full_pages,
            updates: self.updates - earlier.updates,
            hot_updates: self.hot_updates - earlier.hot_updates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_subtracted() {
        let earlier = Counts::read("1000|2|30|20\n").unwrap();
        let counts = Counts::read("5000|3|70|50").unwrap().since(earlier);
        let expected =
            Counts { wal_bytes: 4000.0, full_pages: 1.0, updates: 40.0, hot_updates: 30.0 };
        assert_eq!(counts, expected);
        assert_eq!(Counts::read("1|2|3"), None);
        assert_eq!(Counts::read("1|2|3|x"), None);
    }
}
