//! A relay that is stopped while it holds pages, past its lease: another one delivers them and the steps between are
//! cleaned up. Then it goes on where it was.

use std::time::Duration;

use onceward_crash::messages::{Bug, Place, Role};
use testbed::{Complaint, Signal};

use super::bench::{Bench, Engine, Extra, block_on, until};

/// So many that a relay holds several pages when it is stopped.
const ORDERS: i64 = 60;

/// What it changes afterwards: nothing but who owns which lane.
pub(crate) fn changes_nothing(engine: Engine) {
    let (bench, asked) = wake_a_zombie(engine, None);
    assert_eq!(bench.complaints(), []);
    let applied = bench.history().applied.len();
    assert!(asked > applied, "it repeated something: {asked} attempts for {applied} messages");
}

/// The same, with a consumer that applies whatever comes: then the checker sees what was repeated.
pub(crate) fn is_seen_without_an_inbox(engine: Engine) {
    let (bench, _) = wake_a_zombie(engine, Some(Bug::NoInbox));
    let complaints = bench.complaints();
    let is_twice = |complaint: &Complaint| matches!(complaint, Complaint::Twice(_));
    assert!(complaints.iter().any(is_twice), "{complaints:?}");
}

/// Gives also how many messages the consumer was sent, repeats counted.
fn wake_a_zombie(engine: Engine, bug: Option<Bug>) -> (Bench, usize) {
    let mut bench = Bench::new(engine);
    bench.orders = (1, ORDERS, 20);
    let produced = bench.start(Role::Produce, &Extra::default()).wait_for_end().unwrap();
    assert!(produced.success());
    // Slow, so that attempts are under way when the relay is stopped.
    let slow = ["--slow", "10"].map(str::to_owned).to_vec();
    let consumer = bench.start(Role::Consume, &Extra { bug, arguments: slow, ..Extra::default() });
    let applied = || block_on(bench.ledger.ledger()).unwrap().len();

    let zombie = bench.start(Role::Relay, &Extra::default());
    until("the relay has begun", || applied() >= 3);
    zombie.signal(Signal::STOP);
    let drain = Extra { arguments: vec!["--drain".to_owned()], ..Extra::default() };
    // It waits for the leases, delivers everything, and ends.
    let other = bench.start(Role::Relay, &drain);
    assert!(other.wait_for_end().unwrap().success(), "{}", other.state());
    forget_steps(&bench);
    let (places, rows) = (places(&bench), applied());
    let asked = || consumer.stdout.text().lines().filter(|line| *line == "asked").count();
    let before = asked();

    zombie.signal(Signal::CONT);
    until("it has taken its lanes again", || has_owner(&bench));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(self::places(&bench), places, "where lanes are, and what is parked");
    if bug.is_none() {
        assert_eq!(applied(), rows, "what it repeats is known");
    }
    zombie.signal(Signal::TERM);
    assert!(zombie.wait_for_end().unwrap().success(), "{}", zombie.state());
    assert_eq!(self::places(&bench), places);
    eprintln!("{engine:?}: {before} attempts before it woke up, {} after", asked());
    let asked = asked();
    (bench, asked)
}

/// What is stored, but for who owns it: messages, places of lanes, and what is parked.
fn places(bench: &Bench) -> String {
    rows(
        bench,
        "SELECT 'message', count(*) || '' FROM onceward_message
         UNION ALL SELECT 'lane', sink || ' ' || lane || ' ' || cursor FROM onceward_lane
         UNION ALL SELECT 'parked', sink || ' ' || seq || ' ' || state || ' ' || attempts FROM onceward_parked
         ORDER BY 1, 2",
        "SELECT 'message', count(*)::text FROM onceward.message
         UNION ALL (SELECT DISTINCT ON (sink, lane) 'lane', concat_ws(' ', sink, lane, base, target, done)
             FROM onceward.step ORDER BY sink, lane, step DESC)
         UNION ALL SELECT 'parked', concat_ws(' ', sink, seq, state, attempts) FROM onceward.parked
         ORDER BY 1, 2",
    )
}

fn has_owner(bench: &Bench) -> bool {
    let owned = rows(
        bench,
        "SELECT 'owned', count(*) || '' FROM onceward_lane WHERE relay IS NOT NULL",
        "SELECT 'owned', count(*)::text FROM onceward.lane WHERE relay IS NOT NULL",
    );
    owned != "owned|0"
}

/// Lines of two columns each.
fn rows(bench: &Bench, on_sqlite: &str, on_postgres: &str) -> String {
    match (&bench.shop, &bench.database) {
        (Place::Sqlite(path), _) => {
            let connection = rusqlite::Connection::open(path).unwrap();
            connection.busy_timeout(Duration::from_secs(30)).unwrap();
            let mut statement = connection.prepare(on_sqlite).unwrap();
            let line = |row: &rusqlite::Row<'_>| {
                Ok(format!("{}|{}", row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            };
            let lines = statement.query_map([], line).unwrap();
            lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
        }
        (Place::Postgres(_), Some(database)) => database.sql(on_postgres),
        (Place::Postgres(_), None) => unreachable!("a bench on PostgreSQL has a database"),
    }
}

/// Steps become so old that a sweep deletes all but the newest of each lane. SQLite keeps no others.
fn forget_steps(bench: &Bench) {
    let Some(database) = &bench.database else { return };
    database.sql("UPDATE onceward.step SET at = at - interval '3 hours'");
    let swept = block_on(async {
        let queue = bench.shop.queue().await.unwrap();
        queue.sweep(Duration::from_secs(90_000), 1_000).await.unwrap()
    });
    assert!(swept.steps > 0, "{swept:?}");
}
