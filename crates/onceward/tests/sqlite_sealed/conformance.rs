//! A store that seals means what every store means.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use onceward::{
    Digest,
    conformance::{block_on, spawn},
    core::conformance::Bench,
    seal::Keyring,
    stores::sqlite::SqliteStore,
};
use tempfile::TempDir;

/// Each store has its own file; all of them go with the bench.
#[derive(Clone)]
struct Sealed {
    directory: Arc<TempDir>,
}

impl Sealed {
    fn new() -> Self {
        Self { directory: Arc::new(tempfile::tempdir().unwrap()) }
    }

    fn store(path: &Path) -> SqliteStore {
        SqliteStore::builder(path).seal(Arc::new(Keyring::new([1; 32]))).open().unwrap()
    }
}

impl Bench for Sealed {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        Self::store(&self.directory.path().join(format!("{}.db", fastrand::u64(..))))
    }

    async fn reopen(&self, store: SqliteStore) -> Option<SqliteStore> {
        let path = store.path().to_owned();
        drop(store);
        Some(Self::store(&path))
    }

    async fn age(&self, store: &SqliteStore, id: &Digest, by: Duration) {
        let connection = rusqlite::Connection::open(store.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
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

onceward::core::store_conformance!(Sealed::new(), block_on);
onceward::core::inspect_conformance!(Sealed::new(), block_on);
onceward::core::spool_conformance!(Sealed::new(), block_on);
onceward::driver_conformance!(Sealed::new(), block_on);
