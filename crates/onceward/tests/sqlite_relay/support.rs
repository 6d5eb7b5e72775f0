//! A sink that remembers everything, and relays that are started, stopped and killed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onceward::{
    message::{
        Changed, InspectQueue, Message, MessageId, MessageState, NewMessage, RepairKind,
        RepairMessage, ShownMessage, SinkName, Topic,
    },
    outbox::{Attempt, Relay, RelayBuilder, RelayError, Sent, Sink},
    retry::{Backoff, Rules},
    store::BoxFuture,
    telemetry,
};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use crate::metrics_text::Exposition;

/// What a sink says, and after which time.
pub type Script = dyn Fn(&Message, &Attempt) -> (Duration, Sent) + Send + Sync;

/// One attempt, as the sink saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: MessageId,
    pub aggregate: String,
    pub body: String,
    pub attempt: u32,
    pub began: Instant,
    pub ended: Instant,
    pub sent: Sent,
}

/// Remembers every attempt that ran to its end. Clones are the same sink.
#[derive(Clone)]
pub struct Recorder(Arc<State>);

struct State {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    begun: AtomicUsize,
    now: Mutex<(usize, usize)>,
}

impl Recorder {
    pub fn new(
        script: impl Fn(&Message, &Attempt) -> (Duration, Sent) + Send + Sync + 'static,
    ) -> Self {
        let (seen, begun, now) = Default::default();
        Self(Arc::new(State { script: Box::new(script), seen, begun, now }))
    }

    /// Accepts everything at once.
    pub fn accepting() -> Self {
        Self::new(|_, _| (Duration::ZERO, Sent::Accepted))
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    /// The bodies that were accepted, in the order of their acceptance.
    pub fn accepted(&self) -> Vec<String> {
        let seen = self.seen().into_iter().filter(|seen| seen.sent == Sent::Accepted);
        seen.map(|seen| seen.body).collect()
    }

    /// The same, for each aggregate.
    pub fn accepted_of_each(&self) -> BTreeMap<String, Vec<String>> {
        let mut each: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for seen in self.seen().into_iter().filter(|seen| seen.sent == Sent::Accepted) {
            each.entry(seen.aggregate).or_default().push(seen.body);
        }
        each
    }

    /// How many attempts have begun, also those that were given up.
    pub fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// The most attempts that were under way at once.
    pub fn most_at_once(&self) -> usize {
        self.0.now.lock().unwrap().1
    }
}

/// Down again when the attempt ends, or is given up.
struct UnderWay<'a>(&'a Mutex<(usize, usize)>);

impl<'a> UnderWay<'a> {
    fn begin(now: &'a Mutex<(usize, usize)>) -> Self {
        let mut counts = now.lock().unwrap();
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        Self(now)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

impl Sink for Recorder {
    fn takes(&self, topic: &Topic) -> bool {
        topic.as_str().starts_with("order.")
    }

    fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            let _under_way = UnderWay::begin(&self.0.now);
            let began = Instant::now();
            let (delay, sent) = (self.0.script)(message, attempt);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            self.0.seen.lock().unwrap().push(Seen {
                id: message.id,
                aggregate: message.aggregate.to_string(),
                body: String::from_utf8_lossy(&message.body).into_owned(),
                attempt: attempt.number,
                began,
                ended: Instant::now(),
                sent: sent.clone(),
            });
            sent
        })
    }
}

/// A relay that runs.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RelayError>>,
}

pub fn start(relay: Relay) -> Running {
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let shutdown = async { stopped.await.unwrap_or_default() };
        relay.run(shutdown).await
    });
    Running { stop: Some(stop), task }
}

impl Running {
    /// Lets it drain.
    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Ends it as `kill -9` would: nothing more is written.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub async fn error(self) -> RelayError {
        self.task.await.unwrap().unwrap_err()
    }
}

/// A relay with one sink, and rules by which a test does not wait for long.
pub fn relay(queue: &Arc<dyn InspectQueue>, sink: &Recorder) -> RelayBuilder {
    Relay::builder(queue.clone()).rules(quick()).sink_with("billing", sink.clone(), oldest())
}

pub fn oldest() -> onceward::outbox::SinkOptions {
    onceward::outbox::SinkOptions::default().from(onceward::outbox::StartFrom::Oldest)
}

/// Five attempts, milliseconds apart, and nothing that leaves a sink alone.
pub fn quick() -> Rules {
    let backoff =
        Backoff::Full { base: Duration::from_millis(10), cap: Duration::from_millis(100) };
    let rules = Relay::rules().to_builder().attempts(5).backoff(backoff);
    let rules = rules.overload_base(Duration::from_millis(10)).deadline(Duration::from_secs(60));
    rules.attempt_timeout(Duration::from_secs(5)).without_breaker().build().unwrap()
}

/// `aggregate/number`, so that a ledger shows whose it is.
pub fn event(aggregate: &str, number: usize) -> NewMessage {
    let body = format!("{aggregate}/{number}");
    NewMessage::new("order.placed", body).unwrap().aggregate(aggregate).unwrap()
}

pub fn bodies(aggregate: &str, numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("{aggregate}/{number}")).collect()
}

pub fn failed() -> Sent {
    Sent::Failed { why: "500".into() }
}

/// Waits until something is true, for a day of virtual time or a minute of real time.
pub async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let (began, virtual_began) = (std::time::Instant::now(), Instant::now());
    while !is_true().await {
        let (real, elapsed) = (began.elapsed(), virtual_began.elapsed());
        let is_late = real > Duration::from_secs(60) || elapsed > Duration::from_secs(86_400);
        assert!(!is_late, "it did not become true: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn shown(queue: &Arc<dyn InspectQueue>, id: MessageId) -> ShownMessage {
    queue.show(id).await.unwrap().remove(0)
}

pub async fn has_state(queue: &Arc<dyn InspectQueue>, id: MessageId, state: MessageState) -> bool {
    // Before a relay has opened its sink, nothing is known of it.
    queue.show(id).await.unwrap().first().is_some_and(|shown| shown.state == state)
}

pub async fn repair(queue: &Arc<dyn InspectQueue>, id: MessageId, kind: RepairKind) {
    let sink = SinkName::new("billing").unwrap();
    let (actor, reason) = (None, "a test".to_owned());
    let repair = RepairMessage { id, sink, kind, actor, reason };
    assert_eq!(queue.repair(&repair).await.unwrap(), Changed::Done);
}

/// What this process counts.
pub fn counted(name: &str, labels: &[(&str, &str)]) -> f64 {
    Exposition::parse(&telemetry::prometheus()).unwrap().value(name, labels).unwrap_or(0.0)
}
