//! The same swap inside a transaction of the user's own: the record ends in the effect's commit.
//!
//! Nothing here begins or ends a transaction. The one thing that the user's connection could spoil
//! is durability, so each use looks at what the connection promises.

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use onceward_core::{Change, SpoolId, StoreError, Swap, Timestamp};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    SqliteStore,
    builder::Options,
    error::{at_commit, inside},
    rows::Proposal,
    session,
    space::{LostFile, StoreFiles},
    sql,
    turns::{Turn, Turns},
};
use crate::clock::Clock;

/// What the store needs to write on the user's connection.
pub(super) struct Inside {
    pub(super) clock: Arc<dyn Clock>,
    accepts_relaxed: bool,
    path: PathBuf,
    presence: Arc<StoreFiles>,
    turns: Turns,
    patience: Duration,
}

/// A transaction of rusqlite: its own, or one that was [begun](SqliteStore::begin_blocking) here.
///
/// ```
/// use onceward::store::sqlite::BlockingTransaction;
///
/// fn charge(shop: &impl BlockingTransaction, cents: u32) -> rusqlite::Result<usize> {
///     shop.connection().execute("INSERT INTO charge (cents) VALUES (?1)", [cents])
/// }
/// ```
pub trait BlockingTransaction {
    /// The connection that the transaction is open on.
    fn connection(&self) -> &Connection;

    /// Commits.
    fn commit(self) -> rusqlite::Result<()>
    where
        Self: Sized;
}

impl BlockingTransaction for Transaction<'_> {
    fn connection(&self) -> &Connection {
        self
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.commit()
    }
}

/// A transaction of rusqlite that has waited in line for SQLite's one write lock: see
/// [`SqliteStore::begin_blocking`].
///
/// Dropping it rolls back.
///
/// ```
/// use onceward::store::sqlite::OwnBlockingTransaction;
///
/// fn rename(shop: OwnBlockingTransaction<'_>, name: &str) -> rusqlite::Result<()> {
///     shop.execute("UPDATE shop SET name = ?1", [name])?;
///     shop.commit()
/// }
/// ```
#[derive(Debug)]
pub struct OwnBlockingTransaction<'c> {
    transaction: Transaction<'c>,
    _turn: Turn,
}

impl OwnBlockingTransaction<'_> {
    /// Commits, for one that does not end with a claim.
    pub fn commit(self) -> rusqlite::Result<()> {
        self.transaction.commit()
    }

    /// Rolls back, and says whether that went well.
    pub fn rollback(self) -> rusqlite::Result<()> {
        self.transaction.rollback()
    }
}

impl<'c> Deref for OwnBlockingTransaction<'c> {
    type Target = Transaction<'c>;

    fn deref(&self) -> &Transaction<'c> {
        &self.transaction
    }
}

impl BlockingTransaction for OwnBlockingTransaction<'_> {
    fn connection(&self) -> &Connection {
        self
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.commit()
    }
}

/// What a connection says about itself: the columns of [`sql::PROMISES`].
pub(super) struct Promises {
    pub(super) synchronous: i64,
    pub(super) file: PathBuf,
    pub(super) attached: i64,
}

impl Inside {
    pub(super) fn new(options: &Options, presence: &Arc<StoreFiles>) -> Self {
        Self {
            clock: Arc::clone(&options.clock),
            accepts_relaxed: options.accepts_relaxed,
            path: options.path.clone(),
            presence: Arc::clone(presence),
            turns: options.turns.clone(),
            patience: options.busy_timeout,
        }
    }

    #[cfg(feature = "sqlx")]
    pub(super) async fn turn(&self) -> Turn {
        self.turns.wait(self.patience).await
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Refuses a connection on which a commit would not mean what it should.
    pub(super) fn check(&self, promises: &Promises) -> Result<(), StoreError> {
        let Promises { synchronous, file, attached } = promises;
        let path = &self.path;
        self.presence.look().map_err(LostFile::into_error)?;
        if !self.presence.is(file) {
            return Err(StoreError::Unusable(format!(
                "the transaction is on {file:?}, but the records are in {path:?}; nothing was \
                 written: an effect and its record commit together only in one file"
            )));
        }
        if self.accepts_relaxed {
            return Ok(());
        }
        if *synchronous < FULL {
            return Err(StoreError::Unusable(format!(
                "the connection of the transaction has `synchronous = {synchronous}` and would lose \
                 acknowledged commits when the power fails; nothing was written: set `PRAGMA \
                 synchronous = FULL` on it"
            )));
        }
        if *attached > 0 {
            return Err(StoreError::Unusable(
                "the connection of the transaction has other files attached, and SQLite commits \
                 several files one after the other; nothing was written: use a connection without \
                 them"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// A path as SQLite gives it, which need not be text.
#[cfg(unix)]
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

pub(super) fn not_open() -> StoreError {
    StoreError::NotOpen(
        "SQLite may have rolled it back by itself after an error, and what was written on this \
         connection since then is committed; the record was left alone"
            .to_owned(),
    )
}

/// SQLite's number for `synchronous = FULL`; `EXTRA` is above it.
const FULL: i64 = 2;

impl SqliteStore {
    /// Begins a transaction that writes, when it is its turn.
    ///
    /// SQLite has one writer at a time and lets all others poll. Transactions that are begun here wait
    /// in line with the store's own, so that none waits for long while others pass; and they begin
    /// with the write lock (`IMMEDIATE`), so that what they read is not outdated when they write.
    ///
    /// ```
    /// # use onceward::store::sqlite::SqliteStore;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut shop = rusqlite::Connection::open(&path)?;
    /// let transaction = store.begin_blocking(&mut shop)?;
    /// transaction.execute("CREATE TABLE charge (cents INTEGER)", [])?;
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_blocking<'c>(
        &self,
        connection: &'c mut Connection,
    ) -> rusqlite::Result<OwnBlockingTransaction<'c>> {
        let turn = self.inner.inside.turns.wait_blocking(self.inner.inside.patience);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(OwnBlockingTransaction { transaction, _turn: turn })
    }

    /// [`swap_in`](onceward_core::Transactional::swap_in) on a connection of rusqlite.
    ///
    /// Begin the transaction with `IMMEDIATE`: one that reads first and writes later fails when
    /// another connection has written in between. After a conflict or an error, roll back.
    ///
    /// ```
    /// # use onceward::{*, store::{Swap, sqlite::SqliteStore}, protocol::*};
    /// # use rusqlite::{Connection, TransactionBehavior};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// # let request = Request {
    /// #     operation: OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?),
    /// #     fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
    /// #     terms: Terms::of(Effect::Transactional).build()?,
    /// # };
    /// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
    /// # let change = admission.change();
    /// let store = SqliteStore::open(&path)?;
    /// let mut shop = Connection::open(&path)?;
    ///
    /// let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// // … the effect, on the same transaction …
    /// match store.swap_in_blocking(&transaction, change)? {
    ///     Swap::Stored { .. } => transaction.commit()?,
    ///     Swap::Conflict(_) | Swap::Held => transaction.rollback()?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn swap_in_blocking(
        &self,
        connection: &Connection,
        change: &Change,
    ) -> Result<Swap, StoreError> {
        self.look_at(connection)?;
        let proposal = Proposal::of(change, &self.inner.codec);
        let swapped = session::swap_once(connection, &proposal, self.inner.inside.now());
        match swapped.map_err(|error| inside(&error, self.path()))? {
            Ok(at) => Ok(Swap::Stored { at }),
            Err(stored) => Ok(Swap::Conflict(self.decode(&change.id, stored)?)),
        }
    }

    /// [`put_in`](onceward_core::Transactional::put_in) on a connection of rusqlite.
    pub fn put_in_blocking(
        &self,
        connection: &Connection,
        id: &SpoolId,
        index: u32,
        chunk: &[u8],
    ) -> Result<(), StoreError> {
        self.look_at(connection)?;
        let chunk = self.inner.codec.seal_chunk(id, index, chunk);
        let put = session::put_once(connection, id, index, &chunk, self.inner.inside.now());
        put.map_err(|error| inside(&error, self.path()))
    }

    /// Commits what is open on this connection.
    pub(crate) fn commit_on(&self, connection: &Connection) -> Result<(), StoreError> {
        connection.execute_batch(sql::COMMIT).map_err(|error| at_commit(&error))?;
        self.look_after_commit()
    }

    /// Whatever was committed into a file that has no name is not durable.
    pub(crate) fn look_after_commit(&self) -> Result<(), StoreError> {
        self.inner.inside.presence.look().map_err(|gone| gone.after_commit())
    }

    /// One swap in a transaction of its own on this connection.
    pub(crate) fn renew_on(
        &self,
        connection: &Connection,
        change: &Change,
    ) -> Result<Swap, StoreError> {
        let explain = |error| inside(&error, self.path());
        connection.execute_batch(sql::BEGIN).map_err(explain)?;
        let swap = self.swap_in_blocking(connection, change);
        let end = if swap.is_ok() { sql::COMMIT } else { sql::ROLLBACK };
        connection.execute_batch(end).map_err(|error| at_commit(&error))?;
        swap
    }

    pub(super) fn look_at(&self, connection: &Connection) -> Result<(), StoreError> {
        if connection.is_autocommit() {
            return Err(not_open());
        }
        let promises = connection.prepare_cached(sql::PROMISES).and_then(|mut statement| {
            statement.query_row([], |row| {
                let (synchronous, attached) = (row.get(0)?, row.get(2)?);
                Ok(Promises { synchronous, file: path_of(row.get(1)?), attached })
            })
        });
        self.inner.inside.check(&promises.map_err(|error| inside(&error, self.path()))?)
    }
}
