//! Deletes what is over, a few thousand rows at a time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use onceward_core::{StoreError, Timestamp};

use super::{Dialect, error::store_error, link::Link, rows::timestamp, sql};
use crate::telemetry;

/// How many rows one statement deletes.
const STEP: u32 = 5_000;

/// How far the server's clock may go ahead or back before nothing is deleted by it.
const JUMP: Duration = Duration::from_secs(60);

/// Watches the clock by which it deletes.
#[derive(Default)]
pub(super) struct Broom {
    first: Mutex<Option<First>>,
}

/// The first time that was read, and when.
#[derive(Clone, Copy)]
struct First {
    there: Timestamp,
    here: Instant,
}

impl Broom {
    pub(super) async fn sweep(
        &self,
        link: &Link,
        limit: u32,
        dialect: Dialect,
    ) -> Result<u32, StoreError> {
        self.check_clock(link).await?;
        let mut deleted = 0;
        let mut left = limit;
        while left > 0 {
            let step = i64::from(left.min(STEP));
            let rows = link.read(&sql::SWEEP, &[&step]).await?;
            let counts = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            let counts: Option<Result<(i64, i64), tokio_postgres::Error>> = counts;
            let (gone, due) = counts.unwrap_or(Ok((0, 0))).map_err(|error| store_error(&error))?;
            deleted += u32::try_from(gone).unwrap_or(u32::MAX);
            left -= u32::try_from(due).unwrap_or(left).min(left);
            if due < step {
                Self::sweep_rest(link, dialect).await?;
                break;
            }
        }
        Ok(deleted)
    }

    /// Not after every step, but when no more records are due.
    async fn sweep_rest(link: &Link, dialect: Dialect) -> Result<(), StoreError> {
        link.ask(sql::SWEEP_REST, &[]).await?;
        if dialect == Dialect::Postgres {
            link.ask(sql::SWEEP_INBOX, &[]).await?;
        }
        Ok(())
    }

    /// A clock that jumped would delete what is still promised.
    async fn check_clock(&self, link: &Link) -> Result<(), StoreError> {
        let here = Instant::now();
        let rows = link.ask("SELECT clock_timestamp()", &[]).await?;
        let there = rows.first().map(|row| row.try_get(0)).transpose();
        let there = there.map_err(|error| store_error(&error))?.unwrap_or(SystemTime::UNIX_EPOCH);
        let now = First { there: timestamp(there), here };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        // After a failover too: the clock of another server is another one.
        let known = *first.get_or_insert(now);
        let expected = known.there.plus(now.here.duration_since(known.here));
        let apart = now.there.since(expected).max(expected.since(now.there));
        if apart <= JUMP {
            return Ok(());
        }
        telemetry::CLOCK_JUMPED.raise(format_args!(
            "the clock of PostgreSQL has jumped by {apart:?} since this process asked it first; nothing \
             is deleted by it: set it right and start this process anew"
        ));
        Err(StoreError::Unusable(format!("the server's clock has jumped by {apart:?}")))
    }
}
