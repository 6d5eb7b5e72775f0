//! A bench on files of SQLite, for the suite of all stores.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::spawn,
    protocol::conformance::Bench,
    store::sqlite::{SqliteStore, SqliteStoreBuilder},
};
use rusqlite::Connection;
use tempfile::TempDir;

/// Each store has its own file; all of them go with the bench.
#[derive(Clone)]
pub(crate) struct Files {
    directory: Arc<TempDir>,
    options: fn(SqliteStoreBuilder) -> SqliteStoreBuilder,
}

impl Files {
    /// Stores that are opened with these options.
    pub(crate) fn with(options: fn(SqliteStoreBuilder) -> SqliteStoreBuilder) -> Self {
        Self { directory: Arc::new(testbed::directory()), options }
    }

    fn store(&self, path: &Path) -> SqliteStore {
        (self.options)(SqliteStore::builder(path)).open().unwrap()
    }
}

impl Bench for Files {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        self.store(&self.directory.path().join(format!("{}.db", fastrand::u64(..))))
    }

    async fn reopen(&self, store: SqliteStore) -> Option<SqliteStore> {
        let path = store.path().to_owned();
        drop(store);
        Some(self.store(&path))
    }

    async fn age(&self, store: &SqliteStore, id: &Digest, by: Duration) {
        let connection = Connection::open(store.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let micros = i64::try_from(by.as_micros()).unwrap();
        let sql = "UPDATE onceward_record SET started_at = started_at - ?2,
                       updated_at = updated_at - ?2, expires_at = expires_at - ?2
                   WHERE digest = ?1";
        connection.execute(sql, (id.0, micros)).unwrap();
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}
