//! What all parts of a running relay share, and what all lanes of one sink share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use onceward_core::{
    BoxFuture, StoreError,
    message::{InspectQueue, RelayId, SinkId, Topic, TopicRule},
    retry::{Circuit, Moment},
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::{OtherTopics, Relay, RelayError, SinkPlan, health::Health, page::PageSize};
use crate::{
    client::driver::TargetHandle,
    crashpoint,
    engine::injected,
    outbox::spans::BeginSpan,
    telemetry::{self, QueueCall, SinkNumbers, event},
};

/// How long a sink loop or an opening waits before it asks an outbox again that failed.
pub(super) const TROUBLE: Duration = Duration::from_secs(1);

/// How often the log says that the outbox does not answer.
const COMPLAINT_EVERY: Duration = Duration::from_secs(10);

/// One run of a relay.
pub(super) struct RelayRun {
    pub(super) queue: Arc<dyn InspectQueue>,
    pub(super) id: RelayId,
    pub(super) lease: Duration,
    pub(super) drain: Duration,
    pub(super) spans: Option<BeginSpan>,
    plans: Arc<[Arc<SinkPlan>]>,
    other_topics: OtherTopics,
    started: Instant,
    /// The outbox must not be relayed as it is.
    is_stopped: AtomicBool,
    is_ending: AtomicBool,
    complained_ms: AtomicU64,
}

impl RelayRun {
    pub(super) fn new(relay: &Relay) -> Self {
        Self {
            queue: relay.queue.clone(),
            id: RelayId::from_random(uuid::Uuid::new_v4().into_bytes()),
            lease: relay.lease,
            drain: relay.drain,
            spans: relay.spans.clone(),
            plans: relay.sinks.clone(),
            other_topics: relay.other_topics,
            started: Instant::now(),
            is_stopped: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            complained_ms: AtomicU64::new(0),
        }
    }

    /// Monotonic time: a wall clock that is set ends no lease.
    pub(super) fn now(&self) -> Moment {
        self.started.elapsed()
    }

    pub(super) fn at(&self, moment: Moment) -> Instant {
        self.started + moment
    }

    /// Whether anything may be sent at all.
    pub(super) fn is_open(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed) && !self.is_ending.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Takes what the outbox says about itself. Raises the alarm once.
    pub(super) fn note_alarm(&self, alarm: Option<&str>) {
        let was_stopped = self.is_stopped.swap(alarm.is_some(), Ordering::Relaxed);
        match alarm {
            Some(alarm) if !was_stopped => {
                telemetry::OUTBOX_STOPPED
                    .raise(format_args!("nothing is delivered any more: {alarm}"));
            }
            None if was_stopped => {
                tracing::warn!(
                    event = event::OUTBOX_GOES_ON,
                    "the outbox is in order again; delivery goes on"
                );
            }
            _ => {}
        }
    }

    /// Asks the outbox, for no longer than a lease, and counts a failure.
    pub(super) async fn ask<T>(
        &self,
        call: QueueCall,
        answer: BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = timeout(self.lease, answer).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no answer within {:?}", self.lease)))
        });
        if let Err(error) = &answer {
            telemetry::RELAY_CALLS_FAILED.add(call);
            self.complain(call, error);
        }
        answer
    }

    fn complain(&self, call: QueueCall, error: &StoreError) {
        let now = u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX) + 1;
        let last = self.complained_ms.load(Ordering::Relaxed);
        if last == 0 || u128::from(now - last.min(now)) >= COMPLAINT_EVERY.as_millis() {
            self.complained_ms.store(now, Ordering::Relaxed);
            let call = call.as_str();
            tracing::warn!(
                event = event::OUTBOX_TROUBLE,
                call,
                %error,
                "the outbox fails; nothing is lost, and it is asked again"
            );
        }
    }

    /// Finds the place of a sink in the outbox; `None`: the relay was stopped before the outbox answered.
    pub(super) async fn open(
        self: &Arc<Self>,
        plan: &Arc<SinkPlan>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<Arc<SinkRun>>, RelayError> {
        let mut was_refused = false;
        loop {
            let opened = self.queue.open_sink(&plan.name, plan.from);
            let opened = self.ask(QueueCall::Open, opened);
            match crashpoint!("relay.open", opened.await, injected()) {
                Ok(id) => return Ok(Some(Arc::new(SinkRun::new(plan, id)))),
                Err(error) if error.is_definite() && !self.is_alarmed().await => {
                    // An operator may have mended it between the two questions: it is asked once more.
                    if was_refused {
                        return Err(RelayError { sink: plan.name.clone(), error });
                    }
                    was_refused = true;
                    continue;
                }
                Err(_) => was_refused = false,
            }
            tokio::select! {
                () = sleep(TROUBLE) => {}
                _ = stop.wait_for(|stop| *stop) => return Ok(None),
            }
        }
    }

    /// Whether the outbox must not be relayed as it is: an operator mends that while the relay waits.
    async fn is_alarmed(&self) -> bool {
        let condition = self.ask(QueueCall::Condition, self.queue.condition()).await;
        condition.is_ok_and(|condition| {
            self.note_alarm(condition.alarm.as_deref());
            condition.alarm.is_some()
        })
    }

    /// What a sink does with messages of a topic. Of those that no sink takes, the first sink says so.
    fn rule(&self, plan: &Arc<SinkPlan>, topic: &Topic) -> TopicRule {
        let is_first = || Arc::ptr_eq(plan, &self.plans[0]);
        let is_taken = || self.plans.iter().any(|other| other.sink.takes(topic));
        match self.other_topics {
            _ if plan.sink.takes(topic) => TopicRule::Send,
            OtherTopics::Die if is_first() && !is_taken() => TopicRule::Refuse,
            OtherTopics::Die | OtherTopics::Pass => TopicRule::Pass,
        }
    }
}

/// One sink while a relay runs.
pub(super) struct SinkRun {
    pub(super) plan: Arc<SinkPlan>,
    pub(super) id: SinkId,
    pub(super) target: Arc<TargetHandle>,
    pub(super) health: Health,
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) pages: PageSize,
    pub(super) numbers: SinkNumbers,
}

impl SinkRun {
    fn new(plan: &Arc<SinkPlan>, id: SinkId) -> Self {
        Self {
            plan: plan.clone(),
            id,
            target: TargetHandle::new(&plan.rules),
            health: Health::default(),
            in_flight: Arc::new(Semaphore::new(plan.in_flight as usize)),
            pages: PageSize::default(),
            numbers: SinkNumbers::of(plan.name.as_str()),
        }
    }

    pub(super) fn rule(&self, run: &RelayRun, topic: &Topic) -> TopicRule {
        run.rule(&self.plan, topic)
    }

    /// Whether it is not known to be well: then it gets one message at a time.
    pub(super) fn is_suspect(&self, now: Moment) -> bool {
        let is_doubted = |circuit| matches!(circuit, Circuit::Open | Circuit::HalfOpen);
        self.health.is_suspect() || is_doubted(self.target.with(|target| target.circuit(now)))
    }

    pub(super) fn name(&self) -> &str {
        self.plan.name.as_str()
    }
}
