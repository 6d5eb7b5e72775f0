//! The services of `examples/postgres` behind the gateway: each commits its payment and the record of it
//! together, whatever it is written in and whenever it is killed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod gateway_support;
mod postgres_support;

use std::time::Duration;

use gateway_support::{Gateway, Reply, eventually, free_port};
use postgres_support::{EXAMPLES, Example, Service, Shop, pay};

/// Sleeps in the commit of a payment of 777 cents, and before one of 888 cents is written.
const SLOW: &str = "
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(CASE WHEN NEW.cents IN (777, 888) THEN 1.5 ELSE 0 END);
        RETURN NEW;
    END $$;
    CREATE TRIGGER slow_before BEFORE INSERT ON payment
        FOR EACH ROW WHEN (NEW.cents = 888) EXECUTE FUNCTION slow();
    CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.cents = 777) EXECUTE FUNCTION slow();";

struct Bench {
    shop: Shop,
    gateway: Gateway,
    example: Example,
    port: u16,
    service: Option<Service>,
}

impl Bench {
    /// `None`, loudly, if this machine cannot run it.
    fn start(example: Example) -> Option<Self> {
        let (shop, port) = (Shop::open(), free_port());
        shop.database.sql(SLOW);
        let service = Some(Service::start(example, port, &shop.service_url())?);
        let gateway = shop.plan(&format!("http://127.0.0.1:{port}"), "").start();
        Some(Self { shop, gateway, example, port, service })
    }

    /// Kills the service while a statement of it sleeps.
    async fn kill_asleep(&mut self) {
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND wait_event = 'PgSleep'";
        let database = &self.shop.database;
        eventually("a statement sleeps", || async { database.sql(asleep) == "1" }).await;
        self.service.take().unwrap().kill();
    }

    fn restart(&mut self) {
        self.service = Service::start(self.example, self.port, &self.shop.service_url());
    }
}

fn assert_paid(reply: &Reply, cents: i64, is_replay: bool) {
    assert_eq!((reply.status, reply.is_replay()), (201, is_replay), "{reply:?}");
    assert_eq!(reply.json()["cents"], cents, "{reply:?}");
    assert_eq!(reply.header("content-type").unwrap().split(';').next(), Some("application/json"));
    for name in ["onceward-operation", "idempotency-expires", "idempotency-completed"] {
        assert!(reply.header(name).is_some(), "{name}: {reply:?}");
    }
}

/// One payment, one answer, and a refusal that stays.
async fn pays_once(bench: &Bench) {
    let Bench { gateway, shop, .. } = bench;
    let first = gateway.send(&pay("once", 5)).await;
    assert_paid(&first, 5, false);
    let again = gateway.send(&pay("once", 5)).await;
    assert_paid(&again, 5, true);
    assert_eq!((first.json(), shop.payments()), (again.json(), 1));
    let other = gateway.send(&pay("once", 6)).await;
    assert_eq!(other.problem(), (422, "key-reused".into()), "{other:?}");
    let refused = gateway.send(&pay("never", 0)).await;
    assert_eq!((refused.status, refused.is_replay()), (422, false), "{refused:?}");
    let again = gateway.send(&pay("never", 0)).await;
    assert_eq!((again.status, again.is_replay()), (422, true), "{again:?}");
    assert_eq!(again.body, refused.body);
    assert_eq!(shop.payments(), 1);
}

/// It committed and could not say so: the gateway says it.
async fn dies_in_its_commit(bench: &mut Bench) {
    let before = bench.shop.payments();
    let running = bench.gateway.begin(&pay("commit", 777));
    bench.kill_asleep().await;
    let first = running.await.unwrap();
    assert_paid(&first, 777, false);
    bench.restart();
    let again = bench.gateway.send(&pay("commit", 777)).await;
    assert_paid(&again, 777, true);
    assert_eq!((first.json(), bench.shop.payments()), (again.json(), before + 1));
}

/// Nothing was committed, and a retry runs.
async fn dies_before_it_commits(bench: &mut Bench) {
    let before = bench.shop.payments();
    let running = bench.gateway.begin(&pay("before", 888));
    bench.kill_asleep().await;
    let first = running.await.unwrap();
    assert_eq!(first.problem(), (502, "upstream-failed".into()), "{first:?}");
    assert_eq!(first.json()["retryable"], true);
    bench.restart();
    let again = bench.gateway.send(&pay("before", 888)).await;
    assert_paid(&again, 888, false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.shop.payments(), before + 1, "the transaction of the killed one is gone");
    assert_paid(&bench.gateway.send(&pay("before", 888)).await, 888, true);
}

async fn is_safe(example: Example) {
    let Some(mut bench) = Bench::start(example) else { return };
    pays_once(&bench).await;
    dies_in_its_commit(&mut bench).await;
    dies_before_it_commits(&mut bench).await;
    let census = "SELECT count(*) FROM onceward.open";
    assert_eq!(bench.shop.database.sql(census), "0", "nothing is left open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psycopg() {
    is_safe(EXAMPLES[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi() {
    is_safe(EXAMPLES[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn django() {
    is_safe(EXAMPLES[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_pg() {
    is_safe(EXAMPLES[3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn express() {
    is_safe(EXAMPLES[4]).await;
}

/// What the documentation shows is what was tested above.
#[test]
fn the_snippets_are_those_of_the_examples() {
    let page = include_str!("../../../docs/postgres-snippets.md");
    for example in EXAMPLES {
        let text = example.text();
        let (_, rest) = text.split_once("snippet: begin\n").unwrap();
        let (snippet, _) = rest.split_once("snippet: end").unwrap();
        let snippet = snippet.rsplit_once('\n').unwrap().0.trim_end();
        assert!(snippet.lines().count() <= 22, "{example:?} is too long for a snippet");
        let (_, section) = page.split_once(&format!("## {}\n", example.title)).unwrap();
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains(&format!("\n{snippet}\n```")), "{example:?} differs:\n{snippet}");
    }
}
