//! What a gateway says that does not start.

use crate::{
    gateway_support::Plan,
    serve::{Upstream, plan, server},
    support::onceward,
};

/// Each of these words, and no password.
fn assert_said(plan: &Plan, words: &[&str]) {
    let said = plan.refusal();
    for word in words {
        assert!(said.contains(word), "it does not say {word:?}:\n{said}");
    }
    assert!(!said.contains("sesame"), "it shows a password:\n{said}");
}

#[tokio::test]
async fn who_is_not_let_in_is_told_what_to_check() {
    let (server, upstream) = (server(&[]), Upstream::any());
    let database = server.database();
    let right = server.login("ada", "sesame", database.name());
    let wrong = right.replace("ada:sesame", "ada:opensesame");
    assert_said(
        &plan(&upstream, &wrong),
        &["password authentication failed", "check user, password"],
    );
    let elsewhere = right.replace(database.name(), "nowhere");
    assert_said(
        &plan(&upstream, &elsewhere),
        &["\"nowhere\" does not exist", "check user, password"],
    );
    server.stop();
    assert_said(&plan(&upstream, &right), &["could be reached", "127.0.0.1"]);
}

/// A role that may not make tables needs them, and those that it can work with.
#[tokio::test]
async fn tables_that_are_missing_old_or_newer_are_named_with_what_to_run() {
    let (server, upstream) = (server(&[]), Upstream::any());
    let database = server.database();
    let plain = server.login("ada", "sesame", database.name());
    assert_said(&plan(&upstream, &plain), &["permission denied", "run `onceward migrate`"]);
    assert!(onceward(&["migrate"], database.url()).is_success());
    let grants = ["GRANT USAGE ON SCHEMA onceward TO", "ON ALL TABLES IN SCHEMA onceward TO"];
    assert_said(&plan(&upstream, &plain), &["may not use the tables", grants[0], grants[1]]);
    database.sql(
        "GRANT USAGE ON SCHEMA onceward TO ada; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceward TO ada",
    );
    drop(plan(&upstream, &plain).start());
    database.sql("UPDATE onceward.migration SET version = 900, needs = 900 WHERE version = 1");
    assert_said(&plan(&upstream, &plain), &["have version 900", "start the newer software"]);
    database.sql("DELETE FROM onceward.migration WHERE version > 1");
    database.sql("INSERT INTO onceward.migration (version) VALUES (1)");
    assert_said(&plan(&upstream, &plain), &["permission denied", "run `onceward migrate`"]);
}

/// Records need the primary, whatever is given as one.
#[tokio::test]
async fn a_server_that_only_reads_is_refused() {
    let (primary, upstream) = (server(&[]), Upstream::any());
    let database = primary.database();
    drop(plan(&upstream, database.url()).start());
    let standby = primary.add_standby("s1").unwrap();
    primary.make_synchronous(&["s1"]);
    let there = standby.url(database.name());
    assert_said(&plan(&upstream, &there), &["takes writes"]);
    let both = testbed::multi_host_url(&[&standby, &primary], database.name());
    drop(plan(&upstream, &both).start());
}

/// `guarantee` decides whether a server may lose what it acknowledged.
#[tokio::test]
async fn a_server_that_may_lose_records_is_refused_unless_that_is_meant() {
    let (server, upstream) = (server(&[("fsync", "off")]), Upstream::any());
    let database = server.database();
    let strict = plan(&upstream, database.url());
    assert_said(&strict, &["fsync is off", "guarantee = \"relaxed\""]);
    let relaxed = Plan { text: format!("guarantee = \"relaxed\"\n{}", strict.text), ..strict };
    drop(relaxed.start());
}
