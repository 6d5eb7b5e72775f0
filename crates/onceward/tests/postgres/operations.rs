//! The view for people.

use std::sync::Arc;

use onceward::{
    conformance::block_on,
    protocol::{Found, Unreadable},
    seal::Keyring,
    store::{Filter, Inspect as _, postgres::PostgresStore},
};
use testbed::Database;

use crate::{
    operations_support::{COLUMNS, Lines, assert_every_word, assert_same, line, listed, store_all},
    support::connect,
};

fn column(name: &str) -> String {
    match name {
        "started_at" | "updated_at" | "expires_at" | "lease_until" => {
            format!("(extract(epoch FROM {name}) * 1000000)::bigint::text")
        }
        name => format!("{name}::text"),
    }
}

/// Everything that it shows.
async fn view(database: &Database) -> Lines {
    let question = format!("SELECT {} FROM onceward.operations", COLUMNS.map(column).join(", "));
    let rows = connect(database.url()).await.query(&question, &[]).await.unwrap();
    rows.iter().map(|row| line((0..COLUMNS.len()).map(|at| row.get(at)))).collect()
}

#[test]
fn the_view_says_of_every_record_what_a_list_says() {
    block_on(async {
        let database = testbed::postgres().database();
        let store = PostgresStore::connect(database.url()).await.unwrap();
        let count = store_all(&store).await;
        let listed = listed(&store).await;
        assert_eq!(listed.len(), count);
        assert_every_word(&listed);
        assert_same(&view(&database).await, &listed);
    });
}

#[test]
fn of_a_sealed_answer_the_view_shows_the_code_alone() {
    block_on(async {
        let database = testbed::postgres().database();
        let keys = Keyring::parse("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=").unwrap();
        let builder = PostgresStore::builder(database.url()).unwrap().seal(Arc::new(keys));
        let store = builder.open().await.unwrap();
        store_all(&store).await;
        let mut listed = listed(&store).await;
        let references = listed.values().filter(|line| line["reference_id"].is_some()).count();
        assert_eq!(references, 4, "this test would notice");
        for line in listed.values_mut() {
            line.extend([("reference_type", None), ("reference_id", None)]);
        }
        assert_same(&view(&database).await, &listed);
    });
}

/// What cannot be read is not absent, and what it was is not guessed.
#[test]
fn a_damaged_record_is_unknown_and_shows_nothing_of_its_content() {
    block_on(async {
        let database = testbed::postgres().database();
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store_all(&store).await;
        for damage in [
            // One bit of each record, somewhere; then all of it but the start; then all.
            "set_byte(body, length(body) / 2, get_byte(body, length(body) / 2) # 1)",
            "substr(body, 1, 40)",
            "substr(body, 1, 3)",
            "''",
        ] {
            database.sql(&format!("UPDATE onceward.record SET body = {damage}"));
            let shown = view(&database).await;
            assert!(!shown.is_empty());
            for line in shown.values() {
                let nothing = ["key_digest", "request_hash", "response_code", "attempts"];
                assert!(nothing.iter().all(|name| line[name].is_none()), "{damage}: {line:?}");
                assert_eq!(line["status"].as_deref(), Some("unknown"), "{damage}: {line:?}");
                assert!(line["scope"].is_some(), "{damage}: {line:?}");
            }
        }
        let listed = store.list(&Filter::default()).await.unwrap().listed;
        let is_damaged =
            |found: &Found| matches!(found, Found::Unreadable { why: Unreadable::Damaged, .. });
        assert!(listed.iter().all(|listed| is_damaged(&listed.found)));
    });
}

/// A role that may write can write nonsense with a right checksum.
#[test]
fn whatever_a_record_holds_the_view_can_be_read() {
    block_on(async {
        let database = testbed::postgres().database();
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store_all(&store).await;
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let length = random.usize(..60);
            let nonsense: String = (0..length).map(|_| format!("{:02x}", random.u8(..))).collect();
            database.sql(&format!(
                "UPDATE onceward.record
                 SET body = '\\x01bf{nonsense}' || substr(sha256(digest || '\\x01bf{nonsense}'), 1, 8)"
            ));
            assert!(!view(&database).await.is_empty());
        }
    });
}

/// With the rights of the guide and none more. The service has none.
#[test]
fn a_role_reads_the_view_and_no_answer() {
    block_on(async {
        let database = testbed::postgres().database();
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store_all(&store).await;
        let role = |name: &str| format!("{name}_{}", database.name());
        let (support, service) = (role("support"), role("service"));
        database.sql(&format!(
            "CREATE ROLE {support}; CREATE ROLE {service}; GRANT onceward_app TO {service}"
        ));
        let guide = include_str!("../../../../docs/postgres.md");
        let (_, section) = guide.split_once("## Reading it with SQL").unwrap();
        let mut blocks = section.split("```sql\n").skip(1).map(|block| block.split("```").next());
        let grants = blocks.next().unwrap().unwrap();
        database.sql(&grants.replace("TO support", &format!("TO {support}")));
        let ask = |role: &str, question: &str| {
            database.try_sql(&format!("SET ROLE {role}; {question}")).map_err(|it| it.to_string())
        };
        let all = "SELECT count(*), count(attempts), count(reference_id) FROM onceward.operations";
        assert!(ask(&support, all).is_ok());
        for question in blocks.map(Option::unwrap) {
            assert!(ask(&support, question).is_ok(), "{question}");
        }
        for table in ["record", "trail", "spool", "open", "inbox"] {
            let question = format!("SELECT count(*) FROM onceward.{table}");
            assert!(ask(&support, &question).unwrap_err().contains("permission denied"));
        }
        let change = "DELETE FROM onceward.operations";
        assert!(ask(&support, change).is_err(), "nothing is changed through it");
        assert!(ask(&service, all).unwrap_err().contains("permission denied"));
        database.sql(&format!(
            "DROP OWNED BY {support}, {service}; DROP ROLE {support}; DROP ROLE {service}"
        ));
    });
}

#[test]
fn what_is_open_is_found_by_its_table_and_nothing_else_is_read() {
    block_on(async {
        let database = testbed::postgres().database();
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store_all(&store).await;
        // On a small table any plan is good.
        let plan = database.sql(
            "INSERT INTO onceward.record
             SELECT sha256(int4send(n)), gen_random_uuid(), gen_random_uuid(), 3, now(), now(), NULL, now(),
                 '1 day', 'global', 'pay', '' FROM generate_series(1, 20000) AS n;
             ANALYZE onceward.record; ANALYZE onceward.open;
             EXPLAIN SELECT id, attempts FROM onceward.operations WHERE is_open AND status = 'unknown'",
        );
        assert!(plan.contains("Index Cond: (digest = open.digest)"), "{plan}");
        assert!(!plan.contains("Seq Scan on record"), "{plan}");
    });
}
