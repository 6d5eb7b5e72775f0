//! The records move into a database that is the user's own.

use std::{
    path::Path,
    sync::{Arc, Barrier},
    thread,
};

use onceward::store::sqlite::{OpenError, SqliteStore};
use rusqlite::Connection;

use crate::{
    commit::shop::{CommitMethod, Till, service_on},
    server_support::{ask, created, is_charged, is_replayed},
};

const NOTES: u32 = 500;

/// A shop that has run for years, with a rollback journal and pages of its own.
fn an_old_shop(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let tables = "PRAGMA page_size = 1024;
        PRAGMA journal_mode = DELETE;
        PRAGMA user_version = 42;
        PRAGMA application_id = 7;
        CREATE TABLE charges (id INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT;
        CREATE INDEX charges_by_note ON charges (note);
        CREATE VIEW notes AS SELECT note FROM charges;
        CREATE TRIGGER no_empty_note BEFORE INSERT ON charges WHEN new.note = ''
        BEGIN SELECT raise(ABORT, 'empty'); END;";
    connection.execute_batch(tables).unwrap();
    for number in 0..NOTES {
        let note = format!("an old charge {number}");
        connection.execute("INSERT INTO charges (note) VALUES (?1)", [note]).unwrap();
    }
}

/// Everything in a file that is not ours.
fn contents(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut lines = Vec::new();
    for sql in [
        "SELECT user_version FROM pragma_user_version",
        "SELECT application_id FROM pragma_application_id",
        "SELECT page_size FROM pragma_page_size",
        "SELECT sql FROM sqlite_schema
         WHERE tbl_name NOT LIKE 'onceward%' AND name <> 'sqlite_sequence' ORDER BY name",
        "SELECT note FROM notes ORDER BY note",
        "SELECT integrity_check FROM pragma_integrity_check",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
        lines.extend(rows.map(|row| format!("{:?}", row.unwrap())));
    }
    lines
}

fn journal_mode(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_tables_are_added_to_a_database_and_its_own_data_is_left_alone() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    an_old_shop(&path);
    let before = contents(&path);
    let bytes = std::fs::read(&path).unwrap();

    let tables = SqliteStore::builder(&path).tables().unwrap();
    assert!(tables.found == 0 && tables.known > 0 && !tables.is_current(), "{tables:?}");
    let refused = SqliteStore::builder(&path).without_migrations().open().unwrap_err();
    let outdated = OpenError::Outdated { path: path.clone(), found: 0, needed: tables.known };
    assert_eq!(refused, outdated);
    assert!(refused.to_string().contains("onceward migrate"), "{refused}");
    assert!(std::fs::read(&path).unwrap() == bytes, "to look is not to touch");
    assert_eq!(journal_mode(&path), "delete");

    assert!(SqliteStore::builder(&path).migrate().unwrap().is_current());
    assert_eq!(contents(&path), before);
    assert_eq!(journal_mode(&path), "wal");
    assert!(SqliteStore::builder(&path).migrate().unwrap().is_current(), "once more does nothing");
    let store = SqliteStore::builder(&path).without_migrations().open().unwrap();
    assert_eq!(SqliteStore::builder(&path).tables().unwrap().found, tables.known);
    assert_eq!(contents(&path), before);

    let till = Till::new(path.clone());
    for (number, way) in (1..).zip(CommitMethod::ALL) {
        let app = service_on(
            store.clone(),
            till.clone(),
            |layer| layer,
            move |till, claim| async move { till.charge(way, &claim, created("charge 1")).await },
        );
        let key = format!("{way:?}");
        let first = ask(&app, &key).await;
        is_charged(&first, "charge 1");
        is_replayed(&app, &key, &first).await;
        let charges: u32 =
            till.connect().query_row("SELECT count(*) FROM charges", [], |row| row.get(0)).unwrap();
        assert_eq!(charges, NOTES + number, "{way:?}");
    }
}

#[test]
fn a_file_that_does_not_exist_is_not_made_without_migrations() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    let refused = SqliteStore::builder(&path).without_migrations().open().unwrap_err();
    assert!(matches!(refused, OpenError::Outdated { found: 0, .. }), "{refused:?}");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert_eq!(SqliteStore::builder(&path).tables().unwrap().found, 0);
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing was created");
}

#[test]
fn migrations_at_once_are_made_once_and_the_shop_goes_on_meanwhile() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    an_old_shop(&path);
    let before = contents(&path);
    let start = Arc::new(Barrier::new(4));
    let migrations = [(); 3].map(|()| {
        let (path, start) = (path.clone(), start.clone());
        thread::spawn(move || {
            start.wait();
            SqliteStore::builder(path).migrate()
        })
    });
    start.wait();
    for migration in migrations {
        assert!(migration.join().unwrap().unwrap().is_current());
    }
    assert_eq!(contents(&path), before);
    let connection = Connection::open(&path).unwrap();
    let count = "SELECT count(*) FROM onceward_schema";
    let applied: u32 = connection.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(applied, SqliteStore::builder(&path).tables().unwrap().known, "each once");
}

/// A user's transaction that is open is waited for, and nothing is half made.
#[test]
fn a_migration_waits_for_the_shop_and_gives_up_without_a_trace() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    an_old_shop(&path);
    let before = contents(&path);
    let mut shop = Connection::open(&path).unwrap();
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = shop.transaction_with_behavior(behavior).unwrap();
    let builder = || SqliteStore::builder(&path).busy_timeout(std::time::Duration::from_millis(20));
    let refused = builder().migrate().unwrap_err();
    assert!(matches!(refused, OpenError::Busy { .. }), "{refused:?}");
    transaction.rollback().unwrap();
    assert_eq!(contents(&path), before);
    assert_eq!(builder().tables().unwrap().found, 0);
    assert!(
        builder().busy_timeout(std::time::Duration::from_secs(5)).migrate().unwrap().is_current()
    );
    assert_eq!(contents(&path), before);
}

#[test]
fn tables_of_newer_software_are_left_alone() {
    let directory = testbed::directory();
    let path = directory.path().join("shop.db");
    an_old_shop(&path);
    SqliteStore::builder(&path).migrate().unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute("INSERT INTO onceward_schema VALUES (999, 0)", []).unwrap();
    for refused in [
        SqliteStore::builder(&path).migrate().unwrap_err(),
        SqliteStore::builder(&path).open().unwrap_err(),
        SqliteStore::builder(&path).without_migrations().open().unwrap_err(),
    ] {
        assert!(matches!(refused, OpenError::Newer { found: 999, .. }), "{refused:?}");
    }
    assert_eq!(SqliteStore::builder(&path).tables().unwrap().found, 999);
}
