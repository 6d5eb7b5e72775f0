//! How the Redis store behaves: forgotten scripts, full memory, expiry, entries without a record, several prefixes.

use std::{sync::Arc, time::Duration};

use onceward::{
    Effect, Ending, Outcome, Status, Store as _, StoreError, Verdict,
    protocol::{
        Claim, Found, Settled, StoredBody, Terms,
        conformance::{Bench, Sample, answer, fresh_fence},
    },
    store::{
        Filter, Inspect as _, Note, NoteKind, Purge, Spool as _, SpoolId, Swap, redis::RedisStore,
    },
};

use crate::support::{Redis, age, ask, key, private, set};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn paid() -> Ending {
    Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))
}

pub(crate) async fn claim(bench: &Redis, store: &RedisStore, sample: &Sample) -> Claim {
    match bench.admit(store, sample.request(b'a')).await {
        Verdict::Run(claim) => claim,
        other => panic!("expected to run: {other:?}"),
    }
}

pub(crate) async fn ended(bench: &Redis, store: &RedisStore, ending: Ending) -> (Sample, Claim) {
    let sample = Sample::new(Effect::External);
    let claim = claim(bench, store, &sample).await;
    let settled = bench.settle(store, &claim, ending).await;
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    (sample, claim)
}

/// Milliseconds until a key goes by itself; -1: never, -2: it is not there.
async fn left(name: &[u8]) -> i64 {
    ask(testbed::redis(), redis::cmd("PTTL").arg(name)).await
}

fn is_about(millis: i64, length: Duration) -> bool {
    let length = i64::try_from(length.as_millis()).unwrap();
    (length - 60_000..=length + 1000).contains(&millis)
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_scripts_gets_them_again() {
    let (bench, store) = (Redis::new(), Redis::new().open().await);
    let (_, _) = ended(&bench, &store, paid()).await;
    for _ in 0..3 {
        let _: () = ask(testbed::redis(), redis::cmd("SCRIPT").arg("FLUSH")).await;
        let (sample, claim) = ended(&bench, &store, Ending::Unknown).await;
        let note = Note::of_protocol(NoteKind::Purge, claim.execution());
        let fence = fresh_fence();
        assert!(matches!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Conflict(_))));
    }
}

#[tokio::test]
async fn full_memory_refuses_claims_and_nothing_else() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    let (running, failing) = (Sample::new(Effect::External), Sample::new(Effect::External));
    let (first, second) =
        (claim(&bench, &store, &running).await, claim(&bench, &store, &failing).await);
    let (old, _) = ended(&bench, &store, paid()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let change = Sample::new(Effect::External);
    let change = onceward::protocol::Admission::new(
        change.request(b'a'),
        fresh_fence(),
        onceward::protocol::Execution::from_bytes([7; 16]),
    );
    let full = store.swap(change.change()).await;
    assert!(
        matches!(&full, Err(StoreError::Full(words)) if words.contains("maxmemory")),
        "{full:?}"
    );
    let renewed = store.swap(&first.renew()).await;
    assert!(matches!(renewed, Ok(Swap::Stored { .. })), "{renewed:?}");
    for (claim, ending) in [(&first, paid()), (&second, Ending::Unknown)] {
        let settled = bench.settle(&store, claim, ending).await;
        assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    }
    // Only the test's own script needs memory.
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    age(&[server.url()], &store, &old.id(), DAY + HOUR + Duration::from_secs(1)).await;
    age(&[server.url()], &store, &running.id(), HOUR).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(store.sweep(10).await, Ok(1));
    let Ok(Found::Record(stored)) = store.get(&running.id()).await else { panic!("it is there") };
    let note = Note::of_protocol(NoteKind::Purge, first.execution());
    assert_eq!(store.purge(&running.id(), stored.record.fence, &note).await, Ok(Purge::Purged));
    let id = SpoolId { operation: failing.id(), fence: fresh_fence() };
    assert!(matches!(store.put(&id, 0, b"chunk").await, Err(StoreError::Full(_))));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    claim(&bench, &store, &Sample::new(Effect::External)).await;
}

#[tokio::test]
async fn ended_records_alone_expire_by_themselves_an_hour_after_a_sweep_would_take_them() {
    let bench = Redis::new();
    let store = bench.open().await;
    let net = DAY + HOUR * 2;
    let sample = Sample::new(Effect::External);
    let first = claim(&bench, &store, &sample).await;
    let record = key(&store, 'r', &sample.id());
    assert_eq!(left(&record).await, -1, "a claim in progress stays");
    bench.settle(&store, &first, Ending::Unknown).await;
    assert_eq!(left(&record).await, -1, "an unknown outcome stays");
    bench.settle(&store, &first, Ending::FailedRetryable).await;
    assert!(is_about(left(&record).await, net));
    let again = claim(&bench, &store, &sample).await;
    assert_eq!(left(&record).await, -1, "claimed again, it stays");
    bench.settle(&store, &again, paid()).await;
    assert!(is_about(left(&record).await, net));

    let terms = Terms::of(Effect::External).unknown_retain(DAY * 2).build().unwrap();
    let bounded = Sample::new(Effect::External).on(terms);
    let claimed = claim(&bench, &store, &bounded).await;
    bench.settle(&store, &claimed, Ending::Unknown).await;
    assert!(is_about(left(&key(&store, 'r', &bounded.id())).await, DAY * 2 + HOUR * 2));
}

#[tokio::test]
async fn chunks_go_after_an_hour_or_with_their_record() {
    let bench = Redis::new();
    let store = bench.open().await;
    let sample = Sample::new(Effect::External);
    let first = claim(&bench, &store, &sample).await;
    let fence = fresh_fence();
    let id = SpoolId { operation: sample.id(), fence };
    let chunks = [key(&store, 's', &sample.id()), fence.as_bytes().to_vec()].concat();
    store.put(&id, 0, b"chunk").await.unwrap();
    assert!(is_about(left(&chunks).await, HOUR));
    let body = StoredBody::Spooled { length: 5, digest: [7; 32] };
    let outcome = Outcome { body, ..answer(201) };
    store.swap(first.settle(Ending::Succeeded(outcome), fence).change()).await.unwrap();
    assert!(is_about(left(&chunks).await, DAY + HOUR * 2));
    store.put(&id, 0, b"chunk").await.unwrap();
    assert!(is_about(left(&chunks).await, DAY + HOUR * 2), "written late, they stay as long");
    age(&[testbed::redis().to_owned()], &store, &sample.id(), DAY).await;
    claim(&bench, &store, &sample).await;
    assert_eq!(left(&chunks).await, -2, "with the record of an old answer its chunks go");
}

#[tokio::test]
async fn entries_without_a_record_are_passed_over_and_removed() {
    let bench = Redis::new();
    let store = bench.open().await;
    let (gone, _) = ended(&bench, &store, paid()).await;
    let (swept, _) = ended(&bench, &store, paid()).await;
    let (kept, _) = ended(&bench, &store, paid()).await;
    let entries = async |of: &Sample| -> i64 {
        let mut command = redis::cmd("ZSCORE");
        command.arg(set(&store, 'e', &of.id())).arg(&of.id().0[1..]);
        i64::from(ask::<Option<f64>>(testbed::redis(), &command).await.is_some())
    };
    let remove = async |of: &Sample| -> i64 {
        ask(testbed::redis(), redis::cmd("DEL").arg(key(&store, 'r', &of.id()))).await
    };
    assert_eq!((remove(&gone).await, entries(&gone).await), (1, 1));
    let page = store.list(&Filter::default()).await.unwrap();
    let listed: Vec<_> = page.listed.iter().map(|listed| listed.id).collect();
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&kept.id()) && !listed.contains(&gone.id()));
    assert_eq!(entries(&gone).await, 0);
    age(&[testbed::redis().to_owned()], &store, &swept.id(), DAY * 2).await;
    assert_eq!(remove(&swept).await, 1);
    assert_eq!(store.sweep(10).await, Ok(0));
    assert_eq!((entries(&swept).await, entries(&kept).await), (0, 1));
}

#[tokio::test]
async fn what_cannot_be_read_is_unknown_fenced_and_never_swept() {
    let bench = Redis::new();
    let store = bench.open().await;
    let (sample, _) = ended(&bench, &store, paid()).await;
    let record = key(&store, 'r', &sample.id());
    let mut damage = redis::cmd("SETRANGE");
    damage.arg(&record).arg(90).arg("damaged");
    let _: i64 = ask(testbed::redis(), &damage).await;
    let Ok(Found::Unreadable { fence, .. }) = store.get(&sample.id()).await else {
        panic!("it cannot be read")
    };
    let Verdict::Unknown { .. } = bench.admit(&store, sample.request(b'a')).await else {
        panic!("what cannot be read is unknown");
    };
    let page = store.list(&Filter::default()).await.unwrap();
    assert!(matches!(page.listed[0].found, Found::Unreadable { .. }));
    let note =
        Note::of_protocol(NoteKind::Purge, onceward::protocol::Execution::from_bytes([0; 16]));
    assert_eq!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Recent));
    age(&[testbed::redis().to_owned()], &store, &sample.id(), HOUR).await;
    assert_eq!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Purged));

    // Cut off inside its head, it can be fenced too, and a sweep leaves it.
    let (sample, _) = ended(&bench, &store, paid()).await;
    let record = key(&store, 'r', &sample.id());
    let head: Vec<u8> =
        ask(testbed::redis(), redis::cmd("GETRANGE").arg(&record).arg(0).arg(9)).await;
    let _: () = ask(testbed::redis(), redis::cmd("SET").arg(&record).arg(head)).await;
    let mut entry = redis::cmd("ZADD");
    entry.arg(set(&store, 'e', &sample.id())).arg(1).arg(&sample.id().0[1..]);
    let _: i64 = ask(testbed::redis(), &entry).await;
    assert_eq!(store.sweep(10).await, Ok(0));
    let Ok(Found::Unreadable { fence, .. }) = store.get(&sample.id()).await else {
        panic!("it cannot be read")
    };
    assert_eq!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Purged));
    assert_eq!(store.get(&sample.id()).await, Ok(Found::Nothing));
}

#[tokio::test]
async fn what_newer_software_wrote_is_left_alone() {
    let bench = Redis::new();
    let store = bench.open().await;
    for place in [0, 67] {
        let (sample, _) = ended(&bench, &store, paid()).await;
        let mut newer = redis::cmd("SETRANGE");
        newer.arg(key(&store, 'r', &sample.id())).arg(place).arg(&[2u8][..]);
        let _: i64 = ask(testbed::redis(), &newer).await;
        let read = store.get(&sample.id()).await;
        // The version of the body is under its checksum.
        let is_newer = matches!(read, Err(StoreError::Newer(_)));
        assert_eq!(is_newer, place == 0, "byte {place}: {read:?}");
        age(&[testbed::redis().to_owned()], &store, &sample.id(), DAY * 3).await;
        assert_eq!(store.sweep(10).await, Ok(0), "byte {place}");
    }
}

#[tokio::test]
async fn installations_with_other_prefixes_see_nothing_of_each_other() {
    let bench = Redis::new();
    let (one, other) = (bench.open().await, bench.open().await);
    let (sample, _) = ended(&bench, &one, paid()).await;
    assert_eq!(other.get(&sample.id()).await, Ok(Found::Nothing));
    assert!(other.list(&Filter::default()).await.unwrap().listed.is_empty());
    claim(&bench, &other, &sample).await;
    assert_eq!(other.census().await.unwrap().in_progress, 1);
    assert_eq!(one.census().await.unwrap().in_progress, 0);
}

#[tokio::test]
async fn what_is_open_is_counted() {
    let bench = Redis::new();
    let store = bench.open().await;
    let server = [testbed::redis().to_owned()];
    assert_eq!(store.census().await.unwrap().last_write, None);
    for _ in 0..3 {
        claim(&bench, &store, &Sample::new(Effect::External)).await;
    }
    let interrupted = Sample::new(Effect::Transactional);
    claim(&bench, &store, &interrupted).await;
    age(&server, &store, &interrupted.id(), HOUR).await;
    for ending in [Ending::Unknown, Ending::FailedRetryable, paid(), Ending::Released] {
        ended(&bench, &store, ending).await;
    }
    let census = store.census().await.unwrap();
    let counted = (census.in_progress, census.interrupted, census.unknown, census.failed_retryable);
    assert_eq!(counted, (3, 1, 1, 1));
    assert!(census.is_complete && census.oldest_open.unwrap() >= HOUR && census.file_bytes > 0);
    let now = store.get(&interrupted.id()).await.unwrap();
    let Found::Record(now) = now else { panic!("it is there") };
    assert!(now.read_at.since(census.last_write.unwrap()) < Duration::from_secs(60));
    let living = store.living(None).await.unwrap();
    assert_eq!(
        living.groups.iter().map(|group| group.count).sum::<u64>(),
        7,
        "all but the released"
    );
    let open = Filter { status: Some(Status::Interrupted), ..Filter::default() };
    assert_eq!(store.list(&open).await.unwrap().listed[0].id, interrupted.id());
}

#[tokio::test]
async fn names_of_routes_are_written_if_they_are_what_was_read() {
    use onceward::store::KeptRoute;
    let store = Redis::new().open().await;
    let route = KeptRoute {
        template: "POST /v1/charges/{}".to_owned(),
        path: "/v1/charges/{id}".to_owned(),
        operation: "charge".to_owned(),
        parts: "tenant".to_owned(),
        ..KeptRoute::default()
    };
    assert_eq!(store.keep_route(None, &route).await, Ok(true));
    assert_eq!(store.keep_route(None, &route).await, Ok(false), "it is there already");
    let other = KeptRoute { operation: "pay".to_owned(), ..route.clone() };
    assert_eq!(store.keep_route(Some(&route), &other).await, Ok(true));
    assert_eq!(store.keep_route(Some(&route), &route).await, Ok(false), "another one changed it");
    let second = KeptRoute { template: "GET /".to_owned(), ..route };
    assert_eq!(store.keep_route(None, &second).await, Ok(true));
    assert_eq!(store.routes().await, Ok(vec![second, other]));
}

/// A clock that stands still, or goes back: beside it, the server's goes ahead.
struct Slow(std::sync::atomic::AtomicU64);

impl onceward::clock::Clock for Slow {
    fn now(&self) -> onceward::Timestamp {
        onceward::Timestamp::from_unix_micros(0)
    }
    fn steady(&self) -> Duration {
        Duration::from_secs(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[tokio::test]
async fn nothing_is_swept_while_a_process_suspects_the_clock() {
    let (server, bench) = private(&[]);
    let clock = Arc::new(Slow(1_000_000.into()));
    let address = crate::support::with_prefix(&server.url());
    let builder = RedisStore::builder(&address).unwrap().accept_relaxed();
    let (doubting, trusting) =
        (builder.clone().clock(clock.clone()).open().await.unwrap(), builder.open().await.unwrap());
    let (sample, _) = ended(&bench, &doubting, paid()).await;
    age(&[server.url()], &doubting, &sample.id(), DAY * 2).await;
    assert_eq!(doubting.clock_suspicion().await, Ok(None));
    clock.0.store(1_000_000 - 7200, std::sync::atomic::Ordering::SeqCst);
    let suspicion = doubting.clock_suspicion().await.unwrap().unwrap();
    assert_eq!(suspicion.ahead.as_secs() / 60, 120);
    assert!(matches!(doubting.sweep(10).await, Err(StoreError::Unusable(_))));
    let elsewhere = trusting.sweep(10).await;
    assert!(
        matches!(&elsewhere, Err(StoreError::Unusable(words)) if words.contains("another process"))
    );
    doubting.trust_clock().await.unwrap();
    assert_eq!(doubting.clock_suspicion().await, Ok(None));
}
