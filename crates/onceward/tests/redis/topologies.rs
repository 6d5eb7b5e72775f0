//! The same on a cluster and behind sentinels, and when a primary of them dies.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use onceward::{
    Effect, Engine, Store as _, StoreError,
    conformance::block_on,
    protocol::{
        Admission, Execution, Found,
        conformance::{Bench, Sample, fresh_fence},
    },
    store::{Filter, Inspect as _, Swap, redis::RedisStore},
};
use testbed::{RedisCluster, RedisInstallation, RedisSentinels, RedisServer};

use crate::{
    open::RIGHTS,
    store::{ended, paid},
    support::{Redis, with_prefix},
    till::{Sum, Till, asked},
};

fn cluster() -> RedisCluster {
    RedisCluster::start(&RedisInstallation::preferred().unwrap()).unwrap()
}

fn sentinels() -> RedisSentinels {
    RedisSentinels::start(&RedisInstallation::preferred().unwrap()).unwrap()
}

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

/// All conformance tests share one cluster, which ends with this program.
fn on_cluster() -> Redis {
    static SHARED: LazyLock<RedisCluster> = LazyLock::new(cluster);
    Redis::at(&SHARED.url(), urls(SHARED.primaries()))
}

fn behind_sentinels() -> Redis {
    static SHARED: LazyLock<RedisSentinels> = LazyLock::new(sentinels);
    Redis::at(&SHARED.url(), urls(&SHARED.servers()[..1]))
}

/// The suites of the core's, as one test each: the macro makes tests that a usual run would run too.
macro_rules! conformance {
    ($bench:expr, $block_on:path: $($case:ident)*) => {
        $(
            #[test]
            #[ignore = "engines: it starts six servers"]
            fn $case() {
                $block_on(onceward::protocol::conformance::$case(&$bench));
            }
        )*
    };
}

macro_rules! cases {
    ($bench:expr) => {
        use super::*;
        conformance! { $bench, block_on:
            first_request_claims_and_is_read_back
            duplicate_of_a_running_operation_is_busy
            ended_operations_are_replayed_verbatim
            released_key_binds_nothing
            expired_record_is_absent
            abandoned_transactional_effect_is_taken_over
            unknown_stays_unknown
            ending_a_claim_moves_its_fence
            fenced_off_owner_changes_nothing
            renewal_keeps_the_fence_and_restarts_the_lease
            late_truth_wins_over_unknown
            repeated_change_is_recognised_by_its_fence
            operators_release_gives_the_key_back
            times_are_counted_by_the_stores_clock
            claim_long_past_its_lease_is_still_returned
            sweep_deletes_only_ended_records_past_the_margin
            sweep_keeps_to_its_limit
            records_survive_a_reopen
            large_records_are_kept_whole
            of_200_first_requests_one_runs
            of_200_claims_over_an_old_record_one_runs
            of_200_claims_during_a_sweep_one_runs
            of_200_settlements_one_is_stored
            of_owner_and_zombie_only_the_owner_settles
            distinct_operations_do_not_disturb_each_other
            list_shows_every_record_once_over_pages
            list_filters_by_what_a_record_means_now
            list_finds_a_key_in_every_scope_and_operation
            list_order_is_stable_while_records_come_and_change
            purge_deletes_only_ended_records
            trail_tells_exceptional_changes_only
            spooled_chunks_are_kept_by_operation_and_fence
            sweep_drops_chunks_with_their_record
        }
    };
}

mod cluster_conformance {
    cases!(on_cluster());
}

mod sentinel_conformance {
    cases!(behind_sentinels());
}

/// Claims until the store answers for all of them again.
async fn until_all_are_stored(store: &RedisStore) -> Duration {
    let (began, mut in_a_row) = (Instant::now(), 0);
    while in_a_row < 300 {
        let sample = Sample::new(Effect::External);
        let execution = Execution::from_bytes([7; 16]);
        let admission = Admission::new(sample.request(b'a'), fresh_fence(), execution);
        match store.swap(admission.change()).await {
            Ok(Swap::Stored { .. }) => in_a_row += 1,
            Ok(Swap::Conflict(Found::Record(_))) => {}
            Err(StoreError::Unavailable(_)) => {
                assert!(began.elapsed() < testbed::TEST_TIMEOUT, "nobody took over");
                in_a_row = 0;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    began.elapsed()
}

#[tokio::test]
#[ignore = "engines: it starts six servers"]
async fn a_cluster_goes_on_when_a_primary_dies() {
    let cluster = cluster();
    let bench = Redis::at(&cluster.url(), urls(cluster.primaries()));
    let store = bench.open().await;
    assert_eq!(store.durability().primaries, 3);
    let mut samples = Vec::new();
    for _ in 0..60 {
        samples.push(ended(&bench, &store, paid()).await.0);
    }
    // Replicas acknowledge at least once a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.primaries()[0].kill();
    let took = until_all_are_stored(&store).await;
    println!("the cluster went on after {took:?}");
    for sample in &samples {
        assert!(matches!(store.get(&sample.id()).await, Ok(Found::Record(_))));
    }
    let listed = store.list(&Filter { limit: 500, ..Filter::default() }).await.unwrap().listed;
    assert!(listed.len() >= 360);
}

#[tokio::test]
#[ignore = "engines: it starts six servers"]
async fn slots_that_move_are_followed() {
    let cluster = cluster();
    // With the rights that are documented for a cluster.
    for server in cluster.primaries().iter().chain(cluster.replicas()) {
        let mut words =
            vec!["ACL", "SETUSER", "shop", "on", ">secret", "~onceward-test-*", "&onceward-test-*"];
        words.extend(RIGHTS.split_whitespace().chain(["+cluster|slots", "+asking"]));
        server.command(&words);
    }
    let address = cluster.url().replace("//", "//shop:secret@");
    let bench = Redis::at(&address, urls(cluster.primaries()));
    let store = bench.open().await;
    let (sample, _) = ended(&bench, &store, paid()).await;
    let partition = sample.id().0[0];
    let key = format!("x:{{{partition:02x}}}:r");
    let slot = cluster.primaries()[0].command(&["CLUSTER", "KEYSLOT", &key]).to_string();
    let has =
        |server: &&RedisServer| server.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).number() > 0;
    let from = cluster.primaries().iter().find(has).unwrap();
    let to = cluster.primaries().iter().find(|server| server.port() != from.port()).unwrap();
    let [from_id, to_id] =
        [from, to].map(|server| server.command(&["CLUSTER", "MYID"]).to_string());
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    // Half-way: what is there is read, what is new is asked for at the other one.
    assert!(matches!(store.get(&sample.id()).await, Ok(Found::Record(_))));
    let names: Vec<u8> = crate::support::key(&store, 'r', &sample.id());
    let mut moved = redis::cmd("MIGRATE");
    moved.arg("127.0.0.1").arg(to.port()).arg("").arg(0).arg(5000).arg("KEYS").arg(names);
    moved.arg(crate::support::set(&store, 'e', &sample.id()));
    let _: redis::Value = crate::support::ask(&from.url(), &moved).await;
    assert!(
        matches!(store.get(&sample.id()).await, Ok(Found::Record(_))),
        "asked for at the other one"
    );
    for server in cluster.primaries() {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    assert!(matches!(store.get(&sample.id()).await, Ok(Found::Record(_))), "the slot has moved");
    assert_eq!(store.list(&Filter::default()).await.unwrap().listed.len(), 1);
    until_all_are_stored(&store).await;
}

#[tokio::test]
#[ignore = "engines: it starts six servers"]
async fn sentinels_tell_who_is_primary_now() {
    let sentinels = sentinels();
    let builder = RedisStore::builder(&with_prefix(&sentinels.url())).unwrap().accept_relaxed();
    let store = builder.open().await.unwrap();
    let bench = Redis::at(&sentinels.url(), Vec::new());
    let (sample, _) = ended(&bench, &store, paid()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    sentinels.servers()[0].kill();
    let took = until_all_are_stored(&store).await;
    println!("a replica took over after {took:?}");
    assert!(matches!(store.get(&sample.id()).await, Ok(Found::Record(_))));
}

/// Customers ask while something is done to the servers; what became of them.
async fn sum_under_load(address: String, disturb: impl FnOnce() + Send + 'static) -> Sum {
    let store = RedisStore::builder(&with_prefix(&address)).unwrap().accept_relaxed();
    let till = Till::new(Engine::new(store.open().await.unwrap()));
    let serving = tokio::spawn({
        let till = till.clone();
        async move { till.serve(16).await }
    });
    till.wait_for_more(300).await;
    tokio::task::spawn_blocking(disturb).await.unwrap();
    till.wait_for_more(300).await;
    till.close();
    serving.await.unwrap();
    till.sum().await
}

/// Waits until this node calls itself a primary.
fn wait_for_primary(server: &RedisServer) {
    let began = Instant::now();
    while !server.command(&["ROLE"]).to_string().starts_with("master") {
        assert!(began.elapsed() < testbed::TEST_TIMEOUT, "it does not take over");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The old primary stops taking writes until the new one has all of them.
#[test]
#[ignore = "engines: it starts six servers"]
fn a_failover_that_is_asked_for_loses_nothing_under_load() {
    block_on(async {
        let cluster = Arc::new(cluster());
        let disturbed = Arc::clone(&cluster);
        let sum = sum_under_load(cluster.url(), move || {
            for replica in disturbed.replicas() {
                replica.command(&["CLUSTER", "FAILOVER"]);
                wait_for_primary(replica);
            }
        });
        let Sum { effects, answered, unknown, twice, lost } = sum.await;
        println!(
            "three times CLUSTER FAILOVER: {effects} effects, {answered} keys answered, {unknown} unknown"
        );
        assert_eq!((twice, lost), (Vec::new(), Vec::new()));
    });
}

/// What had not reached the replica runs again; what is on the other primaries never does.
#[test]
#[ignore = "engines: it starts six servers"]
fn a_primary_that_is_killed_under_load_loses_at_most_what_it_had_alone() {
    block_on(async {
        let cluster = Arc::new(cluster());
        let disturbed = Arc::clone(&cluster);
        let sum = sum_under_load(cluster.url(), move || {
            disturbed.primaries()[0].kill();
            wait_for_primary(&disturbed.replicas()[0]);
        });
        let Sum { effects, answered, unknown, twice, lost } = sum.await;
        println!(
            "a primary of a cluster killed: {effects} effects, {answered} keys answered, {unknown} unknown, {} had \
             twice, {} lost",
            twice.len(),
            lost.len()
        );
        let is_its_own = |key: &str| {
            let partition = asked(key).operation.digest().0[0];
            let name = format!("x:{{{partition:02x}}}:r");
            let slot = cluster.primaries()[1].command(&["CLUSTER", "KEYSLOT", &name]).number();
            // The first third of all slots is its own.
            slot < 5462
        };
        let of_lost = lost.iter().filter_map(|words| words.split(' ').next());
        for key in twice.iter().map(String::as_str).chain(of_lost) {
            assert!(is_its_own(key), "{key} is on a primary that lives");
        }
    });
}
