//! What is particular about the SQLite store: damage, room, the log, dropped futures.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use onceward::{
    AdmitError, Digest, Effect, Ending, Engine, Status, Store, StoreError, Sweeper, Verdict,
    clock::ManualClock,
    engine::Renewal,
    protocol::{
        Claim, Fence, Found, Settled, Unreadable,
        conformance::{Sample, answer},
    },
    store::{
        Filter, Inspect, Note, NoteKind, Purge, Spool, SpoolId, Trail,
        sqlite::{SqliteStore, SqliteStoreBuilder},
    },
    telemetry,
};
use rusqlite::Connection;
use tempfile::TempDir;

struct Rig {
    _directory: TempDir,
    path: PathBuf,
    store: SqliteStore,
    engine: Engine,
}

impl Rig {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(set: impl FnOnce(SqliteStoreBuilder) -> SqliteStoreBuilder) -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("onceward.db");
        let store = set(SqliteStore::builder(&path)).open().unwrap();
        let engine = Engine::new(store.clone());
        Self { _directory: directory, path, store, engine }
    }

    async fn claim(&self, sample: &Sample) -> Claim {
        match self.engine.admit(sample.request(b'a')).await {
            Ok(Verdict::Run(claim)) => claim,
            other => panic!("expected to run, got {other:?}"),
        }
    }

    async fn end(&self, sample: &Sample) -> Claim {
        let claim = self.claim(sample).await;
        let settled = self.engine.settle(claim.clone(), Ending::Succeeded(answer(201))).await;
        assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
        claim
    }

    async fn status(&self, sample: &Sample) -> Option<Status> {
        match self.store.get(&sample.id()).await.unwrap() {
            Found::Record(stored) => Some(stored.status()),
            _ => None,
        }
    }

    /// Changes the file behind the store's back.
    fn tamper(&self, sql: &str, id: &Digest) {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(connection.execute(sql, [id.0]).unwrap(), 1);
    }
}

const FLIP: &str = "UPDATE onceward_record
    SET body = CAST(substr(body, 1, 40) || X'00' || substr(body, 42) AS BLOB) WHERE digest = ?1";

#[tokio::test]
async fn commits_are_synced_before_they_are_answered() {
    let rig = Rig::new();
    assert_eq!(rig.store.durability().journal_mode, "wal");
    assert_eq!(rig.store.durability().synchronous, 2, "FULL");
}

#[tokio::test]
async fn a_damaged_record_is_unknown_and_raises_an_alarm() {
    let (rig, sample) = (Rig::new(), Sample::new(Effect::Transactional));
    let claim = rig.claim(&sample).await;
    rig.tamper(FLIP, &sample.id());
    let alarms = telemetry::RECORD_UNREADABLE.count();
    let found = rig.store.get(&sample.id()).await.unwrap();
    assert_eq!(found, Found::Unreadable { fence: claim.fence(), why: Unreadable::Damaged });
    assert!(telemetry::RECORD_UNREADABLE.count() > alarms);
    assert_eq!(rig.engine.admit(sample.request(b'a')).await, Ok(Verdict::Unknown(None)));
    assert_eq!(rig.engine.admit(sample.request(b'b')).await, Ok(Verdict::Unknown(None)));

    // Its owner still has the fence, and its word mends the record.
    let settled = rig.engine.settle(claim, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
    assert_eq!(rig.status(&sample).await, Some(Status::Succeeded));
}

/// What `release` refuses without force, `purge` must not do either.
#[tokio::test]
async fn a_failure_that_may_have_had_its_effect_is_not_purged() {
    let repeatable = Effect::Repeatable { within: Duration::from_secs(3600) };
    for (effect, refusal) in [(repeatable, Purge::Open), (Effect::External, Purge::Recent)] {
        let (rig, sample) = (Rig::new(), Sample::new(effect));
        let claim = rig.claim(&sample).await;
        rig.engine.settle(claim.clone(), Ending::FailedRetryable).await.unwrap();
        let Found::Record(stored) = rig.store.get(&sample.id()).await.unwrap() else {
            panic!("it is there");
        };
        let note = Note::of_protocol(NoteKind::Purge, claim.execution());
        let purged = rig.store.purge(&sample.id(), stored.record.fence, &note).await;
        assert_eq!(purged, Ok(refusal), "{effect:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let rig = Rig::new();
    rig.end(&Sample::new(Effect::External)).await;
    for end in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{end}", rig.path.display()));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{end}");
    }
}

#[tokio::test]
async fn a_damaged_record_is_never_swept_and_may_be_purged() {
    let clock = Arc::new(ManualClock::default());
    let rig = Rig::with(|builder| builder.clock(clock.clone()));
    let sample = Sample::new(Effect::External);
    rig.end(&sample).await;
    rig.tamper(FLIP, &sample.id());
    clock.advance(Duration::from_secs(48 * 3600));
    assert_eq!(rig.store.sweep(10).await, Ok(0), "corruption is not absence");
    let Found::Unreadable { fence, .. } = rig.store.get(&sample.id()).await.unwrap() else {
        panic!("it is still there");
    };
    let note = Note {
        actor: Some("ada".into()),
        reason: Some("the payment is in the ledger".into()),
        ..Note::of_protocol(NoteKind::Purge, onceward::Execution::from_bytes([0; 16]))
    };
    assert_eq!(rig.store.purge(&sample.id(), fence, &note).await, Ok(Purge::Purged));
    assert_eq!(rig.store.trail(&sample.id()).await.unwrap().len(), 1);
}

/// Version 2 with a right checksum: neither unknown nor absent, and not ours to change.
#[tokio::test]
async fn a_record_of_a_newer_format_is_an_error() {
    let (rig, sample) = (Rig::new(), Sample::new(Effect::External));
    rig.end(&sample).await;
    let connection = Connection::open(&rig.path).unwrap();
    let read = "SELECT body FROM onceward_record";
    let mut body: Vec<u8> = connection.query_row(read, (), |row| row.get(0)).unwrap();
    body.truncate(body.len() - 8);
    body[0] = onceward::protocol::wire::VERSION + 1;
    use sha2::Digest as _;
    let checksum = sha2::Sha256::new().chain_update(sample.id().0).chain_update(&body).finalize();
    body.extend_from_slice(&checksum[..8]);
    connection.execute("UPDATE onceward_record SET body = ?1", [&body]).unwrap();

    let error = rig.store.get(&sample.id()).await;
    assert!(matches!(error, Err(StoreError::Newer(_))), "{error:?}");
    let error = rig.engine.admit(sample.request(b'a')).await;
    assert!(matches!(error, Err(AdmitError::Store(StoreError::Newer(_)))), "{error:?}");
    let after: Vec<u8> = connection.query_row(read, (), |row| row.get(0)).unwrap();
    assert_eq!(after, body, "untouched");
}

#[tokio::test]
async fn without_room_claims_are_refused_and_what_runs_is_settled() {
    let rig = Rig::new();
    let [ended, running] = [(); 2].map(|()| Sample::new(Effect::External));
    rig.end(&ended).await;
    let claim = rig.claim(&running).await;

    // A second handle on the same file that wants more room than any disk has.
    let store = SqliteStore::builder(&rig.path).reserve_bytes(u64::MAX).open().unwrap();
    let engine = Engine::new(store.clone());
    let alarms = telemetry::STORE_FULL.count();
    let verdict = engine.admit(Sample::new(Effect::External).request(b'a')).await;
    assert!(matches!(verdict, Err(AdmitError::Store(StoreError::Full(_)))), "{verdict:?}");
    assert!(telemetry::STORE_FULL.count() > alarms);
    assert_eq!(engine.unsettled(), 0, "nothing was written, so nothing is given back");

    let replayed = engine.admit(ended.request(b'a')).await;
    assert!(matches!(replayed, Ok(Verdict::Replay(_))), "duplicates get their answer");
    let renewed = engine.renew(&claim).await;
    assert!(matches!(renewed, Ok(Renewal::Renewed { .. })), "{renewed:?}");
    let settled = engine.settle(claim, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
}

/// The client went away at any moment: what was handed over is written, as a whole.
#[tokio::test]
async fn a_dropped_swap_is_still_made() {
    let rig = Rig::new();
    for _ in 0..50 {
        let sample = Sample::new(Effect::External);
        let claim = rig.claim(&sample).await;
        let fence = Fence::from_random(fastrand::u128(..).to_be_bytes());
        let settlement = claim.settle(Ending::Succeeded(answer(201)), fence);
        {
            let mut swap = rig.store.swap(settlement.change());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = swap.as_mut().poll(&mut context);
        }
        // The queue is in order: when a later change is answered, the dropped one is done.
        rig.claim(&Sample::new(Effect::External)).await;
        assert_eq!(rig.status(&sample).await, Some(Status::Succeeded));
    }
}

/// A checkpoint that somebody keeps from ending is skipped; when he is gone the log is short again.
#[tokio::test]
async fn the_log_is_bounded_and_a_busy_checkpoint_is_skipped() {
    const MIB: u64 = 1 << 20;
    let rig = Rig::with(|builder| builder.wal_bytes(MIB));
    let log = rig.path.with_extension("db-wal");
    let write = async |count: usize| {
        for _ in 0..count {
            let tasks = (0..32).map(|_| {
                let engine = rig.engine.clone();
                tokio::spawn(async move {
                    let sample = Sample::new(Effect::External);
                    let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else {
                        panic!("the key is free");
                    };
                    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        }
    };
    write(150).await;
    let bounded = fs::metadata(&log).unwrap().len();
    assert!(bounded < 8 * MIB, "{bounded} bytes of log");

    let reader = Connection::open(&rig.path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM onceward_record;").unwrap();
    write(50).await;
    reader.execute_batch("ROLLBACK").unwrap();
    write(50).await;
    let records: u32 =
        reader.query_row("SELECT count(*) FROM onceward_record", (), |row| row.get(0)).unwrap();
    assert_eq!(records, 250 * 32, "nobody was refused meanwhile");
}

#[tokio::test]
async fn a_clock_that_was_set_stops_the_sweep() {
    let clock = Arc::new(ManualClock::default());
    let rig = Rig::with(|builder| builder.clock(clock.clone()));
    let sample = Sample::new(Effect::External);
    rig.end(&sample).await;
    clock.jump_micros(48 * 3600 * 1_000_000);
    let alarms = telemetry::CLOCK_JUMPED.count();
    let swept = rig.store.sweep(10).await;
    assert!(matches!(swept, Err(StoreError::Unusable(_))), "{swept:?}");
    assert!(telemetry::CLOCK_JUMPED.count() > alarms);
    // One that has just begun trusts the clock that it finds, and must not delete for all.
    let begun = SqliteStore::builder(&rig.path).clock(clock.clone()).open().unwrap();
    clock.advance(Duration::from_secs(4 * 60));
    let swept = begun.sweep(10).await;
    assert!(
        matches!(&swept, Err(StoreError::Unusable(text)) if text.contains("another process")),
        "{swept:?}"
    );
    drop(begun);
    clock.jump_micros(-48 * 3600 * 1_000_000);
    clock.advance(Duration::from_secs(26 * 3600));
    assert_eq!(rig.store.sweep(10).await, Ok(1), "set right, and two days of real time later");
}

#[tokio::test]
async fn what_a_jump_lets_expire_is_refused_until_somebody_trusts_the_clock_or_a_restart() {
    const DAY: i64 = 24 * 3600 * 1_000_000;
    let clock = Arc::new(ManualClock::default());
    let rig = Rig::with(|builder| builder.clock(clock.clone()));
    let samples = [(); 3].map(|()| Sample::new(Effect::External));
    for sample in &samples {
        rig.end(sample).await;
    }
    let [first, second, third] = &samples;
    let ask = async |sample: &Sample| rig.engine.admit(sample.request(b'a')).await.unwrap();
    clock.jump_micros(2 * DAY);
    assert_eq!(ask(first).await, Verdict::ClockSuspect);
    assert_eq!(rig.status(first).await, Some(Status::ClockSuspect));
    let filter = Filter { status: Some(Status::ClockSuspect), ..Filter::default() };
    assert_eq!(rig.store.list(&filter).await.unwrap().listed.len(), 3);
    assert_eq!(rig.store.clock_suspicion().unwrap().ahead, Duration::from_secs(48 * 3600));
    clock.jump_micros(-2 * DAY);
    assert!(matches!(ask(first).await, Verdict::Replay(_)), "the clock is back");

    clock.jump_micros(2 * DAY);
    assert_eq!(ask(second).await, Verdict::ClockSuspect);
    let restarted = SqliteStore::builder(&rig.path).clock(clock.clone()).open().unwrap();
    assert_eq!(restarted.clock_suspicion(), None);
    let verdict = Engine::new(restarted).admit(second.request(b'a')).await.unwrap();
    assert!(matches!(verdict, Verdict::Run(_)), "another process trusts its clock: {verdict:?}");
    assert_eq!(ask(third).await, Verdict::ClockSuspect, "this one does not yet");
    assert!(rig.store.trust_clock().is_some());
    assert!(matches!(ask(third).await, Verdict::Run(_)));
    assert_eq!(rig.store.sweep(10).await, Ok(1), "the first one is over by now");
}

#[tokio::test]
async fn chunks_that_nobody_refers_to_are_swept_after_an_hour() {
    let clock = Arc::new(ManualClock::default());
    let rig = Rig::with(|builder| builder.clock(clock.clone()));
    let id = SpoolId { operation: Digest([1; 32]), fence: Fence::from_random([1; 16]) };
    rig.store.put(&id, 0, b"orphan").await.unwrap();
    clock.advance(Duration::from_secs(3599));
    rig.store.sweep(10).await.unwrap();
    assert!(rig.store.chunk(&id, 0).await.unwrap().is_some(), "its record may still come");
    clock.advance(Duration::from_secs(2));
    rig.store.sweep(10).await.unwrap();
    assert_eq!(rig.store.chunk(&id, 0).await, Ok(None));
}

#[tokio::test]
async fn the_sweeper_deletes_everything_that_is_over() {
    let clock = Arc::new(ManualClock::default());
    let rig = Rig::with(|builder| builder.clock(clock.clone()));
    let samples: Vec<Sample> = (0..30).map(|_| Sample::new(Effect::External)).collect();
    for sample in &samples {
        rig.end(sample).await;
    }
    clock.advance(Duration::from_secs(26 * 3600));
    let fresh = Sample::new(Effect::External);
    rig.end(&fresh).await;
    let _sweeper = Sweeper::start(Arc::new(rig.store.clone()), Duration::from_millis(10));
    for sample in &samples {
        for _ in 0..1000 {
            if rig.status(sample).await.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(rig.status(sample).await, None);
    }
    assert_eq!(rig.status(&fresh).await, Some(Status::Succeeded));
}
