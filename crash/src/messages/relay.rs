//! The relay: over HTTP, to the consumer.

use std::{sync::Arc, time::Duration};

use onceward::{
    crashpoint,
    message::InspectQueue,
    outbox::{Attempt, HttpSink, Message, Relay, Sent, Sink, SinkOptions, StartFrom, Topic},
    retry::{Backoff, Rules, RulesError},
    store::BoxFuture,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{Arguments, Bug, Failure};

/// As the relay knows the consumer.
const SINK: &str = "consumer";

/// Fails once at each relay's first attempt, so that something is parked, and something waits behind it.
const SHY: &[u8] = b"2";

pub(super) async fn deliver(arguments: &Arguments) -> Result<(), Failure> {
    let queue = arguments.place.queue().await?;
    let consumer = arguments.consumer.ok_or("a relay needs --consumer")?;
    let sink = Arc::new(HttpSink::new(&format!("http://{consumer}/events"))?);
    let sink = Way { sink, faults: arguments.faults, bug: arguments.bug };
    let options = SinkOptions::default().from(StartFrom::Oldest);
    let relay = Relay::builder(queue.clone())
        .rules(quick()?)
        .retain(Duration::from_secs(90_000))
        .lease(Relay::MIN_LEASE)
        .sink_with(SINK, sink, options)
        .build()?;
    let mut terminated = signal(SignalKind::terminate())?;
    let is_over = async {
        match arguments.drain {
            true => drained(&queue).await,
            false => drop(terminated.recv().await),
        }
    };
    Ok(relay.run(is_over).await?)
}

/// Attempts without end, milliseconds apart; nothing leaves the consumer alone but its absence.
fn quick() -> Result<Rules, RulesError> {
    let millis = Duration::from_millis;
    let backoff = Backoff::Full { base: millis(10), cap: millis(100) };
    let rules = Relay::rules().to_builder().attempts(1_000).backoff(backoff);
    let rules = rules.overload_base(millis(10)).deadline(Duration::from_secs(60));
    let rules = rules.attempt_timeout(Duration::from_secs(5));
    rules.without_breaker().without_budget().build()
}

/// Asks seldom: the answer takes PostgreSQL milliseconds.
async fn drained(queue: &Arc<dyn InspectQueue>) {
    loop {
        sleep(Duration::from_millis(150)).await;
        let Ok(condition) = queue.condition().await else { continue };
        let mut ours = condition.sinks.iter().filter(|sink| sink.name.as_str() == SINK);
        if ours.any(|sink| sink.lag == 0) {
            return;
        }
    }
}

/// The way to the consumer, on which answers and messages are lost or doubled.
struct Way {
    sink: Arc<HttpSink<onceward::client::ReqwestService>>,
    faults: u32,
    bug: Option<Bug>,
}

impl Way {
    fn has_fault(&self) -> bool {
        fastrand::u32(..1_000) < self.faults
    }
}

impl Sink for Way {
    fn takes(&self, _: &Topic) -> bool {
        true
    }

    fn send<'a>(&'a self, message: &'a Message, attempt: &'a Attempt) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let why = || "a fault of the test".to_owned();
            if self.bug == Some(Bug::AcceptsEarly) {
                return Sent::Accepted;
            }
            if self.has_fault() || (attempt.number == 1 && message.body == SHY) {
                return Sent::Failed { why: why() };
            }
            if self.has_fault() {
                let _ = self.sink.send(message, attempt).await;
            }
            let sent = self.sink.send(message, attempt).await;
            if self.has_fault() {
                return Sent::Unknown { why: why() };
            }
            crashpoint!("way.answered", Ok(sent), why()).unwrap_or_else(|why| Sent::Unknown { why })
        })
    }
}
