//! The services of `examples/postgres` behind the gateway: each commits its payment and the record of it
//! together, whatever it is written in and whenever it is killed.

use std::net::SocketAddr;

use crate::{
    gateway_support::{Gateway, Reply, eventually, free_address},
    support::{EXAMPLES, Example, Service, Shop, pay},
};

/// Waits for a gate of the same number: 777 in its commit, 888 before it is written.
const GATES: &str = "
    CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(NEW.cents);
        RETURN NEW;
    END $$;
    CREATE TRIGGER before_write BEFORE INSERT ON payment
        FOR EACH ROW WHEN (NEW.cents = 888) EXECUTE FUNCTION wait_at_gate();
    CREATE CONSTRAINT TRIGGER in_commit AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.cents = 777) EXECUTE FUNCTION wait_at_gate();";

/// It is closed as long as this lives.
struct Gate(tokio_postgres::Client);

impl Gate {
    async fn close(shop: &Shop, number: i64) -> Self {
        let connected = tokio_postgres::connect(shop.database.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SELECT pg_advisory_lock({number})")).await.unwrap();
        Self(client)
    }

    /// Waits until somebody stands before it.
    async fn arrival(&self) {
        let waiting = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database \
                       WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted";
        let count = || async { self.0.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) };
        eventually("somebody waits at the gate", || async { count().await == 1 }).await;
    }

    async fn open(self) {
        self.0.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    }
}

struct Bench {
    shop: Shop,
    gateway: Gateway,
    example: Example,
    address: SocketAddr,
    service: Option<Service>,
}

impl Bench {
    /// `None`, loudly, if this machine cannot run it.
    fn start(example: Example) -> Option<Self> {
        let (shop, address) = (Shop::open(), free_address().unwrap());
        shop.database.sql(GATES);
        let service = Some(Service::start(example, address, &shop.service_url())?);
        let gateway = shop.plan(&format!("http://{address}"), "").start();
        Some(Self { shop, gateway, example, address, service })
    }

    /// Sends a payment, kills the service at the gate of that number, and opens it then.
    async fn kill_at(&mut self, key: &str, cents: i64) -> Reply {
        let gate = Gate::close(&self.shop, cents).await;
        let running = self.gateway.begin(&pay(key, cents));
        gate.arrival().await;
        self.service.take().unwrap().kill();
        gate.open().await;
        running.await.unwrap()
    }

    fn restart(&mut self) {
        self.service = Service::start(self.example, self.address, &self.shop.service_url());
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
    let first = bench.kill_at("commit", 777).await;
    assert_paid(&first, 777, false);
    bench.restart();
    let again = bench.gateway.send(&pay("commit", 777)).await;
    assert_paid(&again, 777, true);
    assert_eq!((first.json(), bench.shop.payments()), (again.json(), before + 1));
}

/// Nothing was committed, and a retry runs.
async fn dies_before_it_commits(bench: &mut Bench) {
    let before = bench.shop.payments();
    let first = bench.kill_at("before", 888).await;
    assert_eq!(first.problem(), (502, "upstream-failed".into()), "{first:?}");
    assert_eq!(first.json()["retryable"], true);
    bench.restart();
    let again = bench.gateway.send(&pay("before", 888)).await;
    assert_paid(&again, 888, false);
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
    let page = include_str!("../../../../docs/postgres-snippets.md");
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
