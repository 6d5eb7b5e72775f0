//! Producers, relays and a consumer that go on while primaries are killed and their synchronous standbys promoted.

use std::{
    collections::HashSet,
    env,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use onceward::{
    inbox::{ConsumeError, Inbox},
    message::{Message, NewMessage, Sent, StartFrom, Topic},
    outbox::{Attempt, Outbox, Relay, Sink, SinkOptions},
    retry::Backoff,
    store::{BoxFuture, postgres::PostgresStore},
};
use testbed::{Complaint, MessageHistory};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls};

use crate::pair::Pair;

const PRODUCERS: usize = 4;
const RELAYS: usize = 2;

/// A server that hangs answers nothing.
const PATIENCE: Duration = Duration::from_secs(5);

const TABLES: &str =
    "CREATE TABLE orders (producer int, number int, PRIMARY KEY (producer, number));
    CREATE TABLE ledger (place bigserial PRIMARY KEY, aggregate text NOT NULL, body text NOT NULL)";

/// What everybody shares.
struct World {
    url: String,
    is_over: AtomicBool,
    /// Bodies whose commit was acknowledged.
    told: Mutex<HashSet<String>>,
    asks_inbox: bool,
}

impl World {
    async fn connect(&self) -> Result<Client, ConsumeError> {
        let (client, driver) =
            timeout(PATIENCE, tokio_postgres::connect(&self.url, NoTls)).await??;
        tokio::spawn(driver);
        Ok(client)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// One order after the other, each until it is known to be there; every fifth is rolled back.
async fn produce(world: Arc<World>, outbox: Outbox<PostgresStore>, producer: usize) {
    let mut connection = None;
    for number in 1_i32.. {
        while let Err(_) | Ok(Err(_)) =
            timeout(PATIENCE, order(&world, &outbox, &mut connection, producer, number)).await
        {
            connection = None;
            sleep(Duration::from_millis(50)).await;
        }
        if world.is_over() {
            return;
        }
    }
}

/// `Ok`: it is there, or it was rolled back.
async fn order(
    world: &World,
    outbox: &Outbox<PostgresStore>,
    connection: &mut Option<Client>,
    producer: usize,
    number: i32,
) -> Result<(), ConsumeError> {
    if connection.is_none() {
        *connection = Some(world.connect().await?);
    }
    let client = connection.as_mut().expect("it was made just now");
    let mut shop = client.transaction().await?;
    // An earlier try may have committed without an answer.
    let insert = "INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let of = i32::try_from(producer)?;
    if shop.execute(insert, &[&of, &number]).await? == 0 {
        return Ok(());
    }
    let body = body_of(producer, number);
    let message = NewMessage::new("order.placed", body.as_str())?;
    outbox.enqueue(&mut shop, message.aggregate(&format!("producer-{producer}"))?).await?;
    if number % 5 == 0 {
        return Ok(shop.rollback().await?);
    }
    shop.commit().await?;
    world.told.lock().unwrap().insert(body);
    Ok(())
}

fn body_of(producer: usize, number: i32) -> String {
    format!("{producer}/{number}")
}

/// The consumer, in the same database.
#[derive(Clone)]
struct Ledger {
    world: Arc<World>,
    inbox: Arc<Inbox<PostgresStore>>,
    client: Arc<tokio::sync::Mutex<Option<Client>>>,
    applied: Arc<AtomicUsize>,
}

impl Ledger {
    async fn apply(&self, message: &Message) -> Result<(), ConsumeError> {
        let mut connection = self.client.lock().await;
        // Taken out: an attempt that fails, or is given up, leaves none.
        let mut client = match connection.take() {
            Some(client) if !client.is_closed() => client,
            _ => self.world.connect().await?,
        };
        let mut shop = client.transaction().await?;
        let is_first = self.inbox.first_time(&mut shop, "ledger", &message.id.to_string()).await?;
        if is_first || !self.world.asks_inbox {
            let (aggregate, body) =
                (message.aggregate.as_str(), std::str::from_utf8(&message.body)?);
            let entry = "INSERT INTO ledger (aggregate, body) VALUES ($1, $2)";
            shop.execute(entry, &[&aggregate, &body]).await?;
        }
        shop.commit().await?;
        self.applied.fetch_add(1, Ordering::SeqCst);
        *connection = Some(client);
        Ok(())
    }
}

impl Sink for Ledger {
    fn takes(&self, _: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, message: &'a Message, _: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            match timeout(PATIENCE, self.apply(message)).await {
                // The answer of some is lost.
                Ok(Ok(())) if fastrand::u32(..20) > 0 => Sent::Accepted,
                Ok(Ok(())) => Sent::Unknown { why: "a fault of the test".to_owned() },
                Ok(Err(error)) => Sent::Unknown { why: error.to_string() },
                Err(_) => Sent::Unknown { why: "the server hangs".to_owned() },
            }
        })
    }
}

async fn relay(world: &World, ledger: &Ledger) -> Relay {
    let store = PostgresStore::connect(&world.url).await.unwrap();
    let millis = Duration::from_millis;
    let rules = Relay::rules().to_builder().attempts(1_000).deadline(Duration::from_secs(60));
    let rules = rules.backoff(Backoff::Full { base: millis(10), cap: millis(200) });
    let rules = rules.attempt_timeout(PATIENCE * 2).without_breaker().without_budget();
    let options = SinkOptions::default().from(StartFrom::Oldest);
    let relay = Relay::builder(Arc::new(store)).rules(rules.build().unwrap());
    let relay = relay.retain(Duration::from_secs(90_000)).lease(Duration::from_secs(2));
    relay.sink_with("ledger", ledger.clone(), options).build().unwrap()
}

/// Gives what should not be.
async fn storm(failovers: usize, asks_inbox: bool) -> Vec<Complaint> {
    let mut pair = Pair::synchronous();
    let database = pair.primary.database();
    database.sql(TABLES);
    let url = pair.url(&database);
    let (is_over, told) = (AtomicBool::new(false), Mutex::default());
    let world = Arc::new(World { url, is_over, told, asks_inbox });
    let store = PostgresStore::connect(&world.url).await.unwrap();
    let applied = Arc::new(AtomicUsize::new(0));
    let ledger = Ledger {
        world: world.clone(),
        inbox: Arc::new(Inbox::new(store.clone())),
        client: Arc::default(),
        applied: applied.clone(),
    };
    let stop = tokio::sync::watch::Sender::new(false);
    let mut relays = JoinSet::new();
    for _ in 0..RELAYS {
        let (relay, mut stopped) = (relay(&world, &ledger).await, stop.subscribe());
        relays.spawn(async move {
            let shutdown = async { drop(stopped.wait_for(|stopped| *stopped).await) };
            relay.run(shutdown).await.unwrap();
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(produce(world.clone(), Outbox::new(store.clone()), producer));
    }
    for number in 1..=failovers {
        let before = applied.load(Ordering::SeqCst);
        until("the consumer goes on", || applied.load(Ordering::SeqCst) >= before + 100).await;
        pair = tokio::task::spawn_blocking(move || {
            pair.fail_over();
            pair
        })
        .await
        .unwrap();
        eprintln!("failover {number}: {} attempts so far", applied.load(Ordering::SeqCst));
    }
    world.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = producers.join_next().await {
        ended.unwrap();
    }
    let rows = |text: &str| pair.primary.sql(&format!("\\connect {}\n{text}", database.name()));
    let behind = "SELECT count(*) FROM orders WHERE NOT EXISTS (
        SELECT FROM ledger WHERE body = producer || '/' || number)";
    // The checker names what is lost.
    for _ in 0..600 {
        if rows(behind).lines().last() == Some("0") {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    stop.send_replace(true);
    while let Some(ended) = relays.join_next().await {
        ended.unwrap();
    }
    let committed = rows("SELECT producer, number FROM orders ORDER BY number");
    let applied = rows("SELECT aggregate, body FROM ledger ORDER BY place");
    let told = world.told.lock().unwrap().clone();
    judge(&committed, &applied, &told)
}

fn judge(committed: &str, applied: &str, told: &HashSet<String>) -> Vec<Complaint> {
    let pairs = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter_map(|line| line.split_once('|'));
        lines.map(|(one, other)| (one.to_owned(), other.to_owned())).collect()
    };
    let committed: Vec<_> = pairs(committed)
        .into_iter()
        .map(|(producer, number)| (format!("producer-{producer}"), format!("{producer}/{number}")))
        .collect();
    let there: HashSet<&String> = committed.iter().map(|(_, body)| body).collect();
    assert!(told.iter().all(|body| there.contains(body)), "what was acknowledged is there");
    assert!(told.len() > 200, "{} orders", told.len());
    let aborted = (0..PRODUCERS)
        .flat_map(|producer| (1..20_000).map(move |number| body_of(producer, number * 5)));
    let aborted = aborted.collect();
    MessageHistory { committed, aborted, applied: pairs(applied) }.complaints()
}

async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(120), "it did not become true: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_applied_once_and_in_order_though_primaries_are_killed() {
    let failovers = if env::var_os("ONCEWARD_LONG").is_some() { 50 } else { 2 };
    assert_eq!(storm(failovers, true).await, []);
}

/// The same checker, and a consumer that applies whatever comes.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_inbox_a_failover_applies_messages_twice() {
    let complaints = storm(1, false).await;
    let is_twice = |complaint: &Complaint| matches!(complaint, Complaint::Twice(_));
    assert!(complaints.iter().any(is_twice), "{complaints:?}");
}
