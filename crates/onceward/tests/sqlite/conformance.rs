//! The SQLite store means what every store means, on a real file.

use std::{future::Future, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::{block_on, spawn},
    core::conformance::Bench,
    stores::sqlite::SqliteStore,
};
use tempfile::TempDir;

/// Each store has its own file; all of them go with the bench.
#[derive(Clone)]
struct Sqlite {
    directory: Arc<TempDir>,
}

impl Sqlite {
    fn new() -> Self {
        Self { directory: Arc::new(tempfile::tempdir().unwrap()) }
    }
}

impl Bench for Sqlite {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        let name = format!("{}.db", fastrand::u64(..));
        SqliteStore::open(self.directory.path().join(name)).unwrap()
    }

    async fn reopen(&self, store: SqliteStore) -> Option<SqliteStore> {
        let path = store.path().to_owned();
        drop(store);
        Some(SqliteStore::open(path).unwrap())
    }

    async fn age(&self, store: &SqliteStore, id: &Digest, by: Duration) {
        let connection = rusqlite::Connection::open(store.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        let micros = i64::try_from(by.as_micros()).unwrap();
        connection
            .execute(
                "UPDATE onceward_record SET started_at = started_at - ?2,
                     updated_at = updated_at - ?2, expires_at = expires_at - ?2
                 WHERE digest = ?1",
                (id.0, micros),
            )
            .unwrap();
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

onceward::core::store_conformance!(Sqlite::new(), block_on);
onceward::core::inspect_conformance!(Sqlite::new(), block_on);
onceward::core::spool_conformance!(Sqlite::new(), block_on);
onceward::driver_conformance!(Sqlite::new(), block_on);
