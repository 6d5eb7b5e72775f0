//! `onceward relay` on databases on which it must not work as they are: restored copies, standbys, and tables of other
//! versions.

use testbed::{Database, Installation, Process, Server};

use crate::{
    gateway_support::{Finished, Upstream, command, eventually},
    messages::{becomes, document, end, enqueue, relay},
    support::onceward,
};

/// Waits until a relay has all lanes of the sink.
async fn the_sink_is_there(database: &Database) {
    eventually("the sink is there", || async {
        document(database, &["sinks"])["sinks"][0]["lanes_held"] == 64
    })
    .await;
}

fn rebase(url: &str, more: &[&str]) -> Finished {
    let arguments = ["relay", "rebase", "--store", url, "--reason", "restored the dump of Tuesday"];
    onceward(&[&arguments, more].concat(), "")
}

/// One message is delivered, and one waits.
async fn fill(database: &Database, url: &str) -> [String; 2] {
    let before = relay(database, url);
    the_sink_is_there(database).await;
    let delivered = enqueue(database);
    becomes(database, &delivered, "delivered").await;
    end(&before);
    [delivered, enqueue(database)]
}

#[tokio::test]
async fn a_relay_on_a_restored_dump_waits_for_a_rebase() {
    let upstream = Upstream::any();
    let url = format!("{}/events", upstream.url());
    let installation = Installation::preferred().unwrap();
    let [old, new] = [(), ()].map(|()| Server::start(&installation, &[]).unwrap());
    // The numbers of transactions of the dump are far ahead of those of the new server.
    old.sql(
        "DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$",
    );
    let (database, copy) = (old.database(), new.database());
    let [delivered, waiting] = fill(&database, &url).await;
    let dump = database.dump();
    // As the page says: a dump of one database grants rights to roles and does not hold them.
    let refused = copy.try_sql(&dump).unwrap_err().to_string();
    assert!(refused.contains("role \"onceward_app\" does not exist"), "{refused}");
    copy.sql("DROP SCHEMA onceward CASCADE; CREATE ROLE onceward_app NOLOGIN");
    copy.sql(&dump);
    drop(old);
    let alarm = document(&copy, &["sinks"])["alarm"].to_string();
    assert!(alarm.contains("`onceward relay rebase`"), "{alarm}");
    let stopped = relay(&copy, &url);
    stopped.stderr.wait_for("onceward relay rebase").unwrap();
    // Producers go on meanwhile.
    let new_one = enqueue(&copy);
    let kept = rebase(copy.url(), &["--keep"]);
    assert!(!kept.is_success() && kept.stderr.contains("they were not kept"), "{kept}");
    assert!(kept.stderr.contains("Nothing was changed"), "{kept}");
    assert_eq!(upstream.count().await, 1, "the copy sends nothing");
    let rebased = rebase(copy.url(), &[]);
    assert!(
        rebased.stdout.contains("2 messages to be delivered that no sink had got"),
        "{rebased}"
    );
    for id in [&waiting, &new_one] {
        becomes(&copy, id, "delivered").await;
    }
    for id in [&delivered, &waiting, &new_one] {
        assert_eq!(upstream.count_of(id).await, 1, "{id}");
    }
    end(&stopped);
}

/// As after `pg_upgrade`: the numbers of transactions were kept, and the database has another identity.
#[tokio::test]
async fn a_copy_that_kept_its_numbers_is_told_so() {
    let (upstream, database) = (Upstream::any(), testbed::postgres().database());
    let url = format!("{}/events", upstream.url());
    let [delivered, waiting] = fill(&database, &url).await;
    database.sql("UPDATE onceward.cluster SET system_identifier = system_identifier - 1");
    assert!(document(&database, &["sinks"])["alarm"].is_string());
    let kept = rebase(database.url(), &["--keep"]);
    assert!(kept.stdout.ends_with("the outbox belongs to this database now\n"), "{kept}");
    assert!(document(&database, &["sinks"])["alarm"].is_null());
    let trail = database.sql("SELECT kind, reason FROM onceward.message_trail");
    assert_eq!(trail, "rebase-keep|restored the dump of Tuesday");
    let after = relay(&database, &url);
    becomes(&database, &waiting, "delivered").await;
    for id in [&delivered, &waiting] {
        assert_eq!(upstream.count_of(id).await, 1, "{id}");
    }
    end(&after);
}

/// What `onceward relay` says that ends because it cannot work there.
fn refusal(url: &str) -> String {
    let sink = "billing=http://127.0.0.1:1/events";
    let process = Process::start(&mut command(&["relay", "--store", url, "--sink", sink])).unwrap();
    let ended = process.wait_for_end().unwrap();
    let said = process.stderr.text();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(!said.contains("delivering messages of"), "{said}");
    said
}

#[test]
fn a_relay_on_a_standby_says_that_it_needs_the_primary() {
    let primary = Server::start(&Installation::preferred().unwrap(), &[]).unwrap();
    let database = primary.database();
    assert!(onceward(&["migrate", "--store", database.url()], "").is_success());
    let standby = primary.add_standby("standby").unwrap();
    primary.wait_for_standby(&standby);
    let said = refusal(&standby.url(database.name()));
    assert!(said.contains("no PostgreSQL server that takes writes could be reached"), "{said}");
    assert!(said.contains("this is a standby"), "{said}");
    assert!(said.contains("name the primary"), "{said}");
}

#[test]
fn a_relay_on_tables_of_other_software_says_what_to_do() {
    let database = testbed::postgres().database();
    assert!(onceward(&["migrate", "--store", database.url()], "").is_success());
    database.sql("INSERT INTO onceward.migration (version, needs) VALUES (9999, 9999)");
    let said = refusal(database.url());
    assert!(said.contains("the tables have version 9999, this software knows"), "{said}");
    assert!(said.contains("start the newer software that changed them"), "{said}");
}

/// A relay brings old tables up to date itself, if its role may: it seldom may.
#[tokio::test]
async fn a_relay_on_old_tables_says_who_brings_them_up_to_date() {
    let (upstream, database) = (Upstream::any(), testbed::postgres().database());
    for (name, text) in &onceward::store::postgres::MIGRATIONS[..6] {
        database
            .try_sql(&format!("BEGIN; {text}; COMMIT"))
            .unwrap_or_else(|trouble| panic!("{name}: {trouble}"));
    }
    let role = database.name().replace("onceward_test", "relay");
    database.sql(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'relay'; GRANT USAGE ON SCHEMA onceward TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceward TO {role}"
    ));
    let (_, place) = database.url().rsplit_once('@').unwrap();
    let url = format!("postgres://{role}:relay@{place}");
    let said = refusal(&url);
    let sinks = onceward(&["messages", "sinks", "--store", &url], "");
    // What only reads changes no tables, also for their owner.
    assert!(sinks.stderr.contains("the tables have version 6, this software needs"), "{sinks}");
    assert!(sinks.stderr.contains("run `onceward migrate --store"), "{sinks}");
    // Its help is enough, word for word.
    let (_, help) =
        said.split_once("let the owner of the schema run `onceward migrate`, then: ").unwrap();
    let help = help.trim_end().replace("for relays, and operators of messages, also: ", "");
    assert!(onceward(&["migrate", "--store", database.url()], "").is_success());
    database.sql(&help.replace("this user", &role));
    let by_role = Process::start(&mut command(&[
        "relay",
        "--store",
        &url,
        "--sink",
        &format!("billing={}/events", upstream.url()),
    ]))
    .unwrap();
    by_role.stderr.wait_for("delivering messages of").unwrap();
    the_sink_is_there(&database).await;
    let id = enqueue(&database);
    becomes(&database, &id, "delivered").await;
    end(&by_role);
    database.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
