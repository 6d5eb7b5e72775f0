//! What operators have on PostgreSQL: the same commands and the same answers as on a file.

use serde_json::{Value, json};
use testbed::Database;

use crate::{
    gateway_support::{Call, Finished, Gateway, Upstream, eventually, route},
    support::{Shop, onceward},
};

fn said(finished: &Finished) -> String {
    format!("{}{}", finished.stdout, finished.stderr)
}

fn pay(key: &str) -> Call {
    Call::post("/pay").key(key).header("x-api-key", "alice").json(json!({ "cents": 5 }))
}

/// A gateway whose upstream has lost the answer to one of two requests.
async fn used(database: &Database) -> (Upstream, Gateway) {
    let upstream = Upstream::any();
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route("key = \"required\"\nname = \"pay\""));
    let plan = crate::gateway_support::Plan::new(&upstream.url(), &text).store(database.url());
    let gateway = plan.start();
    assert_eq!(gateway.send(&pay("paid")).await.status, 201);
    let lost = gateway.send(&pay("lost").told(json!({ "hang_up": true }))).await;
    assert_eq!(lost.problem().1, "outcome-unknown", "{lost:?}");
    (upstream, gateway)
}

#[test]
fn tables_are_made_once_and_looked_at_without_a_change() {
    let database = testbed::postgres().database();
    let check = onceward(&["migrate", "--check"], database.url());
    assert_eq!(check.code, 1, "{}", said(&check));
    assert!(said(&check).contains("the tables have version 0"), "{}", said(&check));
    assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'onceward'"), "0");
    let made = onceward(&["migrate"], database.url());
    assert!(made.is_success() && said(&made).contains("now, after 0"), "{}", said(&made));
    for arguments in [&["migrate"][..], &["migrate", "--check"]] {
        let again = onceward(arguments, database.url());
        assert!(again.is_success(), "{}", said(&again));
        assert!(said(&again).contains("the tables are up to date"), "{}", said(&again));
    }
    database.sql("INSERT INTO onceward.migration (version) VALUES (900)");
    let newer = onceward(&["migrate"], database.url());
    assert_eq!(newer.code, 1, "{}", said(&newer));
    assert!(said(&newer).contains("use the newer one"), "{}", said(&newer));
}

/// Whoever runs the SQL with tools of their own gets the same tables.
#[test]
fn the_printed_sql_does_the_same() {
    let database = testbed::postgres().database();
    let printed = onceward(&["migrate", "--print"], "");
    assert!(printed.is_success(), "{}", said(&printed));
    database.sql(&said(&printed));
    let check = onceward(&["migrate", "--check"], database.url());
    assert!(check.is_success(), "{}", said(&check));
    let nothing = onceward(&["migrate", "--print"], database.url());
    assert!(nothing.is_success() && said(&nothing).is_empty(), "{}", said(&nothing));
    let file = onceward(&["migrate", "--print", "--store", "sqlite://a.db"], "");
    assert!(said(&file).contains("leave --print out"), "{}", said(&file));
}

/// A rolling start: all of them find the same tables.
#[test]
fn those_that_start_together_make_the_tables_once() {
    let database = testbed::postgres().database();
    let outputs = std::thread::scope(|scope| {
        let started: Vec<_> =
            (0..6).map(|_| scope.spawn(|| onceward(&["migrate"], database.url()))).collect();
        started.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    for output in outputs {
        assert!(output.is_success(), "{}", said(&output));
    }
    let versions = "SELECT count(*) = max(version) FROM onceward.migration";
    assert_eq!(database.sql(versions), "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_found_and_repaired_on_the_store_and_by_the_listener() {
    let database = testbed::postgres().database();
    let (upstream, gateway) = used(&database).await;
    let list = onceward(&["keys", "list", "--json", "--store", database.url()], "");
    let listed = list.json();
    let mut states: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["succeeded", "unknown"], "{listed}");
    for one in listed.as_array().unwrap() {
        let question = format!(
            "SELECT concat_ws(' ', status, attempts, scope, operation) FROM onceward.operations
             WHERE id = '{}'",
            one["operation"].as_str().unwrap()
        );
        let text = |name: &str| one[name].to_string().replace('"', "");
        let said = ["state", "attempt", "scope", "name"].map(text).join(" ");
        assert_eq!(database.sql(&question), said, "the view has the words of the list");
    }
    let unknown = gateway.ask(&Call::new("GET", "/v1/operations?state=unknown")).await.json();
    let reference = unknown["operations"][0]["operation"].as_str().unwrap();
    let path = gateway.directory.path().join("onceward.toml");
    let config = ["--config", path.to_str().unwrap()];
    let resolve = ["keys", "resolve", "--operation", reference, "--not-applied", "--force"];
    let resolved = onceward(&[&resolve[..], &["--reason", "asked"], &config].concat(), "");
    assert!(resolved.is_success(), "{}", said(&resolved));
    let shown = gateway.ask(&Call::new("GET", &format!("/v1/operations/{reference}"))).await.json();
    assert_eq!(shown["trail"].as_array().unwrap().len(), 2, "unknown, then resolved: {shown}");
    let again = gateway.send(&pay("lost")).await;
    assert_eq!((again.status, again.is_replay()), (201, false), "{again:?}");
    assert_eq!(upstream.count_of("lost").await, 2);
    let nobody = onceward(&["keys", "list", "--store", "postgres://a:sesame@127.0.0.1:1/d"], "");
    assert!(!nobody.is_success() && said(&nobody).contains("could be reached"));
    assert!(!said(&nobody).contains("sesame"), "{}", said(&nobody));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_readiness_and_configuration_are_as_on_a_file() {
    let database = testbed::postgres().database();
    let (_upstream, gateway) = used(&database).await;
    let metrics = gateway.ask(&Call::new("GET", "/metrics")).await;
    let value = |name: &str| {
        let line = metrics.text().lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("there is no {name}:\n{}", metrics.text()));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert!(value("onceward_open_operations{state=\"unknown\"}") >= 1.0);
    assert!(value("onceward_store_file_bytes") > 8192.0);
    assert_eq!(gateway.ask(&Call::new("GET", "/ready")).await.status, 200);
    let config = gateway.ask(&Call::new("GET", "/v1/config")).await.json();
    assert!(config["store"].as_str().unwrap().starts_with("postgres://"), "{config}");
    let large = gateway.send(&pay("large").told(json!({ "size": 300_000 }))).await;
    let again = gateway.send(&pay("large")).await;
    assert!(again.is_replay() && again.body == large.body, "large answers are kept beside");
}

fn doctor(gateway: &Gateway) -> (Value, Vec<String>) {
    let path = gateway.directory.path().join("onceward.toml");
    let output = onceward(&["doctor", "--json", "--config", path.to_str().unwrap()], "");
    let report = output.json();
    let codes = report["findings"].as_array().unwrap().iter();
    let codes = codes.map(|one| one["code"].as_str().unwrap().to_owned()).collect();
    (report, codes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_says_what_the_server_promises() {
    let shop = Shop::open();
    let (_upstream, gateway) = used(&shop.database).await;
    let (report, codes) = doctor(&gateway);
    let store = &report["store"];
    assert_eq!((&store["seen"], &store["fsync"]), (&json!(true), &json!(true)), "{report:#}");
    assert_eq!((&store["unknown"], &store["class"]), (&json!(1), &json!("strict")), "{report:#}");
    assert!(store["server_version"].is_string(), "{store}");
    for code in ["no-standby", "unknown-operations"] {
        assert!(codes.iter().any(|known| known == code), "{code}: {codes:?}");
    }
    let file = gateway.directory.path().join("onceward.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let weak = format!("ALTER DATABASE {} SET synchronous_commit = off", shop.database.name());
    shop.database.sql(&weak);
    shop.database.sql(&format!("REVOKE onceward_app FROM {}", shop.role()));
    std::fs::write(&file, text.replace("key = ", "effect = \"transactional\"\nkey = ")).unwrap();
    let (report, codes) = doctor(&gateway);
    assert!(codes.contains(&"synchronous-commit".into()), "{codes:?}");
    assert_eq!(report["routes"][0]["tier"], "T1", "{report:#}");
    assert_eq!(report["routes"][0]["promise"], "exactly once");
    for (store, code) in [
        (shop.database.url().replace(shop.database.name(), "nowhere"), "store-refused"),
        ("postgres://a@127.0.0.1:1/d".to_owned(), "store-unreachable"),
        (testbed::postgres().url().to_owned(), "store-missing"),
    ] {
        std::fs::write(&file, text.replace(shop.database.url(), &store)).unwrap();
        let (report, codes) = doctor(&gateway);
        assert!(codes.iter().any(|known| known == code), "{code}: {codes:?}");
        assert_eq!(report["store"]["seen"], false);
    }
    std::fs::write(&file, text).unwrap();
    shop.database.sql("INSERT INTO onceward.migration (version) VALUES (900)");
    assert!(doctor(&gateway).1.contains(&"store-newer".into()));
    eventually("the gateway goes on", || async { gateway.send(&pay("paid")).await.is_replay() })
        .await;
}

/// Another role may plant functions there, which services then call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_says_where_others_may_plant_functions() {
    let database = testbed::postgres().database();
    database.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let (_upstream, gateway) = used(&database).await;
    let found = |code: &str| doctor(&gateway).1.contains(&code.into());
    assert!(!found("public-create") && !found("search-path"));
    database.sql("GRANT CREATE ON SCHEMA public TO PUBLIC");
    let name = database.name();
    database.sql(&format!("ALTER DATABASE {name} SET search_path = public, pg_catalog"));
    assert!(found("public-create") && found("search-path"));
}
