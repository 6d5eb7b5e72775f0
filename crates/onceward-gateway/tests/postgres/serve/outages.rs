//! What clients of a running gateway are told while its server is away or hindered.

use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::{
    gateway_support::{Gateway, Plan, TEST_TIMEOUT, eventually},
    serve::{Upstream, pay, plan, recovers, server},
};

/// A transaction of somebody else, with these statements in it.
struct Somebody {
    client: tokio_postgres::Client,
}

impl Somebody {
    async fn begins(url: &str, statements: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("BEGIN; {statements}")).await.unwrap();
        Self { client }
    }

    async fn ends(self) {
        self.client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// It is refused before it is run, and may be sent again.
async fn is_refused(gateway: &Gateway, upstream: &Upstream, key: &str) {
    let reply = gateway.send(&pay(key)).await;
    assert_eq!(reply.problem(), (503, "store-unavailable".into()), "{reply:?}");
    assert_eq!(reply.json()["retryable"], true, "{reply:?}");
    assert_eq!(upstream.count_of(key).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_and_started_again() {
    let (server, upstream) = (server(&[]), Upstream::any());
    let gateway = plan(&upstream, server.database().url()).start();
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    for stop in [testbed::Server::stop, testbed::Server::kill] {
        stop(&server);
        is_refused(&gateway, &upstream, "meanwhile").await;
        gateway.wait_for("a request was refused");
        let duplicate = gateway.send(&pay("before")).await;
        assert_eq!(duplicate.problem(), (503, "store-unavailable".into()), "{duplicate:?}");
        server.restart();
        recovers(&gateway, "before").await;
    }
    recovers(&gateway, "meanwhile").await;
    assert_eq!((upstream.count_of("before").await, upstream.count_of("meanwhile").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_no_connection_left() {
    let (server, upstream) = (server(&[("max_connections", "12")]), Upstream::any());
    let database = server.database();
    let gateway = plan(&upstream, database.url()).start();
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    // Its connections break, and others have taken all there are before it can have new ones.
    database.sql("ALTER DATABASE postgres CONNECTION LIMIT 100");
    let mut others = Vec::new();
    let url = database.url().to_owned();
    let away = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                AND application_name = 'onceward'";
    let (last, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    loop {
        last.batch_execute(away).await.unwrap();
        match tokio_postgres::connect(&url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                others.push(client);
            }
            Err(_) => break,
        }
    }
    last.batch_execute(away).await.unwrap();
    let fresh = plan(&upstream, &url).refusal();
    assert!(fresh.contains("raise max_connections of the server"), "{fresh}");
    is_refused(&gateway, &upstream, "meanwhile").await;
    gateway.wait_for("raise max_connections of the server");
    drop((others, last));
    recovers(&gateway, "meanwhile").await;
    assert_eq!(upstream.count_of("meanwhile").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_slower_than_its_time_out_for_statements() {
    let upstream = Upstream::any();
    let database = testbed::postgres().database();
    // The tables are made before: on a busy machine that takes longer than any claim.
    assert!(crate::support::onceward(&["migrate"], database.url()).is_success());
    let patience = format!("ALTER DATABASE {} SET statement_timeout = '3s'", database.name());
    database.sql(&patience);
    let gateway = plan(&upstream, database.url()).start();
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    database.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$; \
         CREATE TRIGGER slow BEFORE INSERT ON onceward.record \
         FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    is_refused(&gateway, &upstream, "meanwhile").await;
    gateway.wait_for("raise the statement_timeout of this role");
    database.sql("DROP TRIGGER slow ON onceward.record");
    recovers(&gateway, "meanwhile").await;
}

/// As a migration of somebody's own would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_somebody_has_to_himself() {
    let upstream = Upstream::any();
    let database = testbed::postgres().database();
    let gateway = plan(&upstream, database.url()).start();
    assert_eq!(gateway.send(&pay("before")).await.status, 201);
    let statement = "LOCK TABLE onceward.record IN ACCESS EXCLUSIVE MODE";
    let somebody = Somebody::begins(database.url(), statement).await;
    is_refused(&gateway, &upstream, "meanwhile").await;
    somebody.ends().await;
    recovers(&gateway, "meanwhile").await;
}

/// All of them are answered while it is open: nobody waits for somebody else's record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_left_open_on_one_record_stalls_no_other() {
    let upstream = Upstream::any();
    let database = testbed::postgres().database();
    let gateway = plan(&upstream, database.url()).start();
    assert_eq!(gateway.send(&pay("held")).await.status, 201);
    let hold = "SELECT FROM onceward.record FOR UPDATE";
    let somebody = Somebody::begins(database.url(), hold).await;
    let mut others = Vec::new();
    for number in 0..200 {
        let call = pay(&format!("other-{number}"));
        others.push((gateway.begin(&call), call));
        if number % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for (other, call) in others {
        let mut reply = other.await.unwrap();
        // A store on a busy machine may answer too late; the client asks again while the record is held.
        let end = Instant::now() + TEST_TIMEOUT;
        while reply.status == 503 && Instant::now() < end {
            reply = gateway.send(&call).await;
        }
        assert_eq!(reply.status, 201);
    }
    let duplicate = gateway.send(&pay("held")).await;
    assert_eq!(
        (duplicate.status, duplicate.is_replay()),
        (201, true),
        "who only reads waits for nobody"
    );
    somebody.ends().await;
    assert_eq!(upstream.count_of("held").await, 1);
}

/// The claim of a key whose record somebody is about to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_meets_an_open_transaction_is_told_to_come_back() {
    let upstream = Upstream::any();
    let database = testbed::postgres().database();
    let lines = "key = \"required\"\neffect = \"repeatable\"\nrerun_within = \"1h\"\nlease = \"300ms\"\n\
                 in_flight = \"conflict\"";
    let text = crate::serve::route(lines);
    let gateway = Plan::new(&upstream.url(), &text).store(database.url()).start();
    let failed = gateway.send(&pay("held").told(serde_json::json!({ "status": 503 }))).await;
    assert_eq!(failed.status, 503);
    let somebody = Somebody::begins(database.url(), "SELECT FROM onceward.record FOR UPDATE").await;
    let busy = gateway.send(&pay("held")).await;
    assert_eq!(busy.problem(), (409, "in-progress".into()), "{busy:?}");
    assert!(busy.header("retry-after").is_some(), "{busy:?}");
    somebody.ends().await;
    let is_free = || async { gateway.send(&pay("held")).await.status == 201 };
    eventually("the key is free again", is_free).await;
}

/// Each transaction may have another connection there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_no_hindrance() {
    let upstream = Upstream::any();
    let database = testbed::postgres().database();
    let url = testbed::pgbouncer().url_of(&database);
    let gateway = plan(&upstream, &format!("{url}?prepare=off")).start();
    let calls: Vec<_> = (0..40).map(|number| pay(&format!("k{}", number % 10))).collect();
    let running: Vec<_> = calls.iter().map(|call| gateway.begin(call)).collect();
    for reply in running {
        let reply = reply.await.unwrap();
        assert!(reply.status == 201 || reply.problem().1 == "in-progress", "{reply:?}");
    }
    for call in &calls {
        assert!(gateway.send(call).await.is_replay());
    }
    assert_eq!(upstream.count().await, 10);
}
