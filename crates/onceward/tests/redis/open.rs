//! What is said when a server cannot be used, and what a user of it must be allowed to do.

use std::{path::Path, sync::Arc, time::Duration};

use onceward::{
    Digest, Effect, Ending, Store as _,
    protocol::conformance::{Bench, Sample, fresh_fence},
    store::{
        Filter, Inspect as _, KeptRoute, Note, NoteKind, OnEnded, Spool as _, SpoolId, Trail as _,
        redis::{OpenError, RedisStore},
    },
};
use testbed::{RedisInstallation, RedisServer};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    store::{DAY, HOUR, claim, ended, paid},
    support::{Redis, age, private},
};

async fn refused(address: &str) -> OpenError {
    match RedisStore::builder(address).unwrap().accept_relaxed().open().await {
        Ok(store) => panic!("{store:?} was opened"),
        Err(error) => error,
    }
}

#[track_caller]
fn says(error: &OpenError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[tokio::test]
async fn a_store_that_may_lose_records_is_opened_by_those_alone_who_say_so() {
    let builder = RedisStore::builder(testbed::redis()).unwrap();
    let error = builder.open().await.map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Relaxed(_)));
    says(&error, &["failover loses", "accept_relaxed", "SQLite"]);
}

#[tokio::test]
async fn a_server_that_throws_records_away_is_refused() {
    let (server, _) = private(&[("maxmemory-policy", "allkeys-lru")]);
    says(&refused(&server.url()).await, &["allkeys-lru", "CONFIG SET maxmemory-policy noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let store = RedisStore::builder(&server.url()).unwrap().accept_relaxed().open().await.unwrap();
    let durability = store.durability();
    assert_eq!(durability.max_memory_policy.as_deref(), Some("noeviction"));
    assert_eq!(
        (durability.appends, durability.append_fsync.as_deref()),
        (Some(true), Some("everysec"))
    );
    let losses = &durability.losses()[0];
    assert!(losses.contains("last second") && losses.contains("killed while its disk is slow"));
    assert!(["redis", "valkey"].contains(&durability.kind.as_str()));
}

#[tokio::test]
async fn wrong_passwords_dead_servers_and_lone_nodes_are_told_apart() {
    let (server, _) = private(&[("requirepass", "right")]);
    let url = |login: &str| server.url().replace("//", &format!("//{login}@"));
    let error = refused(&url(":wr0ng")).await;
    assert!(matches!(error, OpenError::Refused(_)), "{error:?}");
    says(&error, &["check user and password"]);
    assert!(!error.to_string().contains("wr0ng"), "no message holds a password: {error}");
    let error = refused(&server.url()).await;
    assert!(matches!(error, OpenError::Refused(_)), "{error:?}");
    RedisStore::builder(&url(":right")).unwrap().accept_relaxed().open().await.unwrap();
    let no_cluster = url(":right").replace("redis://", "redis+cluster://");
    says(&refused(&no_cluster).await, &["no node of a cluster", "redis://"]);
    let dead = url(":right");
    server.kill();
    let error = refused(&dead).await;
    assert!(matches!(error, OpenError::Unreachable(_)), "{error:?}");

    let (node, _) = private(&[("cluster-enabled", "yes")]);
    node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    says(&refused(&node.url()).await, &["redis+cluster://"]);
}

/// The commands that a user of the store needs, and nothing else; docs/redis.md names them to operators, with
/// `~onceward:*` and `&onceward:wake`.
pub(crate) const RIGHTS: &str = "+evalsha +script|load +get +getrange +set +setrange +unlink +pexpire +pexpireat +persist +zadd \
                      +zrem +zrange +zcard +rpush +ltrim +lrange +hset +hget +hgetall +time +info +publish \
                      +subscribe +ping";

#[tokio::test]
async fn a_user_needs_the_rights_that_are_documented_and_no_more() {
    let (server, _) = private(&[]);
    let allow = |without: &str| {
        let mut words = vec![
            "ACL",
            "SETUSER",
            "shop",
            "reset",
            "on",
            ">secret",
            "~onceward:*",
            "&onceward:wake",
        ];
        words.extend(RIGHTS.split_whitespace().filter(|right| *right != without));
        server.command(&words);
    };
    let address = server.url().replace("//", "//shop:secret@") + "?prefix=onceward";
    let bench = Redis::at(&address, vec![server.url()]);
    let open = async || RedisStore::builder(&address).unwrap().accept_relaxed().open().await;
    allow("");
    use_everything(&bench, &open().await.unwrap(), &[server.url()]).await;
    // Without any of them something fails, and the server tells that it was this. A connection that listens is
    // asked for a sign of life only after some seconds.
    for needed in RIGHTS.split_whitespace().filter(|right| *right != "+ping") {
        server.command(&["ACL", "LOG", "RESET"]);
        server.command(&["SCRIPT", "FLUSH"]);
        allow(needed);
        if let Ok(store) = open().await {
            let (bench, servers) = (bench.clone(), vec![server.url()]);
            let used = async move { use_everything(&bench, &store, &servers).await };
            // Messages that may not be said are waited for in vain.
            let _ = timeout(Duration::from_secs(1), tokio::spawn(used)).await;
        }
        let denied = server.command(&["ACL", "LOG"]).to_string();
        let command = needed.trim_start_matches('+');
        assert!(denied.lines().any(|line| line == command), "{needed} is not needed: {denied}");
    }
}

/// All that a store does.
async fn use_everything(bench: &Redis, store: &RedisStore, servers: &[String]) {
    let server = [servers[0].clone()];
    let (_heard, mut told) = listen(store);
    let (released, _) = ended(bench, store, Ending::Released).await;
    let note = Note::of_protocol(NoteKind::Purge, claim(bench, store, &released).await.execution());
    assert_eq!(store.trail(&released.id()).await.unwrap().len(), 1);
    let sample = Sample::new(Effect::External);
    let running = claim(bench, store, &sample).await;
    let fence = fresh_fence();
    let id = SpoolId { operation: sample.id(), fence };
    store.put(&id, 0, b"chunk").await.unwrap();
    assert!(store.chunk(&id, 0).await.unwrap().is_some());
    store.swap(running.settle(Ending::FailedRetryable, fence).change()).await.unwrap();
    let (spooled, persisted) = (Sample::new(Effect::External), fresh_fence());
    let body = onceward::protocol::StoredBody::Spooled { length: 5, digest: [7; 32] };
    let outcome = onceward::Outcome { body, ..onceward::protocol::conformance::answer(201) };
    let ending = Ending::Succeeded(outcome);
    let mut forever =
        claim(bench, store, &spooled).await.settle(ending, persisted).change().clone();
    forever.next.ttl = onceward::protocol::Ttl::Never;
    let id = SpoolId { operation: spooled.id(), fence: persisted };
    store.put(&id, 0, b"chunk").await.unwrap();
    store.swap(&forever).await.unwrap();
    store.discard(&id).await.unwrap();
    let (old, _) = ended(bench, store, paid()).await;
    support_age(&server, store, &old.id(), DAY + HOUR + Duration::from_secs(1)).await;
    store.sweep(10).await.unwrap();
    let (purged, _) = ended(bench, store, paid()).await;
    support_age(&server, store, &purged.id(), HOUR).await;
    let onceward::protocol::Found::Record(stored) = store.get(&purged.id()).await.unwrap() else {
        panic!("it is there");
    };
    store.purge(&purged.id(), stored.record.fence, &note).await.unwrap();
    support_age(&server, store, &stored_id(store).await, DAY * 3).await;
    store.sweep(10).await.unwrap();
    store.list(&Filter::default()).await.unwrap();
    store.census().await.unwrap();
    store.living(None).await.unwrap();
    let route = KeptRoute { template: fresh_fence_text(), ..KeptRoute::default() };
    store.keep_route(None, &route).await.unwrap();
    store.routes().await.unwrap();
    store.condition().await.unwrap();
    store.clock_suspicion().await.unwrap();
    until_heard(store, store, &mut told, Digest([1; 32])).await;
}

async fn support_age(servers: &[String], store: &RedisStore, id: &Digest, by: Duration) {
    age(servers, store, id, by).await;
}

/// A record in progress, which a sweep puts elsewhere when it is old.
async fn stored_id(store: &RedisStore) -> Digest {
    let sample = Sample::new(Effect::External);
    let bench = Redis::at(testbed::redis(), Vec::new());
    claim(&bench, store, &sample).await;
    sample.id()
}

fn fresh_fence_text() -> String {
    format!("{:?}", fresh_fence())
}

const LONG: Duration = Duration::from_secs(20);

fn listen(store: &RedisStore) -> (Arc<OnEnded>, mpsc::UnboundedReceiver<Digest>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let heard: Arc<OnEnded> = Arc::new(move |id: &Digest| {
        let _ = sender.send(*id);
    });
    store.wake().unwrap().listen(&heard);
    (heard, receiver)
}

/// Says that a request waits and that it has ended, until that is heard: both stores must have begun to
/// listen.
async fn until_heard(
    waits: &RedisStore,
    ends: &RedisStore,
    heard: &mut mpsc::UnboundedReceiver<Digest>,
    id: Digest,
) {
    let told = async {
        loop {
            waits.wake().unwrap().awaited(&id);
            tokio::time::sleep(Duration::from_millis(20)).await;
            ends.wake().unwrap().ended(&id);
            if let Ok(Some(other)) = timeout(Duration::from_millis(200), heard.recv()).await {
                assert_eq!(other, id);
                return;
            }
        }
    };
    timeout(LONG, told).await.expect("messages are heard");
}

#[tokio::test]
async fn what_is_awaited_is_heard_in_other_processes_and_again_after_a_restart() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    let other = bench.reopen(store.clone()).await.unwrap();
    let (heard, mut told) = listen(&store);
    until_heard(&store, &other, &mut told, Digest([1; 32])).await;
    while told.try_recv().is_ok() {}
    // No caller waits for this one.
    other.wake().unwrap().ended(&Digest([2; 32]));
    until_heard(&store, &other, &mut told, Digest([3; 32])).await;
    server.restart();
    until_heard(&store, &other, &mut told, Digest([4; 32])).await;
    drop(heard);
    other.wake().unwrap().ended(&Digest([4; 32]));
}

#[tokio::test]
async fn connections_are_encrypted_and_the_server_is_checked() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/open");
    let file = |name: &str| files.join(name).display().to_string();
    let (certificate, key, authority) =
        (file("server.pem"), file("server.key"), file("authority.pem"));
    let port = testbed::free_address().unwrap().port();
    let started = RedisServer::start(
        &RedisInstallation::preferred().unwrap(),
        &[
            ("tls-port", &port.to_string()),
            ("tls-cert-file", &certificate),
            ("tls-key-file", &key),
            ("tls-ca-cert-file", &authority),
            ("tls-auth-clients", "no"),
        ],
    );
    let server = match started {
        Ok(server) => server,
        // The server from PyPI is built without it.
        Err(trouble) => {
            let words = trouble.to_string();
            assert!(words.contains("tls-port") || words.contains("TLS support"), "{words}");
            eprintln!("SKIPPED: this server is built without TLS");
            return;
        }
    };
    let address = |host: &str, options: &str| format!("rediss://{host}:{port}{options}");
    let trusted = format!("?cacert={}", authority.replace('/', "%2F"));
    let builder = RedisStore::builder(&address("localhost", &trusted)).unwrap();
    let store = builder.accept_relaxed().open().await.unwrap();
    ended(&Redis::new(), &store, paid()).await;
    let error = refused(&address("localhost", "")).await;
    assert!(error.to_string().contains("ertificate"), "{error}");
    drop(server);
}
