//! Our own outbox as a subject: filled, drained by a relay with a sink that does nothing, listened to.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{
    outbox::{Attempt, Message, Relay, Sent, Sink, SinkOptions, StartFrom, Topic, Waker},
    store::{BoxFuture, postgres::PostgresStore},
};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_postgres::{Client, NoTls};

use crate::{
    Failure,
    messages::monotonic_nanos,
    postgres::site::{BenchDatabase, Lanes, Site},
};

/// The sink of all relays.
const SINK: &str = "bench";

/// As many aggregates have messages; of each aggregate one message is under way at a time.
pub(crate) const AGGREGATES: u64 = 1_000;

/// As many messages one transaction of a backlog has.
const TRANSACTION: u64 = 100;

/// How long a backlog may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(900);

/// One database with an outbox.
pub(crate) struct Own {
    pub(crate) place: BenchDatabase,
    pub(crate) store: PostgresStore,
}

/// A backlog that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    /// From the start of the relay to the last message.
    pub(crate) took: Duration,
    /// From the first message to the last one.
    pub(crate) flowed: Duration,
}

impl Own {
    pub(crate) fn new(site: &Site) -> Result<Self, Failure> {
        let place = site.database()?;
        let store = place.store(site, Lanes::USUAL)?;
        Ok(Self { place, store })
    }

    /// Commits so many messages of many aggregates.
    pub(crate) fn fill(&self, site: &Site, number: u64) -> Result<(), Failure> {
        self.fill_of(site, number, &format!("'order-' || n % {AGGREGATES}"))
    }

    /// Commits so many messages that are all in one lane.
    pub(crate) fn fill_one_lane(&self, site: &Site, number: u64) -> Result<(), Failure> {
        self.fill_of(site, number, "(SELECT name FROM bench_lane WHERE number = n % 1000)")
    }

    /// Names of a thousand aggregates of one lane.
    pub(crate) fn name_one_lane(&self) -> Result<(), Failure> {
        self.place.sql(
            "CREATE TABLE bench_lane AS
             SELECT row_number() OVER () - 1 AS number, name FROM (
                 SELECT 'order-' || n AS name FROM generate_series(1, 70000) n
                 WHERE get_byte(sha256(convert_to('order-' || n, 'UTF8')), 0) & 63 = 7 LIMIT 1000) names;
             CREATE UNIQUE INDEX ON bench_lane (number)",
        )?;
        Ok(())
    }

    fn fill_of(&self, site: &Site, number: u64, aggregate: &str) -> Result<(), Failure> {
        let text = format!(
            r#"DO $do$ BEGIN
                FOR begun IN 0 .. {number} - 1 BY {TRANSACTION} LOOP
                    PERFORM onceward.enqueue('bench', {aggregate},
                        convert_to(format('{{"n":%s,"pad":"%s"}}', n, repeat('x', 80)), 'UTF8'))
                        FROM generate_series(begun, least(begun + {TRANSACTION}, {number}) - 1) n;
                    COMMIT;
                END LOOP;
            END $do$"#
        );
        site.runtime.block_on(async {
            let client = connect(self.place.url()).await?;
            Ok(client.batch_execute(&text).await?)
        })
    }

    /// Has a relay deliver so many messages to a sink that does nothing.
    pub(crate) fn drain(&self, site: &Site, number: u64) -> Result<Drained, Failure> {
        let handled = Arc::new(Handled { wanted: number, ..Handled::default() });
        let relay = self.relay(NullSink(handled.clone()), StartFrom::Oldest)?;
        let begun = Instant::now();
        let running = relay.run(handled.finished.notified());
        let ended = site.runtime.block_on(async { tokio::time::timeout(PATIENCE, running).await });
        ended.map_err(|_| "the relay did not deliver the backlog")??;
        let times = handled.times.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = *times else { return Err("nothing was delivered".into()) };
        let count = handled.count.load(Ordering::Relaxed);
        if count != number {
            return Err(format!("{count} messages were delivered, and {number} were there").into());
        }
        Ok(Drained { took: last - begun, flowed: last - first })
    }

    /// Makes the place of the sink behind everything that is there.
    pub(crate) fn pass_all(&self, site: &Site) -> Result<(), Failure> {
        let name = onceward::outbox::SinkName::new(SINK)?;
        let open = onceward::message::Queue::open_sink(&self.store, &name, StartFrom::Now);
        site.runtime.block_on(open)?;
        Ok(())
    }

    /// Starts a relay that notes when messages arrive.
    pub(crate) fn listen(&self, site: &Site) -> Result<Listening, Failure> {
        let heard = Heard::default();
        let relay = self.relay(NotingSink(heard.clone()), StartFrom::Now)?;
        let waker = relay.waker();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = site.runtime.spawn(async move {
            relay.run(async { drop(stopped.await) }).await.map_err(|error| error.to_string())
        });
        Ok(Listening { heard, waker, stop, running })
    }

    fn relay(&self, sink: impl Sink, from: StartFrom) -> Result<Relay, Failure> {
        let options = SinkOptions::default().from(from);
        let builder = Relay::builder(Arc::new(self.store.clone()));
        Ok(builder.sink_with(SINK, sink, options).build()?)
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a sink has got.
#[derive(Default)]
struct Handled {
    wanted: u64,
    count: AtomicU64,
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    finished: Notify,
}

/// Takes everything and does nothing with it.
struct NullSink(Arc<Handled>);

impl Sink for NullSink {
    fn takes(&self, _topic: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, _message: &'a Message, _attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async {
            let handled = &self.0;
            let before = handled.count.fetch_add(1, Ordering::Relaxed);
            if before == 0 || before + 1 == handled.wanted {
                let now = Some(Instant::now());
                let mut times = handled.times.lock().unwrap_or_else(PoisonError::into_inner);
                *times = (times.0.or(now), now);
            }
            if before + 1 == handled.wanted {
                handled.finished.notify_one();
            }
            Sent::Accepted
        })
    }
}

/// Which message came when.
type Heard = Arc<Mutex<Vec<(u64, u64)>>>;

/// Notes when messages come; their bodies are numbers.
struct NotingSink(Heard);

impl Sink for NotingSink {
    fn takes(&self, _topic: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, message: &'a Message, _attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let now = monotonic_nanos();
            let number = std::str::from_utf8(&message.body).ok().and_then(|text| text.parse().ok());
            let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            heard.extend(number.map(|number| (number, now)));
            Sent::Accepted
        })
    }
}

/// A relay that notes when messages arrive.
pub(crate) struct Listening {
    heard: Heard,
    pub(crate) waker: Waker,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), String>>,
}

impl Listening {
    /// Waits until so many messages came, or half a minute.
    pub(crate) fn wait_for(&self, number: usize) {
        let begun = Instant::now();
        let count = || self.heard.lock().unwrap_or_else(PoisonError::into_inner).len();
        while count() < number && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it: which message came when.
    pub(crate) fn end(self, site: &Site) -> Result<Vec<(u64, u64)>, Failure> {
        let _ = self.stop.send(());
        site.runtime.block_on(self.running)??;
        Ok(std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
