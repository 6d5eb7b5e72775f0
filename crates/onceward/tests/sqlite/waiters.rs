//! Many requests with one key at the server layer, on `SQLite`: one runs, the others get its answer.

use onceward::store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::waiters_support::{Rig, assert_one_answer, stampede, ten_thousand_wait};

fn store() -> (TempDir, SqliteStore) {
    let directory = testbed::directory();
    let store = SqliteStore::open(directory.path().join("onceward.db")).unwrap();
    (directory, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_first_requests_at_once_one_runs() {
    let (_directory, store) = store();
    let store = std::sync::Arc::new(store);
    for round in 0..10 {
        let rig = Rig::new(store.clone(), 1);
        let replies = stampede(&rig, &format!("round-{round}"), 200).await;
        assert_eq!((rig.executions(), replies.len()), (1, 200));
        assert_one_answer(&replies);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_duplicates_get_the_one_answer() {
    let (_directory, store) = store();
    ten_thousand_wait(store).await;
}
