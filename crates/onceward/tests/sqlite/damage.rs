//! Files of a store that was killed, damaged before it is opened again: durable commits are not forgotten
//! in silence.

use std::{collections::BTreeMap, fs, path::Path};

use onceward::{
    Effect, Ending, Engine, State, Store, Verdict,
    protocol::{
        Found,
        conformance::{Sample, answer},
    },
    store::sqlite::{OpenError, SqliteStore},
};
use rusqlite::Connection;
use tempfile::TempDir;

const DATABASE: &str = "onceward.db";
const LOG: &str = "onceward.db-wal";
const MARK: &str = "onceward.db-mark";

/// What SQLite puts before all frames of a log, and the size of a frame.
const LOG_HEADER: usize = 32;
const FRAME: usize = 24 + 4096;

/// The files that a killed process leaves, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    /// All but the shared memory, which SQLite makes anew.
    fn of(directory: &Path) -> Self {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let kept = names.filter(|name| !name.ends_with("-shm"));
        Self(kept.map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect())
    }

    fn placed(&self) -> TempDir {
        let directory = testbed::directory();
        for (name, bytes) in &self.0 {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        directory
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut files = self.clone();
        change(files.0.get_mut(name).unwrap());
        files
    }

    fn flipped(&self, place: usize) -> Self {
        self.with(LOG, |log| log[place] ^= 1)
    }

    fn cut(&self, length: usize) -> Self {
        self.with(LOG, |log| log.truncate(length))
    }

    fn without(&self, name: &str) -> Self {
        let mut files = self.clone();
        files.0.remove(name).unwrap();
        files
    }
}

/// A store that was killed when it had run some operations, each in two commits.
struct Killed {
    files: Files,
    samples: Vec<Sample>,
    /// How long the log was after each commit.
    ends: Vec<usize>,
    /// The mark before the first commit.
    first_mark: Vec<u8>,
}

impl Killed {
    async fn after(operations: usize) -> Self {
        let directory = testbed::directory();
        let path = directory.path().join(DATABASE);
        let engine = Engine::new(SqliteStore::open(&path).unwrap());
        let first_mark = fs::read(directory.path().join(MARK)).unwrap();
        // A connection that reads an old state keeps what follows from being copied into the file, so that
        // it is the same on a slow machine.
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM onceward_mark").unwrap();
        let length = || fs::metadata(directory.path().join(LOG)).unwrap().len() as usize;
        let (mut samples, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..operations {
            let sample = Sample::new(Effect::External);
            let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else {
                panic!("the key is free");
            };
            ends.push(length());
            engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
            ends.push(length());
            samples.push(sample);
        }
        let files = Files::of(directory.path());
        drop(reader);
        Self { files, samples, ends, first_mark }
    }

    /// As after a power cut: nothing waits until the mark is on the disk, once it has been made.
    fn at_first(&self, files: &Files) -> Files {
        files.with(MARK, |mark| mark.clone_from(&self.first_mark))
    }

    /// The number of commits that a store lacks which is opened on these files.
    async fn lost(&self, files: &Files) -> Result<usize, OpenError> {
        let directory = files.placed();
        let store = SqliteStore::open(directory.path().join(DATABASE)).inspect_err(|_| {
            // SQLite makes an empty log where there is none.
            let full = |files: &Files| {
                Files(files.0.clone().into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect())
            };
            let left = full(&Files::of(directory.path()));
            assert!(left == full(files), "refused files are left as they are");
        })?;
        let mut lost = 0;
        for sample in &self.samples {
            lost += match store.get(&sample.id()).await.unwrap() {
                Found::Nothing => 2,
                Found::Record(stored) if matches!(stored.record.state, State::InProgress) => 1,
                Found::Record(_) => 0,
                found => panic!("{found:?}"),
            };
        }
        Ok(lost)
    }

    #[track_caller]
    fn is_missing(&self, lost: Result<usize, OpenError>, last: u64) {
        let all = self.ends.len() as u64;
        match lost {
            Err(OpenError::CommitsMissing { found, known, .. }) => {
                assert_eq!((found, known), (Some(last), all));
            }
            other => panic!("commit {last} of {all} is the last: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_killed_process_leaves_is_opened() {
    let killed = Killed::after(5).await;
    assert_eq!(killed.lost(&killed.files).await, Ok(0));
    assert_eq!(killed.lost(&killed.at_first(&killed.files)).await, Ok(0));
    // An older mark, and one that was never written whole.
    let older = Killed::after(1).await.files.0[MARK].clone();
    assert_eq!(killed.lost(&killed.files.with(MARK, |mark| *mark = older)).await, Ok(0));
    assert_eq!(killed.lost(&killed.files.with(MARK, |mark| mark.fill(0))).await, Ok(0));
}

#[tokio::test]
async fn a_flipped_bit_in_the_middle_of_the_log_is_refused() {
    let killed = Killed::after(5).await;
    let place = killed.ends[3] + 1000;
    let damaged = killed.files.flipped(place);
    killed.is_missing(killed.lost(&damaged).await, 4);
    // Without the mark, the log itself tells that commit 9 was durable when commit 10 was written.
    let error = killed.lost(&killed.at_first(&damaged)).await.unwrap_err();
    assert!(matches!(error, OpenError::CommitsMissing { found: Some(4), known: 9, .. }));
    let text = error.to_string();
    for word in ["ends with commit 4", "would run again", "restore a backup", "--accept-loss"] {
        assert!(text.contains(word), "{text}");
    }
}

/// SQLite ignores all of it and says nothing.
#[tokio::test]
async fn a_damaged_header_of_the_log_is_refused() {
    let killed = Killed::after(3).await;
    for place in 0..LOG_HEADER {
        let damaged = killed.files.flipped(place);
        for files in [killed.at_first(&damaged), damaged] {
            let error = killed.lost(&files).await.unwrap_err();
            assert!(matches!(error, OpenError::CommitsMissing { .. }), "{place}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_log_that_was_cut_off_or_removed_is_refused() {
    let killed = Killed::after(5).await;
    let end = killed.ends[7];
    for length in [end, end + 1, end + FRAME] {
        killed.is_missing(killed.lost(&killed.files.cut(length)).await, 8);
    }
    for files in [killed.files.cut(0), killed.files.cut(LOG_HEADER), killed.files.without(LOG)] {
        let error = killed.lost(&files).await.unwrap_err();
        assert!(matches!(error, OpenError::CommitsMissing { known: 10, .. }), "{error:?}");
    }
}

/// The power may have failed before it was synced: this must open, and what is known to be durable decides.
#[tokio::test]
async fn damage_in_the_last_commit_alone_is_taken_for_a_power_cut() {
    let killed = Killed::after(5).await;
    let before = killed.ends[8];
    for place in (before..killed.ends[9]).step_by(FRAME / 4) {
        let damaged = killed.files.flipped(place);
        assert_eq!(killed.lost(&killed.at_first(&damaged)).await, Ok(1), "{place}");
        killed.is_missing(killed.lost(&damaged).await, 9);
    }
    assert_eq!(killed.lost(&killed.at_first(&killed.files).cut(before)).await, Ok(1));
}

/// Sweeps and the user's own connections do not wait for the disk: a power cut may take their commit and
/// leave the next one, and then a later transaction behind the damage proves nothing.
#[tokio::test]
async fn an_unsynced_commit_of_others_before_the_last_one_may_be_torn() {
    let directory = testbed::directory();
    let path = directory.path().join(DATABASE);
    let engine = Engine::new(SqliteStore::open(&path).unwrap());
    let sample = Sample::new(Effect::External);
    let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else { panic!() };
    let mark = fs::read(directory.path().join(MARK)).unwrap();
    let end = fs::metadata(directory.path().join(LOG)).unwrap().len() as usize;
    let user = Connection::open(&path).unwrap();
    user.execute_batch("PRAGMA synchronous = NORMAL; CREATE TABLE shop (name TEXT)").unwrap();
    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
    let files = Files::of(directory.path()).flipped(end + 1000);
    let torn = files.with(MARK, |found| *found = mark);
    let placed = torn.placed();
    let store = SqliteStore::open(placed.path().join(DATABASE)).unwrap();
    let Ok(Found::Record(stored)) = store.get(&sample.id()).await else { panic!() };
    assert!(matches!(stored.record.state, State::InProgress), "the claim was synced");
    assert!(SqliteStore::open(files.placed().path().join(DATABASE)).is_err(), "the end was, too");
}

#[tokio::test]
async fn an_older_file_in_its_place_is_refused_and_another_store_is_not() {
    let killed = Killed::after(4).await;
    let directory = killed.files.placed();
    let path = directory.path().join(DATABASE);
    let backup = directory.path().join("backup.db");
    let engine = Engine::new(SqliteStore::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    drop(connection);
    let later = Sample::new(Effect::External);
    assert!(matches!(engine.admit(later.request(b'a')).await, Ok(Verdict::Run(_))));
    drop(engine);
    fs::rename(&backup, &path).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::CommitsMissing { found: Some(8), known: 9, .. }));

    let other = Killed::after(1).await.files;
    fs::write(&path, &other.0[DATABASE]).unwrap();
    fs::write(directory.path().join(LOG), &other.0[LOG]).unwrap();
    SqliteStore::open(&path).unwrap();
}

/// An empty store in its place would run every key again.
#[tokio::test]
async fn a_database_that_was_deleted_alone_is_refused_until_that_is_accepted() {
    let killed = Killed::after(2).await;
    for files in [
        killed.files.without(DATABASE),
        killed.files.without(DATABASE).without(LOG),
        killed.files.without(DATABASE).without(MARK),
    ] {
        let directory = files.placed();
        let path = directory.path().join(DATABASE);
        let error = SqliteStore::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::DatabaseMissing { .. }), "{error:?}");
        assert!(error.to_string().contains("--accept-loss"), "{error}");
        assert_eq!(Files::of(directory.path()), files, "nothing is made or deleted");
        assert!(SqliteStore::builder(&path).accept_loss("the disk was replaced").unwrap() > 0);
        let engine = Engine::new(SqliteStore::open(&path).unwrap());
        let again = killed.samples[1].request(b'a');
        assert!(matches!(engine.admit(again).await, Ok(Verdict::Run(_))), "it is an empty one");
        drop(engine);
        SqliteStore::open(&path).unwrap();
        let connection = Connection::open(&path).unwrap();
        let reason = "SELECT reason FROM onceward_loss";
        let reason: String = connection.query_row(reason, [], |row| row.get(0)).unwrap();
        assert_eq!(reason, "the disk was replaced");
    }
    let directory = killed.files.without(DATABASE).without(LOG).without(MARK).placed();
    SqliteStore::open(directory.path().join(DATABASE)).unwrap();
}

/// Nothing tells then whether the log was cut off.
#[tokio::test]
async fn a_mark_that_is_gone_is_refused_until_that_is_accepted() {
    let killed = Killed::after(2).await;
    for files in [killed.files.without(MARK), killed.files.with(MARK, |mark| mark.truncate(39))] {
        let error = killed.lost(&files).await.unwrap_err();
        assert!(matches!(error, OpenError::MarkMissing { found: 4, .. }), "{error:?}");
        let directory = files.placed();
        let path = directory.path().join(DATABASE);
        assert_eq!(SqliteStore::builder(&path).accept_loss("it was moved without it"), Ok(1));
        let store = SqliteStore::open(&path).unwrap();
        let found = store.get(&killed.samples[1].id()).await;
        assert!(matches!(found, Ok(Found::Record(_))), "{found:?}");
        assert!(directory.path().join(MARK).exists());
    }
    // Before the first commit there is nothing to lose.
    let directory = testbed::directory();
    let path = directory.path().join(DATABASE);
    drop(SqliteStore::open(&path).unwrap());
    fs::remove_file(directory.path().join(MARK)).unwrap();
    SqliteStore::open(&path).unwrap();
}

#[tokio::test]
async fn an_accepted_loss_is_noted_and_then_the_store_opens() {
    let killed = Killed::after(5).await;
    let damaged = killed.files.flipped(killed.ends[3] + 1000);
    let directory = damaged.placed();
    let path = directory.path().join(DATABASE);
    let accept = |reason| SqliteStore::builder(&path).accept_loss(reason);
    assert!(matches!(accept(" "), Err(OpenError::Setting { option: "reason", .. })));
    assert_eq!(accept("the disk was replaced"), Ok(6));
    assert_eq!(accept("the disk was replaced"), Ok(0));

    let engine = Engine::new(SqliteStore::open(&path).unwrap());
    let id = killed.samples[1].id();
    assert!(matches!(engine.store().get(&id).await, Ok(Found::Record(_))), "before the damage");
    let again = killed.samples[3].request(b'a');
    assert!(matches!(engine.admit(again).await, Ok(Verdict::Run(_))), "accepted, and run again");
    // What was left of the log does not count any more, also when this one is killed.
    let left = Files::of(directory.path());
    drop(engine);
    SqliteStore::open(left.placed().path().join(DATABASE)).unwrap();
    let connection = Connection::open(&path).unwrap();
    let loss = connection
        .query_row("SELECT known, found, reason FROM onceward_loss", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(loss, (10_i64, 4_i64, "the disk was replaced".to_owned()));
}

/// Parts of the log were copied into the file before: the log must not be believed up to the damage only,
/// because pages of different times would lie beside each other.
#[tokio::test]
async fn damage_behind_which_much_was_copied_already_is_refused() {
    let killed = Killed::after(6).await;
    let directory = killed.files.placed();
    let path = directory.path().join(DATABASE);
    let connection = Connection::open(&path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    let files = Files::of(directory.path());
    drop(connection);
    assert_eq!(killed.lost(&files).await, Ok(0));
    let damaged = files.flipped(killed.ends[3] + 1000);
    killed.is_missing(killed.lost(&damaged).await, 4);
}

/// Whatever is done to the log: nothing durable is lost in silence, or, if the mark is gone as well, no more
/// than looks like a power cut.
#[tokio::test]
async fn random_damage_is_refused_or_costs_no_more_than_a_power_cut() {
    let killed = Killed::after(6).await;
    let length = killed.files.0[LOG].len();
    let rounds = if std::env::var_os("ONCEWARD_LONG").is_some() { 5_000 } else { 150 };
    let mut random = fastrand::Rng::with_seed(18);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..rounds {
        let place = random.usize(..length);
        let (damaged, most) = match round % 3 {
            0 => (killed.files.with(LOG, |log| log[place] ^= 1 << random.u8(..8)), 1),
            1 => {
                let end = (place + random.usize(1..FRAME)).min(length);
                (killed.files.with(LOG, |log| random.fill(&mut log[place..end])), 2)
            }
            // Where it ends, nothing tells that there was more.
            _ => (killed.files.cut(place), usize::MAX),
        };
        for (files, most) in [(killed.at_first(&damaged), most), (damaged, 0)] {
            match killed.lost(&files).await {
                Ok(lost) => {
                    assert!(lost <= most, "round {round} at {place}: {lost} commits are lost");
                    opened += 1;
                }
                Err(OpenError::CommitsMissing { .. }) => refused += 1,
                Err(error) => panic!("round {round} at {place}: {error}"),
            }
        }
    }
    assert!(refused > rounds && opened > 0, "{refused} refused, {opened} opened");
}

/// The log is read while another process writes and begins it anew: that is no damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_never_taken_for_damaged() {
    let directory = testbed::directory();
    let path = directory.path().join(DATABASE);
    let engine = Engine::new(SqliteStore::builder(&path).wal_bytes(1 << 20).open().unwrap());
    let writing = tokio::spawn(async move {
        for _ in 0..400 {
            let request = Sample::new(Effect::External).request(b'a');
            let Ok(Verdict::Run(claim)) = engine.admit(request).await else { panic!() };
            engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
        }
    });
    while !writing.is_finished() {
        SqliteStore::open(&path).unwrap();
    }
    writing.await.unwrap();
}
