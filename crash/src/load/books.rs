//! The ledger, read outside the system: the shop's table on a connection of its own, or the provider.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};

use crate::{
    history::{Effect, Ledger, OperationName},
    provider::Provider,
};

/// Where effects are written down.
pub enum Books {
    /// In the shop's own database, which does not say when: what was seen when is noted here.
    Shop {
        /// The file.
        database: PathBuf,
        /// When a client first saw the effect of an operation with its own eyes.
        seen: Mutex<HashMap<OperationName, Duration>>,
    },
    /// By the provider, with the time.
    Provider {
        /// It.
        provider: Provider,
        /// The common start of all times.
        start: Instant,
    },
}

impl Books {
    /// The books of a shop.
    pub fn of_shop(database: impl Into<PathBuf>) -> Self {
        Self::Shop { database: database.into(), seen: Mutex::default() }
    }

    /// The books of a provider, whose times are counted from `start`.
    #[must_use]
    pub fn of_provider(provider: Provider, start: Instant) -> Self {
        Self::Provider { provider, start }
    }

    /// Looks whether an operation has happened by now; what was not seen at an ok came too late.
    ///
    /// # Panics
    ///
    /// If the books cannot be read for so long that the test is worth nothing.
    pub fn look(&self, operation: &OperationName, now: Duration) {
        let Self::Shop { database, seen } = self else { return };
        let is_there = !read(database, Some(operation)).expect("the books can be read").is_empty();
        if is_there {
            lock(seen).entry(operation.clone()).or_insert(now);
        }
    }

    /// Everything that is written down. An effect that nobody saw before is as late as `now`.
    pub fn ledger(&self, now: Duration) -> rusqlite::Result<Ledger> {
        let effects = match self {
            Self::Shop { database, seen } => {
                let (rows, seen) = (read(database, None)?, lock(seen));
                let effect = |(operation, payload)| {
                    let at = seen.get(&operation).copied().unwrap_or(now);
                    Effect { operation, payload, at }
                };
                rows.into_iter().map(effect).collect()
            }
            Self::Provider { provider, start } => {
                let charges = provider.charges().into_iter();
                let effect = |charge: crate::provider::Charge| Effect {
                    operation: meant(&charge.operation),
                    payload: charge.payload,
                    at: charge.at.saturating_duration_since(*start),
                };
                charges.map(effect).collect()
            }
        };
        Ok(Ledger { effects })
    }
}

/// The rows of all operations or of one, on a connection that lives no longer than this: one that
/// stays would spare the services the recovery of the file.
fn read(
    database: &Path,
    only: Option<&OperationName>,
) -> rusqlite::Result<Vec<(OperationName, String)>> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    let has_table = "SELECT 1 FROM sqlite_schema WHERE name = 'charge'";
    if !connection.prepare(has_table)?.exists([])? {
        return Ok(Vec::new());
    }
    let rows = "SELECT operation, payload FROM charge WHERE ?1 IS NULL OR operation = ?1";
    let mut rows = connection.prepare(rows)?;
    let name = only.map(crate::client::ledger_name);
    let rows = rows.query_map([name], |row| {
        let (operation, payload): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((meant(&operation), payload))
    })?;
    rows.collect()
}

/// Which operation a line is about: see [`crate::client::ledger_name`]. Whatever follows a `~` was
/// made up by a client that should have kept its key.
fn meant(line: &str) -> OperationName {
    let (scope, key) = line.split_once('/').unwrap_or(("", line));
    OperationName::new(scope, key.split('~').next().unwrap_or(key))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
