//! Files that are deleted or replaced under a store that is in use: nothing is acknowledged any more.

use std::{fs, path::PathBuf, time::Duration};

use onceward::{
    AdmitError, Effect, Ending, Engine, Store, StoreError, Verdict,
    protocol::{
        Found,
        conformance::{Sample, answer},
    },
    store::sqlite::{OpenError, SqliteStore},
    telemetry,
};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

/// A store with one operation that has ended and one that runs.
struct Served {
    _directory: TempDir,
    path: PathBuf,
    store: SqliteStore,
    engine: Engine,
    ended: Sample,
    claim: Option<onceward::protocol::Claim>,
}

impl Served {
    async fn new() -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("onceward.db");
        let store = SqliteStore::open(&path).unwrap();
        let engine = Engine::new(store.clone());
        let ended = Sample::new(Effect::External);
        let claim = claimed(&engine, &ended).await;
        engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
        let claim = Some(claimed(&engine, &Sample::new(Effect::External)).await);
        Self { _directory: directory, path, store, engine, ended, claim }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        format!("{}{ending}", self.path.to_str().unwrap()).into()
    }

    /// Neither a claim nor an end nor an answer from before: what is only here is not durable.
    async fn refuses_everything(&mut self) {
        let new = Sample::new(Effect::External);
        let verdict = self.engine.admit(new.request(b'a')).await;
        let Err(AdmitError::Store(StoreError::Unusable(detail))) = verdict else {
            panic!("nothing may be claimed: {verdict:?}");
        };
        assert!(detail.contains("while it was in use"), "{detail}");
        assert!(detail.contains("nothing was written"), "{detail}");
        let claim = self.claim.take().unwrap();
        let settled = self.engine.settle(claim, Ending::Succeeded(answer(201)));
        assert!(settled.await.is_err(), "it cannot be made durable");
        let found = self.store.get(&self.ended.id()).await;
        assert!(matches!(found, Err(StoreError::Unusable(_))), "{found:?}");
        assert!(telemetry::STORE_REPLACED.count() > 0, "the store raises an alarm");
    }
}

async fn claimed(engine: &Engine, sample: &Sample) -> onceward::protocol::Claim {
    match engine.admit(sample.request(b'a')).await {
        Ok(Verdict::Run(claim)) => claim,
        other => panic!("the key is free: {other:?}"),
    }
}

/// The very same file, but shorter than what was committed into it.
#[tokio::test]
async fn a_log_that_was_cut_off_in_its_place_is_noticed() {
    for length in [0, 32, 4152] {
        let mut served = Served::new().await;
        let log = fs::OpenOptions::new().write(true).open(served.beside("-wal")).unwrap();
        assert!(log.metadata().unwrap().len() > length);
        log.set_len(length).unwrap();
        served.refuses_everything().await;

        let Served { _directory, path, store, engine, .. } = Served::new().await;
        let log = format!("{}-wal", path.to_str().unwrap());
        fs::OpenOptions::new().write(true).open(log).unwrap().set_len(length).unwrap();
        drop((store, engine));
        let error = SqliteStore::open(path).unwrap_err();
        assert!(matches!(error, OpenError::CommitsMissing { .. }), "{error:?}");
    }
}

/// SQLite cuts the log off itself when it has copied it, also for other processes.
#[tokio::test]
async fn a_log_that_sqlite_itself_makes_shorter_is_no_alarm() {
    let served = Served::new().await;
    let other = Connection::open(&served.path).unwrap();
    for _ in 0..5 {
        for _ in 0..5 {
            claimed(&served.engine, &Sample::new(Effect::External)).await;
        }
        let busy: bool =
            other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        assert!(!busy);
        assert_eq!(fs::metadata(served.beside("-wal")).unwrap().len(), 0);
    }
    claimed(&served.engine, &Sample::new(Effect::External)).await;
}

/// It comes back when the process ends, so that the next start finds it.
#[tokio::test]
async fn a_mark_that_was_deleted_comes_back() {
    let mut served = Served::new().await;
    fs::remove_file(served.beside("-mark")).unwrap();
    served.refuses_everything().await;

    let Served { _directory, path, store, engine, ended, .. } = Served::new().await;
    fs::remove_file(format!("{}-mark", path.to_str().unwrap())).unwrap();
    drop((store, engine));
    let store = SqliteStore::open(path).unwrap();
    assert!(matches!(store.get(&ended.id()).await, Ok(Found::Record(_))));
}

#[tokio::test]
async fn a_file_that_was_deleted_is_noticed() {
    for ending in ["", "-wal", "-shm"] {
        let mut served = Served::new().await;
        fs::remove_file(served.beside(ending)).unwrap();
        served.refuses_everything().await;
    }
}

/// SQLite keeps the log beside the file, and not beside a link to it.
#[cfg(unix)]
#[tokio::test]
async fn the_log_behind_a_link_is_watched_and_counted_too() {
    let (real, linked) = (testbed::directory(), testbed::directory());
    let (path, link) = (real.path().join("onceward.db"), linked.path().join("link.db"));
    drop(SqliteStore::open(&path).unwrap());
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let engine = Engine::new(SqliteStore::open(&link).unwrap());
    claimed(&engine, &Sample::new(Effect::External)).await;
    assert!(real.path().join("onceward.db-mark").exists(), "one store has one mark");
    fs::remove_file(real.path().join("onceward.db-wal")).unwrap();
    let verdict = engine.admit(Sample::new(Effect::External).request(b'a')).await;
    assert!(matches!(verdict, Err(AdmitError::Store(StoreError::Unusable(_)))), "{verdict:?}");
}

#[tokio::test]
async fn a_file_that_was_replaced_is_noticed() {
    for ending in ["", "-wal", "-shm"] {
        let mut served = Served::new().await;
        let (file, copy) = (served.beside(ending), served.beside("-copy"));
        fs::copy(&file, &copy).unwrap();
        fs::rename(copy, file).unwrap();
        served.refuses_everything().await;
    }
}

/// The log goes between the look before a commit and the commit: it is not acknowledged, and its claim is
/// not found either by asking again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_goes_during_a_commit_is_noticed_before_it_is_acknowledged() {
    let served = Served::new().await;
    let other = Connection::open(&served.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = Sample::new(Effect::External);
    let (engine, request) = (served.engine.clone(), new.request(b'a'));
    let admitted = tokio::spawn(async move { engine.admit(request).await });
    // The writer looks before it begins to wait for the lock.
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs::remove_file(served.beside("-wal")).unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    let verdict = admitted.await.unwrap();
    assert!(matches!(verdict, Err(AdmitError::Store(_))), "{verdict:?}");
}

/// A log without a name is copied into the file as long as the process lives, so that nothing of it is lost.
#[tokio::test]
async fn a_deleted_log_is_saved_when_the_store_is_closed() {
    let Served { _directory, path, store, engine, ended, .. } = Served::new().await;
    fs::remove_file(format!("{}-wal", path.to_str().unwrap())).unwrap();
    let new = Sample::new(Effect::External);
    assert!(engine.admit(new.request(b'a')).await.is_err());
    drop((store, engine));
    let store = SqliteStore::open(&path).unwrap();
    assert!(matches!(store.get(&ended.id()).await, Ok(Found::Record(_))));
}

#[tokio::test]
async fn the_users_own_transaction_is_refused_too() {
    let served = Served::new().await;
    let mut shop = Connection::open(&served.path).unwrap();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    fs::remove_file(served.beside("-wal")).unwrap();
    let claim = served.claim.unwrap();
    let swap = served.store.swap_in_blocking(&transaction, &claim.renew());
    assert!(matches!(swap, Err(StoreError::Unusable(_))), "{swap:?}");
}

/// An older state that is put into the very same file is noticed with the next commit.
#[tokio::test]
async fn a_store_that_went_back_under_way_is_noticed() {
    let served = Served::new().await;
    let other = Connection::open(&served.path).unwrap();
    let mark = "SELECT mark FROM onceward_mark";
    let older: Vec<u8> = other.query_row(mark, [], |row| row.get(0)).unwrap();
    claimed(&served.engine, &Sample::new(Effect::External)).await;
    other.execute("UPDATE onceward_mark SET mark = ?1", [older]).unwrap();
    let verdict = served.engine.admit(Sample::new(Effect::External).request(b'a')).await;
    let Err(AdmitError::Store(StoreError::Unusable(detail))) = verdict else {
        panic!("nothing may be claimed: {verdict:?}");
    };
    assert!(detail.contains("ends with commit 3, though commit 4"), "{detail}");
}
