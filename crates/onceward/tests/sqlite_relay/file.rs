//! An outbox in a file of SQLite: each handle is like that of another process.

use std::{path::PathBuf, sync::Arc, time::Duration};

use onceward::{
    message::{InspectQueue, MessageId, NewMessage},
    store::sqlite::SqliteStore,
};
use rusqlite::Connection;
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct File {
    path: PathBuf,
    pub store: SqliteStore,
    _directory: TempDir,
}

impl File {
    pub fn new() -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("shop.db");
        let store = SqliteStore::builder(&path).busy_timeout(PATIENCE).open().unwrap();
        Self { path, store, _directory: directory }
    }

    /// The same outbox once more, as another process opens it.
    pub fn another(&self) -> SqliteStore {
        SqliteStore::builder(&self.path).busy_timeout(PATIENCE).open().unwrap()
    }

    pub fn queue(&self) -> Arc<dyn InspectQueue> {
        Arc::new(self.another())
    }

    pub fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    /// Commits all of them at once.
    pub fn put(&self, messages: &[NewMessage]) -> Vec<MessageId> {
        let mut connection = self.connect();
        let transaction = self.store.begin_blocking(&mut connection).unwrap();
        let enqueue = |message| self.store.enqueue_in_blocking(&transaction, message).unwrap();
        let ids = messages.iter().map(enqueue).collect();
        transaction.commit().unwrap();
        ids
    }
}
