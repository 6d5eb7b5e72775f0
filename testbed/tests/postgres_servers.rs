//! Real servers: started, killed, paused, followed, promoted and joined again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use testbed::{Installation, Patroni, PgBouncer, Server, multi_host_url};

fn start(settings: &[(&str, &str)]) -> Server {
    Server::start(&Installation::preferred().unwrap(), settings).unwrap()
}

#[test]
fn every_test_has_a_database_of_its_own() {
    let databases = [testbed::postgres().database(), testbed::postgres().database()];
    for database in &databases {
        database.sql("CREATE TABLE charge (amount bigint); INSERT INTO charge VALUES (7)");
        assert_eq!(database.sql("SELECT amount, 'é' FROM charge; SELECT 2"), "7|é\n2");
    }
    let trouble = databases[0].try_sql("SELECT 1 / 0").unwrap_err();
    assert!(trouble.to_string().contains("division by zero"), "{trouble}");
    let [first, second] = databases;
    let count = format!("SELECT count(*) FROM pg_database WHERE datname = '{}'", first.name());
    assert_eq!(second.sql(&count), "1");
    drop(first);
    assert_eq!(second.sql(&count), "0");
}

#[test]
fn what_was_written_is_there_after_kill_and_restart() {
    let server = start(&[("max_connections", "23")]);
    assert_eq!(server.sql("SHOW max_connections; SHOW fsync"), "23\non");
    server.sql("CREATE TABLE charge (amount bigint); INSERT INTO charge VALUES (7)");
    server.kill();
    assert!(server.try_sql("SELECT 1").is_err());
    server.restart();
    assert_eq!(server.sql("SELECT amount FROM charge"), "7");
    server.stop();
    server.restart();
    assert_eq!(server.sql("SELECT amount FROM charge"), "7");
}

#[test]
fn a_login_is_asked_for_its_password() {
    let server = start(&[]);
    let url = server.login("shop", "right", "postgres");
    server.login("other", "right", "postgres");
    let psql = |url: &str| {
        let program = server.installation().directory().join("psql");
        let output = std::process::Command::new(program).args(["-XAtc", "SELECT 1", url]).output();
        output.unwrap().status.success()
    };
    assert!(psql(&url));
    assert!(!psql(&url.replace("right", "wrong")));
}

#[test]
fn pgbouncer_reaches_every_database() {
    let server = start(&[]);
    let database = server.database();
    let bouncer = PgBouncer::start(&server).unwrap();
    let shared = testbed::SharedServer::existing(bouncer.url_of(&database));
    assert_eq!(shared.version().unwrap(), server.installation().version());
}

#[test]
fn a_synchronous_standby_takes_over_and_the_old_primary_follows() {
    let first = start(&[]);
    let second = first.add_standby("second").unwrap();
    first.make_synchronous(&["second"]);
    first.sql("CREATE TABLE charge (amount bigint); INSERT INTO charge VALUES (1)");
    // Applied and not only received: the standby shows it at once.
    assert_eq!(second.sql("SELECT count(*) FROM charge"), "1");

    // A commit waits for a standby that is paused.
    second.pause();
    let waiting = std::thread::scope(|scope| {
        let insert = scope.spawn(|| first.sql("INSERT INTO charge VALUES (2)"));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let started = Instant::now();
        while first.sql(waits) != "1" && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let waiting = !insert.is_finished();
        second.resume();
        insert.join().unwrap();
        waiting
    });
    assert!(waiting);

    // Twice, so that each of them has been both.
    let url = multi_host_url(&[&first, &second], "postgres");
    let anywhere = testbed::SharedServer::existing(url);
    let mut pair = (&first, &second);
    for round in 3..5 {
        let (primary, standby) = pair;
        primary.kill();
        standby.promote();
        standby.expect_standbys(&[]);
        assert!(anywhere.version().is_ok());
        standby.sql(&format!("INSERT INTO charge VALUES ({round})"));
        primary.rejoin(standby);
        standby.make_synchronous(&[primary.name()]);
        assert_eq!(
            primary.sql("SELECT count(*), pg_is_in_recovery() FROM charge"),
            format!("{round}|t")
        );
        pair = (standby, primary);
    }
}

#[test]
#[ignore = "long: Patroni takes its time to see that a leader is gone"]
fn patroni_promotes_a_standby_and_takes_the_old_leader_back() {
    let cluster = Patroni::start(&Installation::preferred().unwrap()).unwrap();
    cluster.try_sql("CREATE TABLE charge (amount bigint); INSERT INTO charge VALUES (1)").unwrap();
    let leader = cluster.leader();
    cluster.kill(leader);
    assert_ne!(cluster.leader(), leader);
    cluster.restart(leader);
    cluster.wait_until_synchronous();
    assert_eq!(cluster.try_sql("SELECT count(*) FROM charge").unwrap(), "1");
}
