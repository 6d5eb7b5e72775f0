//! Files that are not what they should be: each is refused with a reason, and nothing is lost.

use std::{fs, path::PathBuf, time::Duration};

use onceward::{
    Effect, Ending, Engine, Store, StoreError, Verdict,
    protocol::{
        Found,
        conformance::{Sample, answer},
    },
    store::sqlite::{OpenError, SqliteStore},
    telemetry,
};
use rusqlite::Connection;
use tempfile::TempDir;

fn file() -> (TempDir, PathBuf) {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    (directory, path)
}

/// A store with one ended operation, closed again.
async fn with_one_record(path: &PathBuf) -> Sample {
    let engine = Engine::new(SqliteStore::open(path).unwrap());
    let sample = Sample::new(Effect::External);
    let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else {
        panic!("the key is free");
    };
    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
    sample
}

#[track_caller]
fn refused(path: &PathBuf, word: &str) -> OpenError {
    let before = fs::read(path).ok();
    let error = SqliteStore::open(path).unwrap_err();
    assert!(error.to_string().contains(word), "{error}");
    assert_eq!(fs::read(path).ok(), before, "the file is untouched");
    error
}

#[test]
fn an_empty_file_becomes_a_store() {
    let (_directory, path) = file();
    fs::write(&path, b"").unwrap();
    SqliteStore::open(&path).unwrap();
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let (_directory, path) = file();
    fs::write(&path, "this is a letter, and a long one. ".repeat(100)).unwrap();
    let error = refused(&path, "not an SQLite database");
    assert!(matches!(error, OpenError::NotADatabase { .. }));
}

#[tokio::test]
async fn a_damaged_header_is_refused() {
    let (_directory, path) = file();
    with_one_record(&path).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[..16].fill(0x55);
    fs::write(&path, &bytes).unwrap();
    refused(&path, "untouched");
}

#[tokio::test]
async fn a_damaged_schema_is_refused() {
    let (_directory, path) = file();
    with_one_record(&path).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..4096].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let error = refused(&path, "damaged");
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
}

/// Half of the pages are gone: what is asked for fails or is found, and is never called absent.
#[tokio::test]
async fn damaged_pages_are_never_absence() {
    let (_directory, path) = file();
    let mut samples = Vec::new();
    for _ in 0..40 {
        samples.push(with_one_record(&path).await);
    }
    let mut bytes = fs::read(&path).unwrap();
    let pages = bytes.len() / 4096;
    for page in pages / 2..pages {
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
    }
    fs::write(&path, &bytes).unwrap();
    let Ok(store) = SqliteStore::open(&path) else { return };
    let mut failed = 0;
    for sample in &samples {
        match store.get(&sample.id()).await {
            Ok(Found::Nothing) => panic!("corruption is not absence"),
            Ok(_) => {}
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0, "something was damaged");
    assert!(telemetry::STORE_CORRUPT.count() > 0, "and somebody is told");
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let (_directory, path) = file();
    with_one_record(&path).await;
    let connection = Connection::open(&path).unwrap();
    connection.execute("INSERT INTO onceward_schema VALUES (999, 0)", ()).unwrap();
    drop(connection);
    let error = refused(&path, "version 999");
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error:?}");
}

/// Permissions do not bind root, but an immutable database does: SQLite opens it for reading only.
#[tokio::test]
async fn a_store_that_becomes_read_only_refuses_and_recovers() {
    let (_directory, path) = file();
    let sample = with_one_record(&path).await;
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions.clone()).unwrap();
    match SqliteStore::open(&path) {
        Err(error) => assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}"),
        Ok(_) => eprintln!("skipped: permissions do not bind this user (root)"),
    }
    #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test alone")]
    permissions.set_readonly(false);
    fs::set_permissions(&path, permissions).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert!(matches!(store.get(&sample.id()).await, Ok(Found::Record(_))));
}

#[test]
fn a_missing_directory_and_a_memory_path_are_refused() {
    let (directory, _) = file();
    let error = SqliteStore::open(directory.path().join("no/such/file.db")).unwrap_err();
    assert!(matches!(error, OpenError::DirectoryMissing { .. }), "{error:?}");
    let error = SqliteStore::open(":memory:").unwrap_err();
    assert!(error.to_string().contains("outlives the process"), "{error}");
}

#[test]
fn absurd_settings_are_refused() {
    let (_directory, path) = file();
    let of = || SqliteStore::builder(&path);
    for (option, builder) in [
        ("cache_bytes", of().cache_bytes(0)),
        ("wal_bytes", of().wal_bytes(u64::MAX)),
        ("busy_timeout", of().busy_timeout(Duration::MAX)),
    ] {
        let error = builder.open().unwrap_err();
        assert!(error.to_string().contains(option), "{error}");
    }
    assert!(!path.exists(), "nothing was created");
}

/// Acknowledged into a file that nobody will find again: that must not happen.
#[tokio::test]
async fn a_file_that_was_deleted_under_way_is_noticed() {
    let (_directory, path) = file();
    let store = SqliteStore::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let sample = Sample::new(Effect::External);
    let verdict = Engine::new(store).admit(sample.request(b'a')).await;
    let Err(onceward::AdmitError::Store(StoreError::Unusable(detail))) = verdict else {
        panic!("nothing may be claimed: {verdict:?}");
    };
    assert!(detail.contains("deleted"), "{detail}");
}

#[tokio::test]
async fn somebody_elses_transaction_is_waited_for_and_then_an_error() {
    let (_directory, path) = file();
    let timeout = Duration::from_millis(200);
    let store = SqliteStore::builder(&path).busy_timeout(timeout).open().unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sample = Sample::new(Effect::External);
    let engine = Engine::new(store.clone());
    let verdict = engine.admit(sample.request(b'a')).await;
    assert!(
        matches!(verdict, Err(onceward::AdmitError::Store(StoreError::Unavailable(_)))),
        "{verdict:?}"
    );
    assert_eq!(store.get(&sample.id()).await, Ok(Found::Nothing), "reading goes on");
    let error = SqliteStore::builder(&path).busy_timeout(timeout).open();
    assert!(error.is_ok(), "an existing store needs no lock to be opened: {error:?}");
    other.execute_batch("ROLLBACK").unwrap();
    let verdict = engine.admit(sample.request(b'a')).await;
    assert!(matches!(verdict, Ok(Verdict::Run(_))), "{verdict:?}");
}
