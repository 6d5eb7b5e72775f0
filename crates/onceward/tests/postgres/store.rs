//! How the PostgreSQL store behaves beside others: open transactions, broken connections, many at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onceward::{
    Effect, Ending, Engine, OperationId, Outcome, Scope, Status, Store as _, StoreError, Timestamp,
    Verdict,
    clock::{Clock, HostClock},
    conformance::block_on,
    engine::Renewal,
    protocol::{
        Claim, Settled,
        conformance::{Sample, answer, fresh_fence},
    },
    store::{Filter, Inspect as _, Spool as _, SpoolId, Swap, postgres::PostgresStore},
};
use testbed::Database;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, NoTls};

async fn open() -> (Database, PostgresStore, Engine) {
    let database = testbed::postgres().database();
    let store = PostgresStore::connect(database.url()).await.unwrap();
    (database, store.clone(), Engine::new(store))
}

async fn claim(engine: &Engine, sample: &Sample) -> Claim {
    match engine.admit(sample.request(b'a')).await.unwrap() {
        Verdict::Run(claim) => claim,
        other => panic!("expected to run: {other:?}"),
    }
}

async fn client(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn paid() -> Ending {
    Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))
}

/// Somebody's transaction that stays open on one record.
async fn hold(database: &Database, claim: &Claim) -> Client {
    let client = client(database).await;
    client.batch_execute("BEGIN").await.unwrap();
    let touch = "UPDATE onceward.record SET scope = scope WHERE digest = $1";
    assert_eq!(client.execute(touch, &[&claim.id().0.as_slice()]).await.unwrap(), 1);
    client
}

#[test]
fn a_transaction_that_stays_open_on_one_record_stalls_no_other() {
    block_on(async {
        let (database, store, engine) = open().await;
        let held = claim(&engine, &Sample::new(Effect::Transactional)).await;
        let holder = hold(&database, &held).await;
        assert_eq!(store.swap(&held.renew()).await, Ok(Swap::Held));
        assert_eq!(engine.renew(&held).await, Ok(Renewal::Held), "as good as renewed");

        // The end of the held claim is in one batch with those of many others.
        let late = tokio::spawn({
            let engine = engine.clone();
            let held = held.clone();
            async move { engine.settle(held, paid()).await }
        });
        let many = (0..200).map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let sample = Sample::new(Effect::External);
                let claim = claim(&engine, &sample).await;
                engine.settle(claim, paid()).await.unwrap()
            })
        });
        let many: Vec<_> = many.collect();
        let all = async {
            for one in many {
                assert!(matches!(one.await.unwrap(), Settled::Stored { .. }));
            }
        };
        timeout(Duration::from_secs(20), all).await.expect("nobody waits for the held record");
        assert!(late.await.unwrap().is_err(), "its caller is told that it is not durable yet");
        assert_eq!(engine.unsettled(), 1, "it goes on in the background");

        holder.batch_execute("ROLLBACK").await.unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while engine.unsettled() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let sample = Filter { status: Some(Status::Succeeded), ..Filter::default() };
        assert_eq!(store.list(&Filter { limit: 500, ..sample }).await.unwrap().listed.len(), 201);
    });
}

#[test]
fn a_value_that_the_server_does_not_take_fails_for_its_caller_alone() {
    block_on(async {
        let (_database, _store, engine) = open().await;
        let claims = (0..300).map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut sample = Sample::new(Effect::External);
                let is_refused = number % 50 == 0;
                if is_refused {
                    // PostgreSQL has no text with a NUL.
                    let scope = Scope::of("tenant", &format!("a\0{number}")).unwrap();
                    let (name, key) = (sample.operation.name(), sample.operation.key());
                    sample.operation = OperationId::new(scope, name.clone(), key.clone());
                }
                (is_refused, engine.admit(sample.request(b'a')).await)
            })
        });
        for claim in claims.collect::<Vec<_>>() {
            let (is_refused, answer) = claim.await.unwrap();
            match is_refused {
                true => assert!(answer.is_err(), "{answer:?}"),
                false => assert!(matches!(answer, Ok(Verdict::Run(_))), "{answer:?}"),
            }
        }
    });
}

/// A trigger of somebody else, say, finds what it calls where the store says.
#[test]
fn every_change_is_made_with_a_search_path_of_its_own() {
    block_on(async {
        for is_prepared in [true, false] {
            let database = testbed::postgres().database();
            let builder = PostgresStore::builder(database.url()).unwrap();
            let builder = if is_prepared { builder } else { builder.unprepared() };
            let engine = Engine::new(builder.open().await.unwrap());
            let client = client(&database).await;
            let listen = "CREATE TABLE public.seen (path text);
                CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    INSERT INTO public.seen VALUES (pg_catalog.current_setting('search_path'));
                    RETURN NULL;
                END $$;
                CREATE TRIGGER see AFTER INSERT OR UPDATE ON onceward.record
                    FOR EACH ROW EXECUTE FUNCTION public.see();";
            client.batch_execute(listen).await.unwrap();
            let claim = claim(&engine, &Sample::new(Effect::External)).await;
            engine.renew(&claim).await.unwrap();
            engine.settle(claim, paid()).await.unwrap();
            let seen = client.query("SELECT path FROM public.seen", &[]).await.unwrap();
            let seen: Vec<String> = seen.iter().map(|row| row.get(0)).collect();
            assert!(seen.len() >= 3, "{seen:?}");
            assert!(seen.iter().all(|path| path == "pg_catalog, pg_temp"), "{seen:?}");
        }
    });
}

#[test]
fn a_claim_that_another_transaction_is_about_to_make_is_in_progress() {
    block_on(async {
        let (database, store, engine) = open().await;
        let sample = Sample::new(Effect::Transactional);
        let made = claim(&engine, &sample).await;
        // As a claim inside somebody's own transaction: there, but not to be seen.
        let holder = client(&database).await;
        holder
            .batch_execute(
                "BEGIN;
                 CREATE TEMPORARY TABLE copy ON COMMIT DROP AS TABLE onceward.record;
                 DELETE FROM onceward.record; COMMIT;",
            )
            .await
            .unwrap();
        let rival = client(&database).await;
        rival.batch_execute("BEGIN").await.unwrap();
        let insert = "INSERT INTO onceward.record SELECT $1, gen_random_uuid(), gen_random_uuid(), 0, \
                      now(), now(), now(), now(), interval '1 day', '', '', '\\x01'";
        rival.execute(insert, &[&made.id().0.as_slice()]).await.unwrap();
        let verdict = engine.admit(sample.request(b'a')).await.unwrap();
        assert!(matches!(verdict, Verdict::Busy { .. }), "{verdict:?}");
        rival.batch_execute("ROLLBACK").await.unwrap();
        assert!(matches!(engine.admit(sample.request(b'a')).await.unwrap(), Verdict::Run(_)));
        drop(store);
    });
}

#[test]
fn connections_that_break_are_opened_anew() {
    block_on(async {
        let (database, _, engine) = open().await;
        for _ in 0..5 {
            let sample = Sample::new(Effect::External);
            let owned = claim(&engine, &sample).await;
            database.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'onceward'",
            );
            let settled = engine.settle(owned, paid()).await.unwrap();
            assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
            let again = engine.admit(sample.request(b'a')).await.unwrap();
            assert!(matches!(again, Verdict::Replay(_)), "{again:?}");
        }
    });
}

#[test]
fn a_statement_that_takes_too_long_is_an_error_that_says_what_to_do() {
    block_on(async {
        let (database, store, _) = open().await;
        let name = database.name();
        database.sql(&format!(
            "ALTER DATABASE {name} SET statement_timeout = '1s';
             ALTER TABLE onceward.spool RENAME TO chunks;
             CREATE VIEW onceward.spool AS SELECT sha256(random()::text::bytea) AS digest,
                 gen_random_uuid() AS fence, 0 AS chunk, now() AS at, ''::bytea AS bytes
             FROM pg_sleep(60)"
        ));
        drop(store);
        let store = PostgresStore::connect(database.url()).await.unwrap();
        let id = SpoolId { operation: Sample::new(Effect::External).id(), fence: fresh_fence() };
        let error = store.chunk(&id, 0).await.unwrap_err();
        let StoreError::Unavailable(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("raise the statement_timeout"), "{text}");
        database.sql("DROP VIEW onceward.spool; ALTER TABLE onceward.chunks RENAME TO spool");
        assert_eq!(store.chunk(&id, 0).await, Ok(None), "it goes on by itself");
    });
}

#[test]
fn tables_that_vanish_and_rights_that_are_taken_are_named() {
    block_on(async {
        let (database, store, _) = open().await;
        database.sql("ALTER SCHEMA onceward RENAME TO elsewhere");
        let error = store.get(&Sample::new(Effect::External).id()).await.unwrap_err();
        let StoreError::Unusable(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("onceward migrate"), "{text}");
        database.sql("ALTER SCHEMA elsewhere RENAME TO onceward");
        store.get(&Sample::new(Effect::External).id()).await.unwrap();
    });
}

#[test]
fn completions_are_heap_only_updates() {
    block_on(async {
        let (database, store, engine) = open().await;
        drop(store);
        for _ in 0..50 {
            let owned = claim(&engine, &Sample::new(Effect::External)).await;
            engine.settle(owned, Ending::Succeeded(answer(201))).await.unwrap();
        }
        // A session reports what it counted when it ends, and otherwise when it has time.
        drop(engine);
        let counted =
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'record'";
        let until = Instant::now() + Duration::from_secs(60);
        while !database.sql(counted).starts_with("50|") && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(database.sql(counted), "50|50");
    });
}

#[test]
fn a_key_is_found_among_many_page_by_page() {
    block_on(async {
        let (database, store, engine) = open().await;
        let wanted = Sample::new(Effect::External);
        claim(&engine, &wanted).await;
        // Neighbours that cannot be read, so that more than one window must be looked at.
        database.sql(
            "INSERT INTO onceward.record SELECT sha256(int8send(i)), gen_random_uuid(), gen_random_uuid(), 3,
                 now(), now(), now(), now() + i * interval '1 ms', interval '1 day', 'tenant=x', 'y', '\\x01'
             FROM generate_series(1, 45000) i",
        );
        let mut filter = Filter { key: Some(wanted.operation.key().clone()), ..Filter::default() };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = store.list(&filter).await.unwrap();
            found.extend(page.listed.into_iter().map(|listed| listed.id));
            pages += 1;
            let Some(next) = page.next else { break };
            filter.after = Some(next);
        }
        assert_eq!(found, [wanted.id()]);
        assert!(pages >= 3, "{pages} pages: each looks at a bounded number of records");
    });
}

#[test]
fn what_is_open_is_counted() {
    block_on(async {
        let (_database, store, engine) = open().await;
        for effect in [Effect::External, Effect::Transactional] {
            claim(&engine, &Sample::new(effect)).await;
        }
        let unknown = claim(&engine, &Sample::new(Effect::External)).await;
        engine.settle(unknown, Ending::Unknown).await.unwrap();
        let done = claim(&engine, &Sample::new(Effect::External)).await;
        engine.settle(done, paid()).await.unwrap();
        let census = store.census().await.unwrap();
        assert_eq!((census.in_progress, census.unknown, census.is_complete), (2, 1, true));
        assert!(census.file_bytes > 8192 && census.last_write.is_some(), "{census:?}");
    });
}

/// A steady time that is held back: to the store the server's clock goes ahead by as much.
struct HeldBack(AtomicU64);

impl Clock for HeldBack {
    fn now(&self) -> Timestamp {
        unreachable!("the server has the time")
    }

    fn steady(&self) -> Duration {
        let year = Duration::from_secs(365 * 24 * 3600);
        HostClock::default().steady() + year - Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn what_a_jump_of_the_server_lets_expire_is_refused_until_somebody_trusts_the_clock() {
    block_on(async {
        let database = testbed::postgres().database();
        let clock = Arc::new(HeldBack(AtomicU64::new(0)));
        let builder = PostgresStore::builder(database.url()).unwrap();
        let store = builder.clock(clock.clone()).open().await.unwrap();
        let engine = Engine::new(store.clone());
        let sample = Sample::new(Effect::External);
        let ask = async || engine.admit(sample.request(b'a')).await.unwrap();
        let settled = engine.settle(claim(&engine, &sample).await, paid()).await;
        assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");

        // All that the server has written is two days old by its clock, and no time has passed here.
        let days = Duration::from_secs(48 * 3600);
        crate::support::age(&database, &sample.id(), days).await;
        clock.0.store(days.as_secs(), Ordering::SeqCst);
        assert_eq!(ask().await, Verdict::ClockSuspect);
        let filter = Filter { status: Some(Status::ClockSuspect), ..Filter::default() };
        assert_eq!(store.list(&filter).await.unwrap().listed.len(), 1);
        assert!(matches!(store.sweep(10).await, Err(StoreError::Unusable(_))), "nothing is swept");
        // One that has just begun trusts the clock that it finds, and must not delete for all.
        let builder = PostgresStore::builder(database.url()).unwrap();
        let begun = builder.clock(clock.clone()).open().await.unwrap();
        let swept = begun.sweep(10).await;
        assert!(
            matches!(&swept, Err(StoreError::Unusable(text)) if text.contains("another process")),
            "{swept:?}"
        );
        let ahead = store.clock_suspicion().await.unwrap().unwrap().ahead;
        assert!(ahead.abs_diff(days) < Duration::from_secs(60), "{ahead:?}");
        clock.0.store(0, Ordering::SeqCst);
        assert_eq!(store.clock_suspicion().await, Ok(None), "the clock is back");

        clock.0.store(days.as_secs(), Ordering::SeqCst);
        assert_eq!(ask().await, Verdict::ClockSuspect);
        assert!(store.trust_clock().await.unwrap().is_some());
        assert_eq!(store.clock_suspicion().await, Ok(None));
        assert!(matches!(ask().await, Verdict::Run(_)));
        let begun = PostgresStore::builder(database.url()).unwrap().clock(clock.clone());
        let begun = begun.open().await.unwrap();
        database
            .sql("UPDATE onceward.clock SET suspected_at = suspected_at - interval '5 minutes'");
        assert!(begun.sweep(10).await.is_ok(), "nobody says so any more");
        database.sql("UPDATE onceward.clock SET suspected_at = suspected_at + interval '2 days'");
        assert!(begun.sweep(10).await.is_ok(), "the clock is back");
    });
}
