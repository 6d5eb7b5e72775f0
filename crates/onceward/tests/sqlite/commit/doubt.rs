//! Commits whose answer is lost, records that are damaged, and waits that must end.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use onceward::{
    CommitError, Ending, Engine, Outcome, StoreError, engine::Transaction,
    store::sqlite::SqliteStore,
};
use sqlx::{Connection as _, Sqlite, SqliteConnection};

use crate::{
    commit::engine::claim,
    commit::shop::{CommitMethod, Shop},
    server_support::{Pieces, ask, created, is_charged, is_problem, is_replayed},
};

fn paid() -> Ending {
    Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))
}

/// A transaction whose commit fails after it was made, or instead of it.
struct Failing<F> {
    transaction: sqlx::Transaction<'static, Sqlite>,
    is_made: bool,
    meanwhile: F,
}

impl<F: Future<Output = ()> + Send> Transaction for Failing<F> {
    type Connection = SqliteConnection;
    type Store = SqliteStore;

    fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    fn is_outermost(&self) -> bool {
        true
    }

    async fn commit(self) -> Result<(), StoreError> {
        match self.is_made {
            true => self.transaction.commit().await.unwrap(),
            false => self.transaction.rollback().await.unwrap(),
        }
        self.meanwhile.await;
        Err(StoreError::Unavailable("the answer was lost".into()))
    }
}

async fn commits(
    shop: &Shop,
    is_made: bool,
    meanwhile: impl Future<Output = ()> + Send,
) -> Result<(), CommitError> {
    let engine = Engine::new(shop.store.clone());
    let claim = claim(&engine, "k").await;
    let transaction = shop.till.begin_charge().await;
    engine.commit(&claim, Failing { transaction, is_made, meanwhile }, paid()).await
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_known_by_its_fence() {
    let shop = Shop::new();
    assert_eq!(commits(&shop, true, async {}).await, Ok(()));
    assert_eq!(shop.charges(), 1);
}

/// sqlx does not notice that it commits into a log without a name: what only this process has is not durable.
#[tokio::test]
async fn a_commit_into_a_log_that_was_deleted_is_not_acknowledged() {
    struct Deleting(sqlx::Transaction<'static, Sqlite>, std::path::PathBuf);
    impl Transaction for Deleting {
        type Connection = SqliteConnection;
        type Store = SqliteStore;

        fn connection(&mut self) -> &mut SqliteConnection {
            &mut self.0
        }

        fn is_outermost(&self) -> bool {
            true
        }

        async fn commit(self) -> Result<(), StoreError> {
            std::fs::remove_file(self.1).unwrap();
            Transaction::commit(self.0).await
        }
    }
    let shop = Shop::new();
    let engine = Engine::new(shop.store.clone());
    let claim = claim(&engine, "k").await;
    let log = shop.till.path.with_extension("db-wal");
    let transaction = Deleting(shop.till.begin_charge().await, log);
    let told = engine.commit(&claim, transaction, paid()).await;
    assert!(matches!(told, Err(CommitError::Doubtful(_))), "{told:?}");
}

/// The renewal is a commit of its own: what the log may hold of the failed one is overwritten.
#[tokio::test]
async fn a_commit_that_was_not_made_is_known_by_a_renewal() {
    let shop = Shop::new();
    let told = commits(&shop, false, async {}).await;
    assert!(matches!(told, Err(CommitError::NotCommitted(_))), "{told:?}");
    assert_eq!(shop.charges(), 0);
}

#[tokio::test]
async fn a_commit_is_known_by_its_fence_though_its_record_is_damaged() {
    let shop = Shop::new();
    let path = shop.till.path.clone();
    let damage = async move {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute("UPDATE onceward_record SET body = zeroblob(40)", []).unwrap();
    };
    assert_eq!(commits(&shop, true, damage).await, Ok(()));
}

#[tokio::test]
async fn a_commit_whose_record_is_gone_is_doubtful() {
    let shop = Shop::new();
    let path = shop.till.path.clone();
    let delete = async move {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute("DELETE FROM onceward_record", []).unwrap();
    };
    let told = commits(&shop, true, delete).await;
    assert!(matches!(told, Err(CommitError::Doubtful(_))), "{told:?}");
}

#[tokio::test]
async fn the_engine_does_not_commit_a_savepoint() {
    let shop = Shop::new();
    let engine = Engine::new(shop.store.clone());
    let claim = claim(&engine, "k").await;
    let mut outer = shop.till.begin_charge().await;
    let inner = outer.begin().await.unwrap();
    assert_eq!(engine.commit(&claim, inner, paid()).await, Err(CommitError::Savepoint));
    outer.rollback().await.unwrap();
    assert_eq!(shop.charges(), 0);
}

/// A connection must not go back to its pool with a transaction that nobody knows of.
#[tokio::test]
async fn a_rollback_inside_a_savepoint_does_not_poison_the_pool() {
    let shop = Shop::new();
    let unique = "CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)";
    shop.till.connect().execute_batch(unique).unwrap();
    let app = shop.app(|till, claim| async move {
        let mut transaction = till.begin_charge().await;
        let mut savepoint = transaction.begin().await?;
        let again = sqlx::query("INSERT OR ROLLBACK INTO once VALUES (1)");
        assert!(again.execute(&mut *savepoint).await.is_err(), "it is there already");
        claim.complete_in(&mut savepoint, created("charge 1")).await
    });
    is_problem(&ask(&app, "k").await, 504, "outcome-unknown");
    let plain = sqlx::query("INSERT INTO charges (note) VALUES ('plain')");
    plain.execute(&shop.till.pool).await.unwrap();
    assert_eq!(shop.charges(), 1, "somebody else's write is committed");
}

/// The library's own refusal is no answer of the service.
#[tokio::test]
async fn a_refusal_of_the_library_does_not_bind_the_key() {
    let shop = Shop::new();
    let engine = Engine::new(shop.store.clone());
    let app = shop.app(move |till, claim| {
        let engine = engine.clone();
        async move {
            let mut transaction = till.begin_charge().await;
            if claim.attempt() == 1 {
                // Ended in the transaction that is rolled back by the error of the second end.
                engine.settle_in(&claim, &mut transaction, Ending::FailedRetryable).await?;
            }
            claim.commit(transaction, created("charge 1")).await
        }
    });
    is_problem(&ask(&app, "k").await, 500, "misconfigured");
    let retry = ask(&app, "k").await;
    is_charged(&retry, "charge 1");
    is_replayed(&app, "k", &retry).await;
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_record_that_was_damaged_after_its_commit_is_unknown() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        let done = till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
        let damage = "UPDATE onceward_record SET body = zeroblob(40)";
        till.connect().execute(damage, []).unwrap();
        done
    });
    for _ in 0..2 {
        is_problem(&ask(&app, "k").await, 409, "outcome-unknown");
    }
    assert_eq!(shop.charges(), 1);
}

/// Nobody else can write while an answer is waited for.
#[tokio::test]
async fn an_answer_that_does_not_end_gives_the_lock_back() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        let transaction = claim.begin(&till.pool).await?;
        claim.commit(transaction, axum::body::Body::new(Pieces::stuck())).await
    });
    is_problem(&ask(&app, "k").await, 503, "not-committed");
    let other = shop.till.connect();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute("INSERT INTO charges (note) VALUES ('another')", []).unwrap();
}

/// Tokio lets a task that was busy for long wait for its scheduler, which a thread that blocks never
/// reaches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_noticed_by_a_task_that_has_used_up_its_time() {
    let shop = Shop::new();
    let held = shop.store.begin(&shop.till.pool).await.unwrap();
    let (store, path) = (shop.store.clone(), shop.till.path.clone());
    let blocked = tokio::spawn(async move {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|number| sender.send(number).unwrap());
        let mut busy = std::pin::pin!(async { while receiver.recv().await.is_some() {} });
        std::future::poll_fn(|context| {
            assert!(busy.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        let mut connection = rusqlite::Connection::open(path).unwrap();
        let start = Instant::now();
        store.begin_blocking(&mut connection).unwrap().rollback().unwrap();
        start.elapsed()
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.rollback().await.unwrap();
    let waited = blocked.await.unwrap();
    assert!(waited < Duration::from_secs(4), "it waited for its patience to end: {waited:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_may_have_a_name_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = testbed::directory();
    let path = directory.path().join(std::ffi::OsStr::from_bytes(b"sh\xffp.db"));
    let store = SqliteStore::open(&path).unwrap();
    let engine = Engine::new(store.clone());
    let claim = claim(&engine, "k").await;
    let mut connection = rusqlite::Connection::open(&path).unwrap();
    let transaction = store.begin_blocking(&mut connection).unwrap();
    assert_eq!(engine.commit_blocking(&claim, transaction, paid()), Ok(()));
}
