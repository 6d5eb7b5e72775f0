//! What the SQLite store does inside: batches, threads, sweeps, lists, a file shared with others.

use std::{
    collections::HashSet,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use onceward::{
    Effect, Execution, OperationName, State, Status, Store, StoreError,
    clock::ManualClock,
    protocol::{
        Admission, Fence, Found, Record,
        conformance::{Sample, answer, fresh_fence},
    },
    store::{BoxFuture, Change, Cursor, Filter, Inspect, Swap, sqlite::SqliteStore},
};
use rusqlite::Connection;
use sha2::Digest as _;
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct Rig {
    _directory: TempDir,
    path: PathBuf,
    clock: Arc<ManualClock>,
    store: SqliteStore,
}

impl Rig {
    fn new() -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("onceward.db");
        let clock = Arc::new(ManualClock::default());
        let store = SqliteStore::builder(&path).clock(clock.clone()).open().unwrap();
        Self { _directory: directory, path, clock, store }
    }

    /// A connection of somebody else to the same file.
    fn connection(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    /// Keeps the writer waiting until it is dropped, so that what is asked meanwhile is one batch.
    fn hold(&self) -> Hold {
        let connection = self.connection();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Hold(connection)
    }

    async fn ended(&self) -> Change {
        let claim = claim(&Sample::new(Effect::External));
        assert!(is_stored(&self.store.swap(&claim).await));
        let end = end(&claim);
        assert!(is_stored(&self.store.swap(&end).await));
        end
    }

    async fn status(&self, change: &Change) -> Option<Status> {
        match self.store.get(&change.id).await.unwrap() {
            Found::Record(stored) => Some(stored.status()),
            _ => None,
        }
    }
}

struct Hold(Connection);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

/// The change by which a first request claims its operation.
fn claim(sample: &Sample) -> Change {
    let execution = Execution::from_bytes(*fresh_fence().as_bytes());
    Admission::new(sample.request(b'a'), fresh_fence(), execution).change().clone()
}

/// The change by which that claim ends well.
fn end(claim: &Change) -> Change {
    let state = State::Succeeded(answer(201));
    let ttl = onceward::protocol::Ttl::For(DAY);
    let next = Record { fence: fresh_fence(), state, ttl, ..claim.next.clone() };
    Change { expected: Some(claim.next.fence), next, ..claim.clone() }
}

fn is_stored(swap: &Result<Swap, StoreError>) -> bool {
    matches!(swap, Ok(Swap::Stored { .. }))
}

/// Hands the changes over in this order, without waiting for an answer.
fn hand_over<'a>(
    store: &'a SqliteStore,
    changes: &'a [Change],
) -> Vec<BoxFuture<'a, Result<Swap, StoreError>>> {
    let mut context = Context::from_waker(Waker::noop());
    let mut swaps: Vec<_> = changes.iter().map(|change| store.swap(change)).collect();
    for swap in &mut swaps {
        assert!(swap.as_mut().poll(&mut context).is_pending());
    }
    swaps
}

#[tokio::test]
async fn changes_of_one_batch_see_each_other_in_order() {
    let (rig, sample) = (Rig::new(), Sample::new(Effect::External));
    let (first, second) = (claim(&sample), claim(&sample));
    let (late, settled) = (end(&second), end(&first));
    let changes = [first.clone(), second, late, settled.clone(), first.clone()];
    let hold = rig.hold();
    let swaps = hand_over(&rig.store, &changes);
    drop(hold);
    let mut answers = Vec::new();
    for swap in swaps {
        answers.push(match swap.await.unwrap() {
            Swap::Stored { .. } => None,
            Swap::Conflict(Found::Record(stored)) => Some(stored.record.fence),
            other => panic!("{other:?}"),
        });
    }
    let (running, ended) = (Some(first.next.fence), Some(settled.next.fence));
    assert_eq!(answers, [None, running, running, None, ended]);
}

#[tokio::test]
async fn a_change_that_fails_does_not_spoil_its_batch() {
    let rig = Rig::new();
    let changes: Vec<Change> = (0..5).map(|_| claim(&Sample::new(Effect::External))).collect();
    let digest: String = changes[2].id.0.iter().map(|byte| format!("{byte:02X}")).collect();
    rig.connection()
        .execute_batch(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON onceward_record WHEN NEW.digest = X'{digest}'
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .unwrap();
    let hold = rig.hold();
    let swaps = hand_over(&rig.store, &changes);
    drop(hold);
    for (index, swap) in swaps.into_iter().enumerate() {
        let (swap, status) = (swap.await, rig.status(&changes[index]).await);
        match index {
            2 => assert!(matches!(swap, Err(StoreError::Unavailable(_))), "{swap:?}"),
            _ => assert!(is_stored(&swap)),
        }
        assert_eq!(status, (index != 2).then_some(Status::InProgress));
    }
}

/// The futures need no runtime: a thread that sleeps until it is woken is one.
#[test]
fn any_executor_will_do() {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Arc::new(Unpark(thread::current())).into();
        let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }
    let rig = Rig::new();
    let change = block_on(rig.ended());
    assert_eq!(block_on(rig.status(&change)), Some(Status::Succeeded));
    assert_eq!(block_on(rig.store.sweep(10)), Ok(0));
    assert_eq!(block_on(rig.store.list(&Filter::default())).unwrap().listed.len(), 1);
}

#[tokio::test]
async fn the_last_handle_finishes_what_was_handed_over() {
    let Rig { _directory, path, clock, store } = Rig::new();
    let changes: Vec<Change> = (0..100).map(|_| claim(&Sample::new(Effect::External))).collect();
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(hand_over(&store, &changes));
    let closing = thread::spawn(move || drop(store));
    holder.execute_batch("ROLLBACK").unwrap();
    drop(holder);
    closing.join().unwrap();
    assert!(!path.with_extension("db-wal").exists(), "the log is in the file");

    let store = SqliteStore::builder(&path).clock(clock).open().unwrap();
    for change in &changes {
        assert!(matches!(store.get(&change.id).await, Ok(Found::Record(_))));
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_read() {
    let rig = Rig::new();
    for _ in 0..100 {
        let claim = claim(&Sample::new(Effect::External));
        assert!(is_stored(&rig.store.swap(&claim).await));
        assert_eq!(rig.status(&claim).await, Some(Status::InProgress));
        assert!(is_stored(&rig.store.swap(&end(&claim)).await));
        assert_eq!(rig.status(&claim).await, Some(Status::Succeeded));
    }
}

#[tokio::test]
async fn a_sweep_takes_the_oldest_first() {
    let rig = Rig::new();
    let mut changes = Vec::new();
    for _ in 0..6 {
        changes.push(rig.ended().await);
        rig.clock.advance(Duration::from_secs(1));
    }
    rig.clock.advance(2 * DAY);
    assert_eq!(rig.store.sweep(4).await, Ok(4));
    for (index, change) in changes.iter().enumerate() {
        assert_eq!(rig.status(change).await.is_none(), index < 4, "{index}");
    }
}

#[tokio::test]
async fn a_sweep_leaves_what_newer_software_wrote_and_goes_on() {
    let rig = Rig::new();
    let mut changes = Vec::new();
    for _ in 0..4 {
        changes.push(rig.ended().await);
    }
    let connection = rig.connection();
    for newer in &changes[..2] {
        let mut body = onceward::protocol::wire::encode(&newer.id, &newer.next);
        body.truncate(body.len() - 8);
        body[0] = onceward::protocol::wire::VERSION + 1;
        let sum = sha2::Sha256::new().chain_update(newer.id.0).chain_update(&body).finalize();
        body.extend_from_slice(&sum[..8]);
        let update = "UPDATE onceward_record SET body = ?2 WHERE digest = ?1";
        assert_eq!(connection.execute(update, (newer.id.0, body)).unwrap(), 1);
    }
    rig.clock.advance(2 * DAY);
    assert_eq!(rig.store.sweep(1).await, Ok(1), "the newer ones do not count");
    assert_eq!(rig.store.sweep(10).await, Ok(1));
    assert_eq!(rig.store.sweep(10).await, Ok(0));
    for newer in &changes[..2] {
        assert!(matches!(rig.store.get(&newer.id).await, Err(StoreError::Newer(_))));
    }
}

#[tokio::test]
async fn a_list_looks_at_a_bounded_number_of_rows() {
    let rig = Rig::new();
    rig.connection()
        .execute_batch(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 12000)
             INSERT INTO onceward_record
                (digest, fence, state, started_at, updated_at, scope, operation, body)
             SELECT randomblob(32), randomblob(16), 4, 0, 0, '', 'other', X'' FROM number",
        )
        .unwrap();
    let change = rig.ended().await;
    rig.clock.advance(Duration::from_secs(1));
    let (status, older) = (Some(Status::Succeeded), Some(Duration::from_secs(1)));
    let mut filter = Filter { status, older, ..Filter::default() };
    let (mut pages, mut listed) = (0, Vec::new());
    loop {
        let page = rig.store.list(&filter).await.unwrap();
        pages += 1;
        listed.extend(page.listed);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert!(pages > 2, "12,000 rows in {pages} pages");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, change.id);
}

#[tokio::test]
async fn a_list_shows_what_cannot_be_read_and_refuses_a_bad_cursor() {
    let rig = Rig::new();
    let (damaged, claim) = (rig.ended().await, claim(&Sample::new(Effect::External)));
    assert!(is_stored(&rig.store.swap(&claim).await));
    for change in [&damaged, &claim] {
        let damage = "UPDATE onceward_record SET body = X'00' WHERE digest = ?1";
        assert_eq!(rig.connection().execute(damage, [change.id.0]).unwrap(), 1);
    }
    let fences = |filter: Filter| {
        let store = rig.store.clone();
        async move {
            let listed = store.list(&filter).await.unwrap().listed;
            let fence = |found| match found {
                Found::Unreadable { fence, .. } => fence,
                other => panic!("{other:?}"),
            };
            listed.into_iter().map(|line| fence(line.found)).collect::<Vec<Fence>>()
        }
    };
    assert_eq!(fences(Filter::default()).await, [damaged.next.fence, claim.next.fence]);
    let unknown = Filter { status: Some(Status::Unknown), ..Filter::default() };
    assert_eq!(fences(unknown).await, [claim.next.fence], "by status only among the open ones");
    let other = OperationName::new("other").unwrap();
    let none = Filter { operation: Some(other), ..Filter::default() };
    assert_eq!(fences(none).await, []);

    let after = Some(Cursor("page two".into()));
    let error = rig.store.list(&Filter { after, ..Filter::default() }).await;
    assert!(matches!(error, Err(StoreError::Unusable(_))), "{error:?}");
}

#[tokio::test]
async fn an_applications_own_database_keeps_what_is_its_own() {
    let directory = testbed::directory();
    let path = directory.path().join("application.db");
    let own = Connection::open(&path).unwrap();
    own.execute_batch(
        "PRAGMA user_version = 7; PRAGMA application_id = 42;
         CREATE TABLE charge (id INTEGER PRIMARY KEY); INSERT INTO charge VALUES (1);",
    )
    .unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert!(is_stored(&store.swap(&claim(&Sample::new(Effect::External))).await));

    let number = |sql| own.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("PRAGMA user_version"), 7);
    assert_eq!(number("PRAGMA application_id"), 42);
    assert_eq!(number("SELECT count(*) FROM charge"), 1);
    let mut statement = own.prepare("SELECT name FROM sqlite_schema").unwrap();
    let names = statement.query_map((), |row| row.get(0)).unwrap();
    let names: HashSet<String> = names.map(Result::unwrap).collect();
    assert!(names.contains("onceward_record"));
    // The third one is SQLite's own, in which it counts the messages.
    let is_known = |name: &String| {
        name == "charge" || name.starts_with("onceward_") || name == "sqlite_sequence"
    };
    assert!(names.iter().all(is_known), "{names:?}");
}
