//! Thousands of messages, and everything that may go wrong between their commit and their effect: producers roll
//! back, sinks fail, answers are lost, the outbox fails before and after its calls, relays are killed. Then a checker
//! compares what was committed with what was applied; and mistakes are seeded to see that it finds them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use onceward::{
    inbox::Inbox,
    message::{InspectQueue, Message, MessageId, NewMessage, SinkName},
    outbox::{Attempt, Relay, Sent, Sink, Topic},
    store::{BoxFuture, sqlite::SqliteStore},
};
use rusqlite::Connection;
use tempfile::TempDir;
use testbed::{Complaint, MessageHistory};

use crate::{
    between::{Between, Fault},
    file::{File, PATIENCE},
    support::{oldest, quick, start, until},
};

/// Each has dozens of messages.
const AGGREGATES: u64 = 150;
const FEW_AGGREGATES: u64 = 12;

/// What is wrong with a program, for once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The sink says that it has a message, and has not.
    SinkDropsOne,
    /// The consumer does not ask its inbox.
    InboxNotAsked,
    /// The consumer applies a message after the next one of its aggregate.
    AppliesLate,
    /// The producer sends by itself what it then rolls back.
    SendsBeforeCommit,
}

/// The consumer's database: a ledger, and the inbox beside it.
struct Consumer {
    path: PathBuf,
    store: SqliteStore,
    connection: Mutex<Connection>,
    mistake: Option<Mistake>,
    is_made: AtomicBool,
    dropped: OnceLock<MessageId>,
    kept_back: Mutex<Option<Message>>,
    random: Mutex<fastrand::Rng>,
    _directory: TempDir,
}

impl Consumer {
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("consumer.db");
        let store = SqliteStore::builder(&path).busy_timeout(PATIENCE).open().unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute_batch("CREATE TABLE ledger (aggregate TEXT, body TEXT)").unwrap();
        Self {
            path,
            store,
            connection: Mutex::new(connection),
            mistake,
            is_made: AtomicBool::new(false),
            dropped: OnceLock::new(),
            kept_back: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            _directory: directory,
        }
    }

    /// Once: the mistake is made with one message only.
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake) && !self.is_made.swap(true, Ordering::SeqCst)
    }

    fn apply(&self, message: &Message) {
        // On every attempt, or the next one would mend it.
        if self.mistake == Some(Mistake::SinkDropsOne)
            && *self.dropped.get_or_init(|| message.id) == message.id
        {
            return;
        }
        let mut kept_back = self.kept_back.lock().unwrap();
        // A message that others of its aggregate follow, so that it can come after one of them.
        if message.body.ends_with(b"/1") && self.makes(Mistake::AppliesLate) {
            *kept_back = Some(message.clone());
            return;
        }
        match kept_back.take() {
            Some(kept) if kept.id == message.id => *kept_back = Some(kept),
            Some(kept) if kept.aggregate == message.aggregate => {
                self.apply_now(message);
                self.apply_now(&kept);
            }
            other => {
                *kept_back = other;
                self.apply_now(message);
            }
        }
    }

    fn apply_now(&self, message: &Message) {
        let mut connection = self.connection.lock().unwrap();
        let transaction = self.store.begin_blocking(&mut connection).unwrap();
        let inbox = Inbox::new(self.store.clone());
        let id = message.id.to_string();
        let is_new = self.mistake == Some(Mistake::InboxNotAsked)
            || inbox.first_time_blocking(&transaction, "consumer", &id).unwrap();
        if is_new {
            let body = String::from_utf8(message.body.clone()).unwrap();
            let of = (message.aggregate.as_str(), body);
            transaction.execute("INSERT INTO ledger VALUES (?1, ?2)", of).unwrap();
        }
        transaction.commit().unwrap();
    }

    fn ledger(&self) -> Vec<(String, String)> {
        let connection = Connection::open(&self.path).unwrap();
        let mut query =
            connection.prepare("SELECT aggregate, body FROM ledger ORDER BY rowid").unwrap();
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

/// The way to the consumer: it fails before, it fails after, and it takes its time.
#[derive(Clone)]
struct Network(Arc<Consumer>);

impl Sink for Network {
    fn takes(&self, _: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, message: &'a Message, _: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let (chance, pause) = {
                let mut random = self.0.random.lock().unwrap();
                (random.u8(..), random.u64(0..2_000))
            };
            let why = || "a fault of the test".to_owned();
            match chance {
                0..4 => return Sent::SinkDown { after: None, why: why() },
                4..14 => return Sent::Failed { why: why() },
                14..20 => return Sent::Retry { after: Some(Duration::from_millis(3)), why: why() },
                20..26 => return Sent::Unknown { why: why() },
                _ => {}
            }
            tokio::time::sleep(Duration::from_micros(pause)).await;
            let (consumer, message) = (self.0.clone(), message.clone());
            // Its effect happens also if the relay that asked for it is gone by then.
            let applied = tokio::task::spawn_blocking(move || consumer.apply(&message));
            applied.await.unwrap();
            match chance {
                26..50 => Sent::Unknown { why: why() },
                _ => Sent::Accepted,
            }
        })
    }
}

/// Commits messages in small transactions, each number of an aggregate once, and rolls some back.
fn produce(file: &File, seed: u64, messages: usize, consumer: &Consumer) -> MessageHistory {
    let aggregates = if consumer.mistake.is_some() { FEW_AGGREGATES } else { AGGREGATES };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut history = MessageHistory::default();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut connection = file.connect();
    while history.committed.len() < messages {
        let transaction = file.store.begin_blocking(&mut connection).unwrap();
        let (mut sent, mut next) = (Vec::new(), numbers.clone());
        for _ in 0..random.usize(1..40) {
            let aggregate = format!("order-{}", random.u64(..aggregates));
            let number = next.entry(aggregate.clone()).or_default();
            *number += 1;
            sent.push((aggregate.clone(), format!("{aggregate}/{number}")));
        }
        let aborts = random.u8(..) < 60;
        for (aggregate, body) in &mut sent {
            if aborts {
                body.push_str(" aborted");
            }
            let message = NewMessage::new("order.placed", body.as_bytes()).unwrap();
            let message = message.aggregate(aggregate).unwrap();
            file.store.enqueue_in_blocking(&transaction, &message).unwrap();
            if aborts && consumer.makes(Mistake::SendsBeforeCommit) {
                let of = (aggregate.as_str(), body.as_str());
                let ledger = consumer.connection.lock().unwrap();
                ledger.execute("INSERT INTO ledger VALUES (?1, ?2)", of).unwrap();
            }
        }
        if aborts {
            transaction.rollback().unwrap();
            history.aborted.extend(sent.into_iter().map(|(_, body)| body));
        } else {
            transaction.commit().unwrap();
            numbers = next;
            history.committed.extend(sent);
        }
    }
    history
}

/// An outbox that fails now and then, before or after a call.
fn failing(file: &File, seed: u64) -> Arc<dyn InspectQueue> {
    let mut random = fastrand::Rng::with_seed(seed);
    Between::over(file.queue(), move |_| match random.u8(..) {
        0..10 => Fault::Before,
        10..20 => Fault::After,
        _ => Fault::None,
    })
}

/// One relay after the other: most are killed, and some drain.
async fn relay_again_and_again(
    file: Arc<File>,
    network: Network,
    seed: u64,
    is_over: Arc<AtomicBool>,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rules = quick().to_builder().attempts(1_000).build().unwrap();
    while !is_over.load(Ordering::SeqCst) {
        let builder = Relay::builder(failing(&file, random.u64(..))).rules(rules.clone());
        let builder = builder.retain(Duration::from_secs(90_000)).lease(Duration::from_secs(1));
        let running =
            start(builder.sink_with("consumer", network.clone(), oldest()).build().unwrap());
        for _ in 0..random.u64(6..60) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if is_over.load(Ordering::SeqCst) {
                break;
            }
        }
        match random.u8(..4) {
            0 => running.stop().await,
            _ => running.kill().await,
        }
    }
}

async fn storm(seed: u64, messages: usize, mistake: Option<Mistake>) -> Vec<Complaint> {
    let (file, consumer) = (Arc::new(File::new()), Arc::new(Consumer::new(seed, mistake)));
    let is_over = Arc::new(AtomicBool::new(false));
    let relays: Vec<_> = (0..2)
        .map(|relay| {
            let network = Network(consumer.clone());
            let run =
                relay_again_and_again(file.clone(), network, seed * 10 + relay, is_over.clone());
            tokio::spawn(run)
        })
        .collect();
    let producer = {
        let (file, consumer) = (file.clone(), consumer.clone());
        thread::spawn(move || produce(&file, seed, messages, &consumer))
    };
    while !producer.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut history = producer.join().unwrap();
    let queue = file.queue();
    let name = SinkName::new("consumer").unwrap();
    let lag = async || {
        let condition = queue.condition().await.unwrap();
        condition.sinks.iter().find(|sink| sink.name == name).map(|sink| sink.lag)
    };
    while lag().await != Some(0) {
        // However many there are, some of them arrive within a minute.
        let before = consumer.ledger().len();
        let arrives = async || lag().await == Some(0) || consumer.ledger().len() > before;
        until("another one is delivered", arrives).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for relay in relays {
        relay.await.unwrap();
    }
    history.applied = consumer.ledger();
    history.complaints()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_5000_messages_through_faults_each_is_applied_once_and_in_order() {
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let mut storms = vec![(1, 5_000)];
    if is_long {
        storms.extend((2..=10).map(|seed| (seed, 5_000)));
        storms.push((11, 100_000));
    }
    for (seed, messages) in storms {
        let began = std::time::Instant::now();
        let complaints = storm(seed, messages, None).await;
        eprintln!("{messages} messages in {:.1?}", began.elapsed());
        let (number, first) = (complaints.len(), complaints.first());
        assert!(complaints.is_empty(), "seed {seed}: {number} complaints: {first:?}");
    }
}

/// Every mistake that is seeded is found, and is what the checker says.
async fn is_found(mistake: Mistake, is_it: impl Fn(&Complaint) -> bool) {
    let complaints = storm(7, 400, Some(mistake)).await;
    assert!(!complaints.is_empty(), "{mistake:?} was not found");
    assert!(complaints.iter().all(is_it), "{mistake:?}: {complaints:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_sink_drops_is_found() {
    is_found(Mistake::SinkDropsOne, |complaint| matches!(complaint, Complaint::Lost(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_does_not_ask_its_inbox_is_found() {
    is_found(Mistake::InboxNotAsked, |complaint| matches!(complaint, Complaint::Twice(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_is_out_of_order_is_found() {
    is_found(Mistake::AppliesLate, |complaint| matches!(complaint, Complaint::TooEarly(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_of_an_aborted_transaction_is_found() {
    is_found(Mistake::SendsBeforeCommit, |complaint| matches!(complaint, Complaint::Aborted(_)))
        .await;
}
