//! The view for people.

use std::{path::Path, sync::Arc};

use onceward::{
    protocol::{Found, Unreadable},
    seal::Keyring,
    store::{Filter, Inspect as _, sqlite::SqliteStore},
};
use rusqlite::Connection;

use crate::operations_support::{
    COLUMNS, Lines, assert_every_word, assert_same, line, listed, store_all,
};

fn column(name: &str) -> String {
    let value = match name {
        "started_at" | "updated_at" | "expires_at" | "lease_until" => {
            format!("strftime('%s', {name}) * 1000000 + substr({name}, 21, 6)")
        }
        "is_open" => "iif(is_open, 'true', 'false')".to_owned(),
        name => name.to_owned(),
    };
    format!("CAST({value} AS TEXT)")
}

/// Everything that it shows.
fn view(path: &Path) -> Lines {
    let connection = Connection::open(path).unwrap();
    let question = format!("SELECT {} FROM onceward_operations", COLUMNS.map(column).join(", "));
    let mut statement = connection.prepare(&question).unwrap();
    let lines = statement.query_map([], |row| {
        let values: Result<Vec<Option<String>>, _> =
            (0..COLUMNS.len()).map(|at| row.get(at)).collect();
        Ok(line(values?))
    });
    lines.unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn the_view_says_of_every_record_what_a_list_says() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let store = SqliteStore::open(&path).unwrap();
    let count = store_all(&store).await;
    let listed = listed(&store).await;
    assert_eq!(listed.len(), count);
    assert_every_word(&listed);
    assert_same(&view(&path), &listed);
}

#[tokio::test]
async fn of_a_sealed_answer_the_view_shows_the_code_alone() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let keys = Keyring::parse("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=").unwrap();
    let store = SqliteStore::builder(&path).seal(Arc::new(keys)).open().unwrap();
    store_all(&store).await;
    let mut listed = listed(&store).await;
    let references = listed.values().filter(|line| line["reference_id"].is_some()).count();
    assert_eq!(references, 4, "this test would notice");
    for line in listed.values_mut() {
        line.extend([("reference_type", None), ("reference_id", None)]);
    }
    assert_same(&view(&path), &listed);
}

/// What cannot be read is not absent, and what it was is not guessed.
#[tokio::test]
async fn a_record_that_was_cut_off_is_unknown() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let store = SqliteStore::open(&path).unwrap();
    store_all(&store).await;
    let changes = Connection::open(&path).unwrap();
    for left in ["substr(body, 1, 40)", "substr(body, 1, 2)", "X'01'", "X''"] {
        changes.execute(&format!("UPDATE onceward_record SET body = {left}"), []).unwrap();
        let unknown = "SELECT count(*) FROM onceward_operations WHERE status <> 'unknown'";
        let others: u32 = changes.query_row(unknown, [], |row| row.get(0)).unwrap();
        assert_eq!(others, 0, "{left}");
        assert!(!view(&path).is_empty());
    }
    let listed = store.list(&Filter::default()).await.unwrap().listed;
    let is_damaged =
        |found: &Found| matches!(found, Found::Unreadable { why: Unreadable::Damaged, .. });
    assert!(listed.iter().all(|listed| is_damaged(&listed.found)));
}

#[tokio::test]
async fn whatever_a_record_holds_the_view_can_be_read() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let store = SqliteStore::open(&path).unwrap();
    store_all(&store).await;
    let changes = Connection::open(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..50 {
        let length = random.usize(..60);
        let nonsense: String = (0..length).map(|_| format!("{:02x}", random.u8(..))).collect();
        let body = format!("X'01BF{nonsense}FF0000000000000000'");
        let write = format!("UPDATE onceward_record SET body = {body}");
        changes.execute(&write, []).unwrap();
        assert!(!view(&path).is_empty(), "{nonsense}");
    }
}

#[tokio::test]
async fn what_is_open_is_found_by_an_index_and_nothing_else_is_read() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    SqliteStore::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let question = "EXPLAIN QUERY PLAN
        SELECT id, attempts FROM onceward_operations WHERE is_open AND status = 'unknown'";
    let mut plan = connection.prepare(question).unwrap();
    let plan = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
    let plan: Vec<_> = plan.map(Result::unwrap).collect();
    let by_index = "SEARCH stored USING INDEX onceward_record_state (state<?)";
    assert!(plan.iter().any(|step| step == by_index), "{plan:#?}");
}
