//! The worker's own connection to the store's file: effects that are rows beside the records.

use std::{path::Path, time::Duration};

use onceward::{
    Ending, Outcome,
    protocol::{Claim, Fence},
    store::{Swap, sqlite::SqliteStore},
};
use rusqlite::Connection;

use crate::operation::shown;

/// The table of charges. It has no unique constraint: a second effect must show.
pub(crate) struct Charges {
    connection: Connection,
}

impl Charges {
    pub(crate) fn open(database: &Path, synchronous: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(database)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS charges (key TEXT, body TEXT)")?;
        Ok(Self { connection })
    }

    /// The effect and the end of the record, both or neither.
    pub(crate) fn charge_and_complete(
        &self,
        store: &SqliteStore,
        claim: &Claim,
        key: &str,
        answer: &Outcome,
    ) -> Result<(), String> {
        self.in_one_transaction(|| {
            self.insert(key, answer)?;
            self.end(store, claim, answer)
        })
    }

    /// The effect alone.
    pub(crate) fn charge(&self, key: &str, answer: &Outcome) -> Result<(), String> {
        self.in_one_transaction(|| self.insert(key, answer))
    }

    /// The end of the record alone.
    pub(crate) fn complete(
        &self,
        store: &SqliteStore,
        claim: &Claim,
        answer: &Outcome,
    ) -> Result<(), String> {
        self.in_one_transaction(|| self.end(store, claim, answer))
    }

    fn insert(&self, key: &str, answer: &Outcome) -> Result<(), String> {
        let insert = "INSERT INTO charges (key, body) VALUES (?1, ?2)";
        told(self.connection.execute(insert, [key, &shown(answer)]).map(drop))
    }

    fn end(&self, store: &SqliteStore, claim: &Claim, answer: &Outcome) -> Result<(), String> {
        let fence = Fence::from_random(std::array::from_fn(|_| fastrand::u8(..)));
        let settlement = claim.settle(Ending::Succeeded(answer.clone()), fence);
        match store.swap_in_blocking(&self.connection, settlement.change()) {
            Ok(Swap::Stored { .. }) => Ok(()),
            Ok(Swap::Conflict(found)) => Err(format!("fenced off by {found:?}")),
            Ok(Swap::Held) => Err("held by another transaction".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn in_one_transaction(&self, body: impl Fn() -> Result<(), String>) -> Result<(), String> {
        told(self.connection.execute_batch("BEGIN IMMEDIATE"))?;
        let ended = body().and_then(|()| told(self.connection.execute_batch("COMMIT")));
        if ended.is_err() && !self.connection.is_autocommit() {
            told(self.connection.execute_batch("ROLLBACK"))?;
        }
        ended
    }
}

fn told<T>(result: rusqlite::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
