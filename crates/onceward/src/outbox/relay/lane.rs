//! The pages of one lane: read, sent, settled, until there is nothing more to do.

use std::{sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};

use onceward_core::{
    BoxFuture, Timestamp,
    message::{
        Delivery, LaneWork, NO_SINK, Next, Page, Parking, Position, Sent, Token, begin_delivery,
        decide_delivery,
    },
    retry::Permit,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    flight::attempt_once,
    lease::LaneLease,
    settle::settle,
    shared::{RelayRun, SinkRun},
};
use crate::{
    client::driver::InFlightPermit,
    crashpoint,
    engine::{fresh_fence, injected},
    outbox::{Attempt, spans::DeliverySpan},
    telemetry::{self, AttemptResult, QueueCall, event},
};

/// For so long messages of one page are begun; then what was sent is settled. A relay that is killed sends no more
/// than that again, and one that is killed again and again comes on nevertheless.
const PAGE_TIME: Duration = Duration::from_secs(1);

/// One lane that this process works.
pub(super) struct LaneRun {
    pub(super) run: Arc<RelayRun>,
    pub(super) sink: Arc<SinkRun>,
    pub(super) lease: Arc<LaneLease>,
}

/// Why a lane is not worked any more for now.
pub(super) enum LaneEnd {
    /// There is nothing more to do, or nothing may be sent.
    Idle {
        /// Where it is.
        position: Position,
        /// Whether something was done.
        has_moved: bool,
    },
    /// The outbox did not answer.
    Troubled(Position),
    /// It is not known to be ours any more.
    Lost,
}

impl LaneRun {
    /// Works the lane from this position on.
    pub(super) async fn work(self, mut position: Position) -> LaneEnd {
        let mut has_moved = false;
        while self.may_send() {
            let limit = self.sink.pages.get();
            let take =
                async || self.run.ask(QueueCall::Take, self.run.queue.take(&position, limit)).await;
            let Ok(page) = crashpoint!("relay.take", take().await, injected()) else {
                return LaneEnd::Troubled(position);
            };
            self.sink.pages.learn(&page, limit);
            let mut sending = Sending::begin(&self, position.clone(), page);
            sending.send_all().await;
            let Sending { work, delivered, .. } = sending;
            let goes_on = work.is_full() && work.pause().is_none();
            let Some(settlement) = work.settlement(fresh_fence()) else {
                break;
            };
            let parked: Vec<Parking> =
                settlement.changes.iter().map(|change| change.to.clone()).collect();
            let Some(moved) = settle(&self.run, settlement).await else {
                return LaneEnd::Lost;
            };
            (position, has_moved) = (moved, true);
            self.count(&delivered, &parked);
            if !goes_on {
                break;
            }
        }
        LaneEnd::Idle { position, has_moved }
    }

    /// Whether another message may be sent. Asked before each: a process may have slept for long.
    fn may_send(&self) -> bool {
        let now = self.run.now();
        self.run.is_open() && self.lease.is_valid(now) && now >= self.sink.health.until()
    }

    fn count(&self, delivered: &[Duration], parked: &[Parking]) {
        delivered.iter().for_each(|delay| self.sink.numbers.delivered(*delay));
        for parking in parked {
            self.sink.numbers.parked(parking);
            if matches!(parking, Parking::Dead { why, .. } if why == NO_SINK) {
                telemetry::RELAY_NO_SINK.add(());
            }
        }
    }
}

/// A page while its messages are sent.
///
/// Attempts are polled by the lane's own task: a task for each would cost more than all else that is done here.
struct Sending<'a> {
    lane: &'a LaneRun,
    work: LaneWork,
    read_at: Timestamp,
    begun: Duration,
    flights: FuturesUnordered<BoxFuture<'a, Landed>>,
    /// Whether an attempt was made.
    has_begun: bool,
    /// How long each message took that the sink has accepted.
    delivered: Vec<Duration>,
}

/// What is kept of an attempt while it is under way; its places are free again when this is dropped.
struct UnderWay {
    token: Token,
    delivery: Delivery,
    span: Option<DeliverySpan>,
    _place: OwnedSemaphorePermit,
    _flight: InFlightPermit,
}

/// An attempt that is over.
struct Landed {
    under_way: UnderWay,
    sent: Sent,
    took: Duration,
}

impl<'a> Sending<'a> {
    fn begin(lane: &'a LaneRun, position: Position, page: Page) -> Self {
        let read_at = page.read_at;
        let LaneRun { run, sink, .. } = lane;
        let work =
            LaneWork::new(position, page, sink.plan.dead_letters, |topic| sink.rule(run, topic));
        Self {
            lane,
            work,
            read_at,
            begun: run.now(),
            flights: FuturesUnordered::new(),
            has_begun: false,
            delivered: Vec::new(),
        }
    }

    /// Sends what may be sent, and waits for everything that was.
    async fn send_all(&mut self) {
        let mut next = None;
        loop {
            if self.has_begun && self.elapsed() >= PAGE_TIME {
                self.work.close();
            }
            if next.is_none() && self.lane.may_send() {
                next = self.work.next(self.elapsed());
            }
            if next.is_none() && self.flights.is_empty() {
                return;
            }
            let is_alone = self.flights.is_empty();
            let may_begin = is_alone || !self.lane.sink.is_suspect(self.lane.run.now());
            let place = self.lane.sink.in_flight.clone().acquire_owned();
            tokio::select! {
                biased;
                Some(landed) = self.flights.next(), if !is_alone => self.ended(landed),
                place = place, if next.is_some() && may_begin => {
                    if let Some(token) = next.take() {
                        self.begin_one(token, place.expect("it is never closed"));
                    }
                }
            }
        }
    }

    fn elapsed(&self) -> Duration {
        self.lane.run.now().saturating_sub(self.begun)
    }

    fn begin_one(&mut self, token: Token, place: OwnedSemaphorePermit) {
        let LaneRun { run, sink, .. } = self.lane;
        if !self.lane.may_send() {
            // It waited for its place, and meanwhile the sink went down or the lane was lost.
            self.work.sent(token, Next::Pause { wait: None });
            return;
        }
        let failures = self.work.attempts(token);
        let (now, random) = (run.now(), fastrand::u64(..));
        let rules = &sink.plan.rules;
        let mut delivery = Delivery::new(rules, failures, now);
        let leave =
            sink.target.with(|target| begin_delivery(rules, target, &mut delivery, now, random));
        let Permit { timeout: time, .. } = match leave {
            Ok(permit) => permit,
            Err(instead) => return self.conclude(token, instead),
        };
        let flight = sink.target.permit();
        let message = self.work.shared_message(token);
        let mut attempt = Attempt {
            sink: sink.plan.name.clone(),
            number: failures.saturating_add(1),
            timeout: time,
            traceparent: message.trace.clone(),
        };
        let span = run.spans.as_ref().map(|begin| begin(&message, &attempt));
        if let Some(span) = &span {
            attempt.traceparent = Some(span.traceparent().to_owned());
        }
        self.has_begun = true;
        let under_way = UnderWay { token, delivery, span, _place: place, _flight: flight };
        self.flights.push(Box::pin(async move {
            let begun = run.now();
            let sent = attempt_once(sink.plan.sink.as_ref(), &message, &attempt).await;
            Landed { under_way, sent, took: run.now().saturating_sub(begun) }
        }));
    }

    fn ended(&mut self, landed: Landed) {
        let Landed { mut under_way, sent, took } = landed;
        let LaneRun { run, sink, .. } = self.lane;
        sink.numbers.attempted(&sent, took);
        self.log(under_way.token, &sent, took);
        if let Some(span) = under_way.span.take() {
            span.end(&sent);
        }
        let (now, random) = (run.now(), fastrand::u64(..));
        let rules = &sink.plan.rules;
        let next = sink.target.with(|target| {
            decide_delivery(rules, target, &mut under_way.delivery, sent, now, random)
        });
        self.conclude(under_way.token, next);
    }

    /// Tells the page, and the sink's health, what is to be done.
    fn conclude(&mut self, token: Token, next: Next) {
        let sink = &self.lane.sink;
        let message = self.work.message(token);
        match &next {
            Next::Delivered => {
                let since = message.not_before.map_or(message.at, |from| from.max(message.at));
                self.delivered.push(self.read_at.since(since) + self.elapsed());
            }
            Next::Die { why } | Next::Hold { why } => {
                let (name, id) = (sink.name(), message.id);
                tracing::warn!(
                    event = event::DELIVERY_GIVEN_UP,
                    sink = name,
                    message = %id,
                    topic = %message.topic,
                    error = why,
                    "a message is not sent any more until an operator says so; later ones of its aggregate wait"
                );
            }
            Next::Park { .. }
            | Next::Postpone { .. }
            | Next::GiveWay { .. }
            | Next::Pause { .. } => {}
        }
        match &next {
            Next::Pause { .. } | Next::GiveWay { .. } => {
                let wait = if let Next::Pause { wait } = &next { *wait } else { None };
                if sink.health.rest(wait, self.lane.run.now(), fastrand::u64(..)) {
                    tracing::warn!(
                        event = event::SINK_DOWN,
                        sink = sink.name(),
                        "the sink is down, or fails at everything; its messages wait"
                    );
                }
            }
            Next::Postpone { .. } => {}
            _ => {
                if sink.health.recover() {
                    tracing::info!(
                        event = event::SINK_UP,
                        sink = sink.name(),
                        "the sink takes messages again"
                    );
                }
            }
        }
        self.work.sent(token, next);
    }

    fn log(&self, token: Token, sent: &Sent, took: Duration) {
        let message = self.work.message(token);
        tracing::debug!(
            event = event::DELIVERY,
            sink = self.lane.sink.name(),
            message = %message.id,
            topic = %message.topic,
            attempt = self.work.attempts(token).saturating_add(1),
            result = AttemptResult::of(sent).as_str(),
            duration_ms = took.as_secs_f64() * 1000.0,
        );
    }
}
