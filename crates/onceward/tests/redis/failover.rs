//! What a failover loses: counted, with the settings that are there to lose less.
//!
//! A network lies between a primary and its replicas. It falls silent, claims are acknowledged, the primary dies, and
//! a replica takes its place.

use std::time::{Duration, Instant};

use onceward::{
    Ending, Engine, Outcome, Verdict,
    conformance::block_on,
    protocol::Settled,
    store::redis::{RedisStore, RedisStoreBuilder},
};
use testbed::{RedisInstallation, RedisServer};
use tokio::task::JoinSet;

use crate::{proxy::Proxy, support::with_prefix, till::asked};

/// How many keys are claimed and answered in each case.
const KEYS: usize = 50;

/// How long a store that waits for replicas does so here.
const PATIENCE: Duration = Duration::from_millis(150);

/// Long enough for a replica that is there, on a machine that has much else to do.
const AMPLE: Duration = Duration::from_secs(20);

/// A primary, replicas of it, and the network of each.
struct Group {
    primary: RedisServer,
    replicas: Vec<(RedisServer, Proxy)>,
    prefix: String,
}

type Options = fn(RedisStoreBuilder) -> RedisStoreBuilder;

fn bare(builder: RedisStoreBuilder) -> RedisStoreBuilder {
    builder
}

impl Group {
    /// The settings are those of each replica.
    async fn start(replicas: &[&[(&str, &str)]]) -> Self {
        let installation = RedisInstallation::preferred().unwrap();
        let primary = RedisServer::start(&installation, &[]).unwrap();
        let address = with_prefix("");
        let mut group = Self { primary, replicas: Vec::new(), prefix: address };
        for settings in replicas {
            let proxy = Proxy::before(group.primary.port()).await;
            let of = format!("127.0.0.1 {}", proxy.port());
            let mut all = vec![("replicaof", of.as_str())];
            all.extend(*settings);
            let replica = RedisServer::start(&installation, &all).unwrap();
            let replica = tokio::task::spawn_blocking(move || {
                replica.wait_for_primary().unwrap();
                replica
            });
            group.replicas.push((replica.await.unwrap(), proxy));
        }
        group
    }

    async fn engine(&self, server: &RedisServer, options: Options) -> Engine {
        let builder = RedisStore::builder(&format!("{}{}", server.url(), self.prefix)).unwrap();
        let store = options(builder.connections(16).accept_relaxed()).open().await.unwrap();
        Engine::new(store)
    }

    /// Waits until the replicas have all that the primary has, and it counts them as alive.
    async fn wait_for_copies(&self) {
        let began = Instant::now();
        let number = |server: &RedisServer, name: &str| {
            let info = server.command(&["INFO", "replication"]).to_string();
            let found = info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            found.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or_default()
        };
        loop {
            let written = number(&self.primary, "master_repl_offset:");
            let copied = |replica| number(replica, "slave_repl_offset:") >= written;
            let alive = number(&self.primary, "min_slaves_good_slaves:");
            let asks = self.primary.command(&["CONFIG", "GET", "min-replicas-to-write"]);
            let is_alive = asks.to_string().ends_with("\n0") || alive == self.replicas.len();
            if is_alive && self.replicas.iter().all(|(replica, _)| copied(replica)) {
                return;
            }
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "a replica does not catch up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The replica in this place becomes primary.
    async fn promoted(&self, replica: usize) -> Engine {
        let (replica, _) = &self.replicas[replica];
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        self.engine(replica, bare).await
    }
}

/// How many of these keys run, each with its answer acknowledged.
async fn run_all(engine: &Engine, name: &str) -> usize {
    let mut asking = JoinSet::new();
    for number in 0..KEYS {
        let (engine, request) = (engine.clone(), asked(&format!("{name}-{number}")));
        asking.spawn(async move {
            let Ok(Verdict::Run(claim)) = engine.admit(request).await else { return false };
            let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
            matches!(engine.settle(claim, paid).await, Ok(Settled::Stored { .. }))
        });
    }
    asking.join_all().await.into_iter().filter(|ran| *ran).count()
}

#[test]
fn with_the_link_cut_a_failover_loses_every_acknowledged_claim_since() {
    block_on(async {
        let group = Group::start(&[&[]]).await;
        let engine = group.engine(&group.primary, bare).await;
        assert_eq!(run_all(&engine, "before").await, KEYS);
        group.wait_for_copies().await;
        group.replicas[0].1.fall_silent();
        assert_eq!(run_all(&engine, "after").await, KEYS, "the primary does not mind");

        let promoted = group.promoted(0).await;
        group.primary.kill();
        let before = run_all(&promoted, "before").await;
        let after = run_all(&promoted, "after").await;
        println!(
            "bare: {before} of {KEYS} that had arrived ran again, {after} of {KEYS} that had not"
        );
        assert_eq!(before, 0, "what had arrived is there");
        assert_eq!(after, KEYS, "what had not arrived runs again, as docs/redis.md says");
    });
}

/// The old primary is not dead, only cut off: until an operator stops it, both take claims.
#[test]
fn a_primary_that_is_cut_off_and_its_successor_both_run_the_same_keys() {
    block_on(async {
        let group = Group::start(&[&[]]).await;
        let old = group.engine(&group.primary, bare).await;
        group.replicas[0].1.fall_silent();
        let new = group.promoted(0).await;
        let (old, new) = tokio::join!(run_all(&old, "same"), run_all(&new, "same"));
        println!("cut off and alive: of {KEYS} keys {old} ran here and {new} there");
        assert_eq!((old, new), (KEYS, KEYS), "as docs/redis.md says");
    });
}

#[test]
fn waiting_for_a_replica_acknowledges_nothing_that_this_replica_does_not_have() {
    block_on(async {
        let group = Group::start(&[&[]]).await;
        let ample = group.engine(&group.primary, |builder| builder.wait_replicas(1, AMPLE)).await;
        assert_eq!(run_all(&ample, "before").await, KEYS);
        let hasty =
            group.engine(&group.primary, |builder| builder.wait_replicas(1, PATIENCE)).await;
        group.replicas[0].1.fall_silent();
        let acknowledged = run_all(&hasty, "after").await;
        group.primary.kill();
        let promoted = group.promoted(0).await;
        let before = run_all(&promoted, "before").await;
        println!(
            "wait_replicas(1): {acknowledged} of {KEYS} acknowledged after the cut, {before} of {KEYS} before it lost"
        );
        assert_eq!((acknowledged, before), (0, 0), "nothing that was acknowledged is lost");
        assert_eq!(run_all(&promoted, "after").await, KEYS, "nobody ran them: they run now");
    });
}

#[test]
fn waiting_for_one_replica_does_not_help_when_another_one_takes_over() {
    block_on(async {
        let group = Group::start(&[&[], &[]]).await;
        group.replicas[1].1.fall_silent();
        let engine = group.engine(&group.primary, |builder| builder.wait_replicas(1, AMPLE)).await;
        assert_eq!(run_all(&engine, "k").await, KEYS, "the first replica has them");
        group.primary.kill();
        let (right, wrong) = (group.promoted(0).await, group.promoted(1).await);
        let (right, wrong) = (run_all(&right, "k").await, run_all(&wrong, "k").await);
        println!(
            "wait_replicas(1) of 2: {right} of {KEYS} lost on the one that has them, {wrong} on the other one"
        );
        assert_eq!((right, wrong), (0, KEYS), "as docs/redis.md says");
    });
}

/// Both machines go down, and only what is in a log comes back.
#[test]
fn waiting_for_logs_refuses_what_a_replica_has_in_memory_only() {
    block_on(async {
        let group = Group::start(&[&[("appendonly", "no")]]).await;
        let memory = group.engine(&group.primary, |builder| builder.wait_replicas(1, AMPLE)).await;
        assert_eq!(run_all(&memory, "memory").await, KEYS, "one replica has them");
        let can = group.primary.try_command(&["WAITAOF", "0", "0", "1"]).is_ok();
        let mut logged = 0;
        if can {
            let waits = |builder: RedisStoreBuilder| builder.wait_aof(1, PATIENCE);
            logged = run_all(&group.engine(&group.primary, waits).await, "log").await;
        }
        group.primary.kill();
        // It starts without anything, and its link leads nowhere.
        let (replica, _) = &group.replicas[0];
        tokio::task::block_in_place(|| replica.restart());
        let lost = run_all(&group.promoted(0).await, "memory").await;
        println!("wait_replicas(1), replica without a log, both killed: {lost} of {KEYS} lost");
        println!("wait_aof(1) there ({can}): {logged} of {KEYS} acknowledged");
        assert_eq!(lost, KEYS, "as docs/redis.md says");
        assert_eq!(logged, 0, "none was acknowledged");
    });
}

#[test]
fn a_primary_that_asks_for_replicas_still_acknowledges_until_it_misses_them() {
    block_on(async {
        let group = Group::start(&[&[]]).await;
        for setting in ["min-replicas-to-write", "min-replicas-max-lag"] {
            group.primary.command(&["CONFIG", "SET", setting, "1"]);
        }
        group.wait_for_copies().await;
        let engine = group.engine(&group.primary, bare).await;
        assert_eq!(run_all(&engine, "before").await, KEYS);
        group.wait_for_copies().await;
        group.replicas[0].1.fall_silent();
        let mut names = vec!["after-0".to_owned()];
        let mut acknowledged = run_all(&engine, &names[0]).await;
        assert!(acknowledged > 0, "it has not missed the replica yet");
        let began = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let name = format!("after-{}", names.len());
            let more = run_all(&engine, &name).await;
            names.push(name);
            acknowledged += more;
            if more == 0 {
                break;
            }
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "it never misses the replica");
        }
        let refused = engine.admit(asked("refused")).await.unwrap_err().to_string();
        assert!(refused.contains("NOREPLICAS"), "{refused}");
        group.primary.kill();
        let promoted = group.promoted(0).await;
        let mut lost = 0;
        for name in &names {
            lost += run_all(&promoted, name).await;
        }
        println!(
            "min-replicas-to-write 1, max-lag 1: {acknowledged} acknowledged until it refused, {lost} keys run again"
        );
        assert!(lost >= acknowledged, "as docs/redis.md says");
    });
}
