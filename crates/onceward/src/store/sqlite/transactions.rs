//! One connection's transactions: begun with the write lock, committed before any caller gets its answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use onceward_core::{StoreError, Timestamp};
use rusqlite::{Connection, Statement};

use super::{
    builder::Options,
    error::{at_commit, before_commit, is_busy, is_io},
    schema::patiently,
    space::{LostFile, StoreFiles},
    sql,
    turns::Turns,
};
use crate::{clock::Clock, crashpoint, telemetry::event};

/// Runs transactions on a connection that one thread uses.
pub(super) struct Transactions<'c> {
    connection: &'c Connection,
    clock: Arc<dyn Clock>,
    busy_timeout: Duration,
    turns: Turns,
    presence: Arc<StoreFiles>,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
}

/// Why a transaction was rolled back.
pub(super) enum Trouble {
    /// One change could not be made; others might.
    Change(StoreError),
    /// Nothing could be made, or all of it without an answer.
    Everything(StoreError),
}

impl Trouble {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Change(error) | Self::Everything(error) => error,
        }
    }
}

impl<'c> Transactions<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        options: &Options,
        presence: &Arc<StoreFiles>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            clock: Arc::clone(&options.clock),
            busy_timeout: options.busy_timeout,
            turns: options.turns.clone(),
            presence: Arc::clone(presence),
            begin: connection.prepare(sql::BEGIN)?,
            commit: connection.prepare(sql::COMMIT)?,
            rollback: connection.prepare(sql::ROLLBACK)?,
        })
    }

    /// Runs one transaction: all of its body is committed, or nothing.
    pub(super) fn run<T>(
        &mut self,
        body: impl FnOnce(Timestamp) -> rusqlite::Result<T>,
    ) -> Result<T, Trouble> {
        let start = Instant::now();
        let _turn = self.turns.wait_blocking(self.busy_timeout);
        let patience = self.busy_timeout.saturating_sub(start.elapsed());
        self.begin(patience).map_err(Trouble::Everything)?;
        // Read when the lock is there: waiting for it does not count against any lease.
        let done = crashpoint!("sqlite.write", body(self.clock.now()), injected());
        match done {
            Ok(done) => match crashpoint!("sqlite.commit", self.commit.execute([]), injected()) {
                // Whatever was committed into a file that has no name is not durable.
                Ok(_) => match self.presence.look() {
                    Ok(()) => Ok(done),
                    Err(gone) => Err(Trouble::Everything(gone.after_commit())),
                },
                Err(error) => {
                    self.roll_back();
                    Err(Trouble::Everything(at_commit(&error)))
                }
            },
            Err(error) => {
                self.roll_back();
                let store_error = before_commit(&error);
                Err(match is_io(&error) {
                    true => Trouble::Everything(store_error),
                    false => Trouble::Change(store_error),
                })
            }
        }
    }

    fn begin(&mut self, patience: Duration) -> Result<(), StoreError> {
        self.presence.look().map_err(LostFile::into_error)?;
        self.roll_back();
        let begun = patiently(patience, is_busy, || {
            crashpoint!("sqlite.begin", self.begin.execute([]), injected())
        });
        begun.map(drop).map_err(|error| before_commit(&error))
    }

    /// Ends what is still open, if SQLite has not done so. What cannot be rolled back was not
    /// committed, and is tried again before the next transaction.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.rollback.execute([])
        {
            tracing::warn!(
                event = event::SQLITE_TROUBLE,
                "a rollback failed and will be tried again: {error}"
            );
        }
    }
}

/// What a crash test makes of a step.
fn injected() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    rusqlite::Error::SqliteFailure(code, Some("a crash test injected this error".to_owned()))
}
