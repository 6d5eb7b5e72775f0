//! What operators ask of records in Redis: by the command on the store, and by the listener.

use serde_json::json;
use testbed::RedisServer;

use crate::{
    gateway_support::{Call, Finished, Gateway, Upstream, command, eventually},
    support::{onceward, pay, place, plan, server},
};

/// A gateway with an operation that has ended, one that is unknown, and one that was interrupted.
async fn used(store: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::any();
    let gateway = plan(&upstream, store, "").start();
    assert_eq!(gateway.send(&pay("paid")).await.status, 201);
    assert_eq!(gateway.send(&pay("lost").told(json!({ "status": 504 }))).await.status, 504);
    (upstream, gateway)
}

fn older(server: &RedisServer, prefix: &str) {
    let by = (120_u64 * 1_000_000).to_string();
    let script = include_str!("older.lua");
    let count = server.command(&["EVAL", script, "0", prefix, &by]).number();
    assert!(count > 0, "there are no records");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_found_and_repaired_on_the_store_itself() {
    let server = server(&[]);
    let store = server.url();
    let (upstream, gateway) = used(&store).await;
    let keys = |arguments: &[&str]| {
        onceward(&[&["keys"], arguments, &["--store", &store, "--json"]].concat(), "")
    };
    let listed = keys(&["list"]);
    assert_eq!(listed.json().as_array().unwrap().len(), 2, "{listed}");
    let unknown = keys(&["list", "--state", "unknown"]).json();
    let reference = unknown[0]["operation"].as_str().unwrap().to_owned();
    let shown = keys(&["show", "--key", "lost"]).json();
    assert_eq!((&shown["operation"], &shown["state"]), (&json!(reference), &json!("unknown")));

    let resolve = ["resolve", "--operation", &reference, "--not-applied", "--force"];
    let config = gateway.directory.path().join("onceward.toml");
    let config = ["--config", config.to_str().unwrap()];
    let resolved =
        onceward(&[&["keys"], &resolve[..], &["--reason", "asked"], &config].concat(), "");
    assert!(resolved.is_success(), "{resolved}");
    let trail = keys(&["show", "--operation", &reference]).json()["trail"].clone();
    assert_eq!(trail.as_array().unwrap().len(), 2, "unknown, then resolved: {trail}");
    let again = gateway.send(&pay("lost")).await;
    assert_eq!((again.status, again.is_replay()), (201, false), "{again:?}");
    assert_eq!(upstream.count_of("lost").await, 2);

    let seen = upstream.count().await;
    let stuck = gateway.begin(&pay("stuck").told(json!({ "gate": "stuck" })));
    upstream.arrival(seen + 1).await;
    let release = ["keys", "release", "--key", "stuck", "--force", "--reason", "a test"];
    let released = onceward(&[&release[..], &config].concat(), "");
    assert!(released.is_success(), "{released}");
    let freed = gateway.send(&pay("stuck")).await;
    assert_eq!((freed.status, freed.is_replay()), (201, false), "{freed:?}");
    upstream.open("stuck").await;
    stuck.await.unwrap();

    let purge = ["purge", "--key", "paid", "--reason", "a test"];
    let refused = keys(&purge);
    assert!(!refused.is_success() && refused.stderr.contains("minute"), "{refused}");
    older(&server, "onceward");
    let purged = keys(&purge);
    assert!(purged.is_success(), "{purged}");
    assert!(!gateway.send(&pay("paid")).await.is_replay(), "its key is new");
    assert_eq!(upstream.count_of("paid").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_answers_as_on_other_stores_and_says_that_there_is_no_outbox() {
    let (_upstream, gateway) = used(&place()).await;
    let get = |path: &str| Call::new("GET", path);
    let page = gateway.ask(&get("/v1/operations?state=unknown")).await.json();
    assert_eq!(page["operations"].as_array().unwrap().len(), 1, "{page}");
    let config = gateway.ask(&get("/v1/config")).await.json();
    assert!(config["store"].as_str().unwrap().starts_with("redis://"), "{config}");
    assert_eq!(gateway.ask(&get("/v1/clock")).await.json()["suspect"], false);
    let id = "00000000-0000-7000-8000-000000000000";
    for path in ["/v1/messages", "/v1/sinks", &format!("/v1/messages/{id}")] {
        let refused = gateway.ask(&get(path)).await;
        assert_eq!(refused.problem(), (404, "no-outbox".into()), "{path}: {refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("postgres://"), "{refused:?}");
    }
    let discard = Call::post(&format!("/v1/messages/{id}/discard"));
    let refused = gateway.ask(&discard.json(json!({ "sink": "a", "reason": "x" }))).await;
    assert_eq!(refused.problem(), (404, "no-outbox".into()), "{refused:?}");
    eventually("figures are taken", || async {
        gateway.metric("onceward_open_operations{state=\"unknown\"}").await == 1
    })
    .await;
}

#[test]
fn there_is_nothing_to_migrate() {
    for store in ["redis://:sesame@127.0.0.1:1", "valkey+cluster://:sesame@127.0.0.1:1"] {
        for arguments in [&["migrate"][..], &["migrate", "--check"]] {
            let migrated = Finished::of(command(arguments).env("ONCEWARD_STORE", store));
            assert!(
                migrated.is_success() && migrated.stdout.contains("nothing to do"),
                "{migrated}"
            );
            assert!(!migrated.stdout.contains("sesame"), "{migrated}");
        }
        let printed = onceward(&["migrate", "--print"], store);
        assert!(!printed.is_success() && printed.stderr.contains("only tables"), "{printed}");
    }
}
