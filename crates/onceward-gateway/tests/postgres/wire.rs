//! `dialect=wire`: the gateway with the statements for other engines, on PostgreSQL at SERIALIZABLE. It needs nothing
//! that only PostgreSQL has, and says what it does without.

use serde_json::{Value, json};
use testbed::Database;

use crate::{
    gateway_support::{Call, Finished, Gateway, Plan, Upstream, command, route},
    serve::server,
    support::onceward,
};

/// A database in which every transaction is serializable, and the address that names the dialect.
fn serializable() -> (Database, String) {
    let database = testbed::postgres().database();
    let name = database.name();
    database
        .sql(&format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable"));
    let url = format!("{}?dialect=wire", database.url());
    (database, url)
}

fn plan(upstream: &Upstream, url: &str, lines: &str) -> Plan {
    let text =
        format!("admin = \"127.0.0.1:0\"\n{}", route(&format!("key = \"required\"\n{lines}")));
    Plan::new(&upstream.url(), &text).store(url)
}

fn pay(key: &str, cents: u32) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({ "cents": cents }))
}

fn file(gateway: &Gateway) -> String {
    gateway.directory.path().join("onceward.toml").to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_runs_once_is_replayed_and_belongs_to_its_request() {
    let ((database, url), upstream) = (serializable(), Upstream::any());
    let gateway = plan(&upstream, &url, "").start();
    assert!(gateway.said_so_far().contains("`dialect=wire`"), "{}", gateway.said_so_far());
    let first = gateway.send(&pay("one", 5)).await;
    let again = gateway.send(&pay("one", 5)).await;
    assert_eq!((first.status, again.is_replay(), &again.body), (201, true, &first.body));
    assert_eq!(gateway.send(&pay("one", 6)).await.problem(), (422, "key-reused".into()));
    let large = gateway.send(&pay("large", 5).told(json!({ "size": 300_000 }))).await;
    let again = gateway.send(&pay("large", 5)).await;
    assert!(again.is_replay() && again.body == large.body, "large answers are kept beside");
    assert_eq!(gateway.ask(&Call::new("GET", "/ready")).await.status, 200);
    drop(gateway);
    // The names of its routes and the records are there for the next process, which starts without this dialect's
    // migrations or any other.
    let gateway = plan(&upstream, &url, "").start();
    assert!(gateway.send(&pay("one", 5)).await.is_replay());
    assert_eq!(upstream.count().await, 2);
    let made = "SELECT string_agg(version::text, ' ' ORDER BY version) FROM onceward.migration";
    assert_eq!(database.sql(made), "1 5");
    let functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'onceward'::regnamespace";
    assert_eq!(database.sql(functions), "0", "other engines have none");
}

/// Serializable transactions that get in each other's way are undone by the server (40001).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_undoes_is_sent_again_and_runs_once() {
    // Its log is read by its last lines.
    let settings =
        [("default_transaction_isolation", "serializable"), ("log_min_error_statement", "panic")];
    let (server, upstream) = (server(&settings), Upstream::any());
    let database = server.database();
    let url = format!("{}?dialect=wire", database.url());
    let first = plan(&upstream, &url, "in_flight = \"wait\"").start();
    let second = plan(&upstream, &url, "in_flight = \"wait\"").beside(&first).start();
    let mut rounds = 0;
    while !server.log_tail().contains("could not serialize access") {
        assert!(rounds < 50, "nothing got in the way of anything: this test shows nothing");
        let calls = (0..40).map(|number| {
            let gateway = if number % 2 == 0 { &first } else { &second };
            gateway.begin(&pay(&format!("{rounds}-{}", number % 4), 5))
        });
        for call in calls.collect::<Vec<_>>() {
            let reply = call.await.unwrap();
            assert_eq!(reply.status, 201, "{reply:?}");
        }
        rounds += 1;
        assert_eq!(upstream.count().await, rounds * 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_find_and_repair_its_operations() {
    let ((_database, url), upstream) = (serializable(), Upstream::any());
    let missing = onceward(&["keys", "list", "--store", &url], "");
    assert!(missing.stderr.contains("no tables of Onceward"), "{missing}");
    let gateway = plan(&upstream, &url, "name = \"pay\"").start();
    assert_eq!(gateway.send(&pay("paid", 5)).await.status, 201);
    let lost = gateway.send(&pay("lost", 5).told(json!({ "hang_up": true }))).await;
    assert_eq!(lost.problem().1, "outcome-unknown", "{lost:?}");
    let file = file(&gateway);
    let keys = |arguments: &[&str], place: &[&str]| {
        Finished::of(command(&[&["keys"], arguments, place].concat()).env("USER", "ada"))
    };
    for place in [&["--store", &url][..], &["--config", &file]] {
        let listed = keys(&["list", "--json", "--state", "unknown"], place);
        assert_eq!(listed.json().as_array().unwrap().len(), 1, "{listed}");
        let shown = keys(&["show", "--key", "lost", "--json"], place);
        assert_eq!(shown.json()["state"], "unknown", "{shown}");
    }
    let resolve = ["resolve", "--key", "lost", "--applied", "--reason", "it is in the ledger"];
    let resolved = keys(&resolve, &["--config", &file]);
    assert!(resolved.is_success() && resolved.stdout.contains("succeeded"), "{resolved}");
    let again = gateway.send(&pay("lost", 5)).await;
    assert_eq!(again.problem().1, "result-unavailable", "{again:?}");
    let purge = ["purge", "--key", "paid", "--reason", "too soon"];
    let refused = keys(&purge, &["--config", &file]);
    assert!(!refused.is_success(), "it was changed less than a minute ago: {refused}");
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_says_what_cannot_be_asked() {
    let ((_database, url), upstream) = (serializable(), Upstream::any());
    let gateway = plan(&upstream, &url, "").start();
    gateway.send(&pay("lost", 5).told(json!({ "hang_up": true }))).await;
    let report = onceward(&["doctor", "--json", "--config", &file(&gateway)], "");
    let report: Value = report.json();
    let codes: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
    assert!(codes.contains(&json!("promises-unseen")), "{codes:?}");
    assert!(codes.contains(&json!("unknown-operations")), "{codes:?}");
    let store = &report["store"];
    assert_eq!((&store["seen"], &store["dialect"]), (&json!(true), &json!("wire")), "{store}");
    assert_eq!(store["unknown"], 1, "{store}");
    assert!(store.get("fsync").is_none(), "{store}");
    let text = onceward(&["doctor", "--config", &file(&gateway)], "");
    assert!(text.stdout.contains("the server cannot be asked"), "{text}");
}

#[test]
fn migrate_makes_looks_at_and_prints_the_tables_that_such_an_engine_has() {
    let (database, url) = serializable();
    let check = onceward(&["migrate", "--check"], &url);
    assert_eq!(check.code, 1, "{check}");
    let printed = onceward(&["migrate", "--print"], &url);
    assert!(printed.stdout.contains("CREATE TABLE onceward.record"), "{printed}");
    assert!(!printed.stdout.contains("CREATE FUNCTION"), "{printed}");
    let made = onceward(&["migrate"], &url);
    assert!(made.stdout.contains("version 5 now, after 0"), "{made}");
    let (check, nothing) =
        (onceward(&["migrate", "--check"], &url), onceward(&["migrate", "--print"], &url));
    assert!(check.stdout.contains("up to date (version 5)"), "{check}");
    assert!(nothing.is_success() && nothing.stdout.is_empty(), "{nothing}");
    // It was PostgreSQL all the time: the rest is made, and either dialect finds what it needs.
    let rest = onceward(&["migrate"], database.url());
    assert!(rest.stdout.contains("after 1"), "{rest}");
    database.sql("SELECT count(*) FROM onceward.operations");
    for url in [&url, database.url()] {
        let check = onceward(&["migrate", "--check"], url);
        assert!(check.is_success(), "{check}");
    }
}

/// Nothing can be locked for the whole of a migration there.
#[test]
fn those_that_start_together_make_the_tables_once() {
    let (database, url) = serializable();
    let outputs = std::thread::scope(|scope| {
        let started: Vec<_> =
            (0..6).map(|_| scope.spawn(|| onceward(&["migrate"], &url))).collect();
        started.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    for output in outputs {
        assert!(output.is_success(), "{output}");
    }
    assert_eq!(database.sql("SELECT count(*) FROM onceward.migration"), "2");
}

#[tokio::test]
async fn what_the_dialect_lacks_and_what_is_misspelt_is_refused_with_its_line() {
    let upstream = Upstream::any();
    let check = |url: &str, lines: &str| {
        let plan = plan(&upstream, url, lines);
        let file = plan.directory.path().join("onceward.toml");
        std::fs::write(&file, &plan.text).unwrap();
        Finished::of(command(&["check"]).arg(file).env_remove("ONCEWARD_STORE"))
    };
    let url = "postgres://ada:sesame@db/shop?dialect=";
    for (dialect, lines, words) in [
        ("wire", "effect = \"transactional\"", &["onceward.complete", "`dialect=wire`"][..]),
        ("wired", "", &["toml:2", "`dialect` that does not exist", "did you mean `dialect=wire`?"]),
        ("cockroach", "", &["toml:2", "choose of postgres, wire"]),
    ] {
        let refused = check(&format!("{url}{dialect}"), lines);
        assert_eq!(refused.code, 1, "{refused}");
        for word in words {
            assert!(refused.to_string().contains(word), "{word:?} is not said: {refused}");
        }
        assert!(!refused.to_string().contains("sesame"), "{refused}");
    }
    for dialect in ["wire", "postgres"] {
        let taken = check(&format!("{url}{dialect}"), "");
        assert!(taken.is_success(), "{taken}");
        assert_eq!(
            taken.to_string().contains("what the server keeps cannot be asked"),
            dialect == "wire"
        );
    }
    for arguments in [&["migrate"][..], &["keys", "list"]] {
        let store = format!("{url}yugabyte");
        let refused = onceward(&[arguments, &["--store", &store]].concat(), "");
        assert!(refused.stderr.contains("choose of postgres, wire"), "{refused}");
    }
}
