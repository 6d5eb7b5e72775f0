//! What relays count: for each sink, and for the outbox that they share.

use std::sync::LazyLock;

use onceward_core::message::{Parking, Sent, SinkCondition};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use super::{
    Counters, Labels as _, Levels, SECONDS, labels,
    metric::{is_on, registered},
    metrics,
};

labels! {
    pub(crate) enum AttemptResult: "result" {
        Accepted = "accepted", Refused = "refused", Failed = "failed", Retry = "retry",
        Unknown = "unknown", Gone = "gone", Down = "down",
    }

    pub(crate) enum MessageEnd: "state" {
        Delivered = "delivered", Waiting = "waiting", Scheduled = "scheduled", Dead = "dead",
        Held = "held", Expired = "expired",
    }

    pub(crate) enum ParkedAs: "state" {
        Waiting = "waiting", Scheduled = "scheduled", Dead = "dead", Held = "held",
    }

    pub(crate) enum SettleResult: "result" {
        Moved = "moved", Fenced = "fenced", Lost = "lost", Failed = "failed",
    }

    pub(crate) enum QueueCall: "call" {
        Open = "open", Lease = "lease", GiveBack = "give_back", Waiting = "waiting", Take = "take",
        Settle = "settle", Sweep = "sweep", Condition = "condition",
    }
}

metrics! { show_relays:
    /// Pages of lanes by what became of their settlement.
    RELAY_SETTLEMENTS: Counters<SettleResult> = "onceward_relay_settlements_total";
    /// Calls to the outbox that failed.
    RELAY_CALLS_FAILED: Counters<QueueCall> = "onceward_relay_calls_failed_total";
    /// Messages that became dead letters because no sink takes their topic.
    RELAY_NO_SINK: Counters = "onceward_relay_no_sink_total";
    /// Messages that were deleted because every sink has them and their retention was over.
    RELAY_SWEPT: Counters = "onceward_relay_swept_messages_total";
    /// Messages in the outbox.
    RELAY_STORED: Levels = "onceward_relay_stored_messages";
}

fn counters(name: &str, about: &str, label: &str) -> IntCounterVec {
    registered(IntCounterVec::new(Opts::new(name, about), &["sink", label]))
}

fn levels(name: &str, about: &str, labels: &[&str]) -> IntGaugeVec {
    registered(IntGaugeVec::new(Opts::new(name, about), labels))
}

fn durations(name: &str, about: &str, bounds: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, about).buckets(bounds.to_vec());
    registered(HistogramVec::new(options, &["sink"]))
}

/// From a poll to days: a message may wait for a sink that is down.
const DELAYS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0, 86400.0,
];

static ATTEMPTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let about = "Attempts to deliver a message, by what the sink said.";
    counters("onceward_relay_attempts_total", about, "result")
});

static ATTEMPT_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    let about = "How long attempts to deliver a message took.";
    durations("onceward_relay_attempt_duration_seconds", about, SECONDS)
});

static MESSAGES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let about = "What became of messages, each time that it changed.";
    counters("onceward_relay_messages_total", about, "state")
});

static DELAY: LazyLock<HistogramVec> = LazyLock::new(|| {
    let about = "How long messages took from the outbox, or their time, to their sink.";
    durations("onceward_relay_delay_seconds", about, DELAYS)
});

static LANES: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    levels("onceward_relay_lanes", "Lanes that this process holds, of 64.", &["sink"])
});

static PAUSED: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    let about = "One if the sink is down or left alone, and nothing is sent to it.";
    levels("onceward_relay_paused", about, &["sink"])
});

static LAG: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    levels("onceward_relay_lag", "Messages that the sink has not got yet.", &["sink"])
});

static OLDEST: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    let about = "The age of the oldest message that the sink has not got yet.";
    levels("onceward_relay_oldest_seconds", about, &["sink"])
});

static PARKED: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    levels("onceward_relay_parked", "Messages that the lanes have passed.", &["sink", "state"])
});

/// The numbers of one sink, each with its handle. A process has as many as its configuration names.
pub(crate) struct SinkNumbers {
    attempts: Box<[IntCounter]>,
    attempt_duration: Histogram,
    messages: Box<[IntCounter]>,
    delay: Histogram,
    parked: Box<[IntGauge]>,
    lanes: IntGauge,
    paused: IntGauge,
    lag: IntGauge,
    oldest: IntGauge,
}

impl SinkNumbers {
    pub(crate) fn of(sink: &str) -> Self {
        let attempts = AttemptResult::ALL.iter();
        let attempts = attempts.map(|one| ATTEMPTS.with_label_values(&[sink, one.as_str()]));
        let messages = MessageEnd::ALL.iter();
        let messages = messages.map(|one| MESSAGES.with_label_values(&[sink, one.as_str()]));
        let parked = ParkedAs::ALL.iter();
        let parked = parked.map(|one| PARKED.with_label_values(&[sink, one.as_str()]));
        Self {
            attempts: attempts.collect(),
            attempt_duration: ATTEMPT_DURATION.with_label_values(&[sink]),
            messages: messages.collect(),
            delay: DELAY.with_label_values(&[sink]),
            parked: parked.collect(),
            lanes: LANES.with_label_values(&[sink]),
            paused: PAUSED.with_label_values(&[sink]),
            lag: LAG.with_label_values(&[sink]),
            oldest: OLDEST.with_label_values(&[sink]),
        }
    }

    pub(crate) fn attempted(&self, sent: &Sent, took: std::time::Duration) {
        if is_on() {
            self.attempts[AttemptResult::of(sent).index()].inc();
            self.attempt_duration.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn delivered(&self, delay: std::time::Duration) {
        if is_on() {
            self.messages[MessageEnd::Delivered.index()].inc();
            self.delay.observe(delay.as_secs_f64());
        }
    }

    pub(crate) fn parked(&self, parking: &Parking) {
        if let Some(end) = MessageEnd::of(parking).filter(|_| is_on()) {
            self.messages[end.index()].inc();
        }
    }

    pub(crate) fn holds(&self, lanes: usize) {
        self.lanes.set(i64::try_from(lanes).unwrap_or(i64::MAX));
    }

    pub(crate) fn is_paused(&self, paused: bool) {
        self.paused.set(paused.into());
    }

    pub(crate) fn show(&self, condition: &SinkCondition) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.lag.set(number(condition.lag));
        self.oldest.set(number(condition.oldest_waiting.map_or(0, |age| age.as_secs())));
        for (state, count) in [
            (ParkedAs::Waiting, condition.waiting),
            (ParkedAs::Scheduled, condition.scheduled),
            (ParkedAs::Dead, condition.dead),
            (ParkedAs::Held, condition.held),
        ] {
            self.parked[state.index()].set(number(count));
        }
    }
}

impl AttemptResult {
    pub(crate) fn of(sent: &Sent) -> Self {
        match sent {
            Sent::Accepted => Self::Accepted,
            Sent::Refused { .. } => Self::Refused,
            Sent::Failed { .. } => Self::Failed,
            Sent::Retry { .. } => Self::Retry,
            Sent::Unknown { .. } => Self::Unknown,
            Sent::Gone { .. } => Self::Gone,
            Sent::SinkDown { .. } => Self::Down,
        }
    }
}

impl MessageEnd {
    /// `None`: it was counted when it was delivered.
    fn of(parking: &Parking) -> Option<Self> {
        Some(match parking {
            Parking::Delivered => return None,
            Parking::Waiting { .. } => Self::Waiting,
            Parking::Scheduled => Self::Scheduled,
            Parking::Held { .. } => Self::Held,
            Parking::Dead { .. } => Self::Dead,
            Parking::Expired => Self::Expired,
        })
    }
}
