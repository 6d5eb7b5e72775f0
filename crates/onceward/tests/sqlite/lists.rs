//! Lists over many blocks of rows, files of the version before, and the census.

use std::{path::Path, sync::Arc, time::Duration};

use onceward::{
    Digest, Effect, Ending, Engine, Key, OperationId, OperationName, Scope, Status, Verdict,
    clock::ManualClock,
    protocol::{
        Found,
        conformance::{Sample, answer},
    },
    store::{
        Filter, Inspect, Order,
        sqlite::{Census, SqliteStore},
    },
};
use rusqlite::{Connection, params};

/// More than two of the blocks of 4096 rows in which the index is sorted.
const ROWS: i64 = 10_000;
const OPERATIONS: [&str; 3] = ["charge", "refund", "void"];
const TENANTS: [&str; 5] = ["acme", "globex", "hooli", "initech", "umbrella"];

struct Line {
    id: Digest,
    operation: &'static str,
    tenant: &'static str,
    key: i64,
}

fn scope(tenant: &str) -> Scope {
    Scope::of("tenant", tenant).unwrap()
}

fn name(operation: &str) -> OperationName {
    OperationName::new(operation).unwrap()
}

fn key(number: i64) -> Key {
    Key::new(&format!("key-{number}")).unwrap()
}

/// Whole blocks are missing in between.
fn with_a_gap(number: i64) -> i64 {
    if number < 5000 { number + 1 } else { number + 20_000 }
}

/// One row in each block.
fn far_apart(number: i64) -> i64 {
    number * 4096 + number % 4096
}

/// Rows that only their columns tell about.
fn fill(path: &Path, rows: i64, seq_of: fn(i64) -> i64) -> Vec<Line> {
    let mut connection = Connection::open(path).unwrap();
    let transaction = connection.transaction().unwrap();
    let mut lines = Vec::new();
    for number in 0..rows {
        let operation = OPERATIONS[(number * 7 % 30 / 13) as usize];
        let tenant = TENANTS[(number / 3 % 5) as usize];
        let key_number = number % (rows / 3);
        let id = OperationId::new(scope(tenant), name(operation), key(key_number)).digest();
        let seq = seq_of(number);
        let insert = "INSERT OR IGNORE INTO onceward_record
            (seq, digest, fence, state, started_at, updated_at, scope, operation, body)
            VALUES (?1, ?2, zeroblob(16), 3, ?1, ?1, ?3, ?4, X'')";
        let scope = scope(tenant).to_string();
        if transaction.execute(insert, params![seq, id.0, scope, operation]).unwrap() == 1 {
            lines.push(Line { id, operation, tenant, key: key_number });
        }
    }
    transaction.commit().unwrap();
    lines
}

async fn all(store: &SqliteStore, mut filter: Filter) -> Vec<Digest> {
    let mut listed = Vec::new();
    loop {
        let page = store.list(&filter).await.unwrap();
        assert!(page.listed.len() <= filter.limit as usize);
        listed.extend(page.listed.into_iter().map(|line| line.id));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return listed,
        }
    }
}

#[tokio::test]
async fn groups_and_keys_are_found_in_order_over_all_blocks() {
    finds_groups_and_keys(ROWS, with_a_gap).await;
}

/// More blocks than one page of a key goes through.
#[tokio::test]
async fn groups_and_keys_are_found_in_order_over_several_pages() {
    finds_groups_and_keys(500, far_apart).await;
}

async fn finds_groups_and_keys(rows: i64, seq_of: fn(i64) -> i64) {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let store = SqliteStore::open(&path).unwrap();
    let lines = fill(&path, rows, seq_of);
    assert!(lines.len() as i64 > rows / 2, "{}", lines.len());
    let refund = || Some(name("refund"));
    let hooli = || Some(scope("hooli"));
    let of_hooli: Vec<&Line> = lines.iter().filter(|line| line.tenant == "hooli").collect();
    let used = of_hooli[of_hooli.len() / 2].key;
    type Wanted = Box<dyn Fn(&Line) -> bool>;
    let cases: [(Filter, Wanted); 6] = [
        (Filter::default(), Box::new(|_| true)),
        (
            Filter { operation: refund(), ..Filter::default() },
            Box::new(|line| line.operation == "refund"),
        ),
        (Filter { scope: hooli(), ..Filter::default() }, Box::new(|line| line.tenant == "hooli")),
        (
            Filter { operation: refund(), scope: hooli(), ..Filter::default() },
            Box::new(|line| line.operation == "refund" && line.tenant == "hooli"),
        ),
        (
            Filter { key: Some(key(used)), ..Filter::default() },
            Box::new(move |line| line.key == used),
        ),
        (
            Filter { key: Some(key(used)), scope: hooli(), ..Filter::default() },
            Box::new(move |line| line.key == used && line.tenant == "hooli"),
        ),
    ];
    for (filter, wanted) in cases {
        let mut expected: Vec<Digest> =
            lines.iter().filter(|line| wanted(line)).map(|line| line.id).collect();
        assert!(!expected.is_empty(), "{filter:?}");
        for order in [Order::OldestFirst, Order::NewestFirst] {
            for limit in [1, 137, 500] {
                if limit == 1 && expected.len() > 1000 {
                    continue;
                }
                let filter = Filter { order, limit, ..filter.clone() };
                assert_eq!(all(&store, filter.clone()).await, expected, "{filter:?}");
            }
            expected.reverse();
        }
    }
    let nobody = Filter { scope: Some(scope("nobody")), ..Filter::default() };
    assert_eq!(all(&store, nobody).await, []);
}

#[tokio::test]
async fn a_file_of_version_1_is_brought_up_to_date_and_listed() {
    let directory = testbed::directory();
    let path = directory.path().join("onceward.db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(concat!(
            include_str!("../../migrations/sqlite/0001_records.sql"),
            "CREATE TABLE onceward_schema (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)
                STRICT;
             INSERT INTO onceward_schema VALUES (1, 0);"
        ))
        .unwrap();
    let lines = fill(&path, ROWS, with_a_gap);
    assert_eq!(SqliteStore::builder(&path).tables().unwrap().found, 1);
    let store = SqliteStore::open(&path).unwrap();
    assert!(SqliteStore::builder(&path).tables().unwrap().is_current());
    let filter = Filter { scope: Some(scope("acme")), limit: 500, ..Filter::default() };
    let expected: Vec<_> =
        lines.iter().filter(|line| line.tenant == "acme").map(|line| line.id).collect();
    assert_eq!(all(&store, filter).await, expected);
}

struct Rig {
    clock: Arc<ManualClock>,
    store: SqliteStore,
    engine: Engine,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let directory = testbed::directory();
        let clock = Arc::new(ManualClock::default());
        let path = directory.path().join("onceward.db");
        let store = SqliteStore::builder(path).clock(clock.clone()).open().unwrap();
        let engine = Engine::new(store.clone());
        Self { clock, store, engine, _directory: directory }
    }

    async fn claim(&self, effect: Effect) -> (Sample, onceward::protocol::Claim) {
        let sample = Sample::new(effect);
        match self.engine.admit(sample.request(b'a')).await.unwrap() {
            Verdict::Run(claim) => (sample, claim),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_census_counts_what_is_open_and_how_large_the_files_are() {
    let rig = Rig::new();
    let empty = rig.store.census().await.unwrap();
    assert!(empty.is_complete && empty.file_bytes > 0 && empty.free_bytes.is_some(), "{empty:?}");
    assert_eq!((empty.oldest_open, empty.last_write), (None, None));

    rig.claim(Effect::External).await;
    rig.claim(Effect::Transactional).await;
    rig.clock.advance(Duration::from_secs(60));
    let (_, running) = rig.claim(Effect::External).await;
    for ending in [
        Ending::FailedRetryable,
        Ending::Unknown,
        Ending::Succeeded(answer(201)),
        Ending::FailedFinal(answer(402)),
        Ending::Released,
    ] {
        let (_, claim) = rig.claim(Effect::External).await;
        rig.engine.settle(claim, ending).await.unwrap();
    }
    let census = rig.store.census().await.unwrap();
    let Census { in_progress, interrupted, failed_retryable, unknown, .. } = census;
    assert_eq!((in_progress, interrupted, failed_retryable, unknown), (1, 1, 1, 2));
    assert_eq!(census.oldest_open, Some(Duration::from_secs(60)));
    assert_eq!(census.last_write, Some(running.claimed_at()));
    assert!(census.is_complete && census.log_bytes > 0, "{census:?}");
}

#[tokio::test]
async fn the_census_stops_counting_and_says_so() {
    let rig = Rig::new();
    let fill = format!(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT {})
         INSERT INTO onceward_record
            (digest, fence, state, started_at, updated_at, scope, operation, body)
         SELECT randomblob(32), randomblob(16), 1, 0, 0, 'global', 'o', X'' FROM number",
        Census::MAX_COUNTED + 1
    );
    Connection::open(rig.store.path()).unwrap().execute_batch(&fill).unwrap();
    let census = rig.store.census().await.unwrap();
    assert_eq!((census.unknown, census.is_complete), (u64::from(Census::MAX_COUNTED), false));
}

#[tokio::test]
async fn a_first_claim_that_is_made_again_is_young_again() {
    let rig = Rig::new();
    let (sample, claim) = rig.claim(Effect::External).await;
    rig.engine.settle(claim, Ending::Released).await.unwrap();
    rig.clock.advance(Duration::from_secs(20));
    let hour = Filter { older: Some(Duration::from_secs(20)), ..Filter::default() };
    assert_eq!(all(&rig.store, hour.clone()).await, [sample.id()]);
    let again = rig.engine.admit(sample.request(b'b')).await.unwrap();
    assert!(matches!(again, Verdict::Run(_)), "{again:?}");
    assert_eq!(all(&rig.store, hour.clone()).await, []);
    rig.clock.advance(Duration::from_secs(20));
    let listed = rig.store.list(&hour).await.unwrap().listed;
    let Found::Record(stored) = &listed[0].found else { panic!("{listed:?}") };
    assert_eq!((stored.status(), stored.age()), (Status::InProgress, Duration::from_secs(20)));
}
