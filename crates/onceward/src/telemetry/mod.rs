//! The names of everything that is logged, counted or traced. Keys appear as digests only.
//!
//! [`prometheus()`] shows every number that this process counts: append its text to an endpoint of your
//! own, or add numbers of your own to the [`registry`]. `docs/metrics.md` in the repository says what
//! each means and what to alert on.
//!
//! ```
//! use onceward::telemetry::{self, *};
//!
//! labels! {
//!     enum Payment: "method" { Card = "card", Invoice = "invoice" }
//! }
//! metrics! { show:
//!     /// Payments that were taken.
//!     PAYMENTS: Counters<Payment> = "shop_payments_total";
//!     /// Payments under way.
//!     UNDER_WAY: Levels = "shop_payments";
//!     /// How long they took.
//!     DURATION: Histograms<Payment> = "shop_payment_duration_seconds", SECONDS;
//! }
//!
//! let (begun, under_way): (Begun, LevelGuard) = (Begun::now(), UNDER_WAY.hold());
//! PAYMENTS.add(Payment::Card);
//! DURATION.since(Payment::Card, begun);
//! drop(under_way);
//! let text = telemetry::prometheus();
//! assert!(text.contains("# TYPE onceward_claims_total counter\n"));
//! assert!(text.contains("shop_payments_total{method=\"invoice\"} 0\n"));
//! ```

#[cfg(feature = "client")]
mod client;
pub mod event;
mod metric;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "tower")]
mod requests;
pub mod span;

use std::{fmt, sync::LazyLock};

use onceward_core::{Change, Claim, Settled, State, StoreError};
#[cfg(feature = "tower")]
use onceward_core::{Outcome, StoredBody};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, TextEncoder};

#[cfg(feature = "client")]
pub(crate) use client::*;
use metric::registered;
pub use metric::{
    Begun, Counters, Family, Histograms, Labels, LevelGuard, Levels, SECONDS, disable, labels,
    metrics, registry,
};
#[cfg(feature = "relay")]
pub(crate) use relay::*;
#[cfg(feature = "tower")]
pub(crate) use requests::log_request;
#[cfg(feature = "tower")]
pub use requests::{Answered, Route};

/// The content type of what [`prometheus()`] gives.
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Something that a person must look at: an error event with a name, and a count since start.
///
/// ```
/// assert_eq!(onceward::telemetry::RECORD_UNREADABLE.event(), "record_unreadable");
/// ```
#[derive(Debug)]
pub struct Alarm {
    event: &'static str,
}

impl Alarm {
    const fn new(event: &'static str) -> Self {
        Self { event }
    }

    /// The name of the event in logs.
    #[must_use]
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// How often it was raised since the process started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counter().get()
    }

    pub(crate) fn raise(&self, detail: impl fmt::Display) {
        self.counter().inc();
        tracing::error!(event = self.event, "{detail}");
    }

    fn counter(&self) -> IntCounter {
        static ALARMS_TOTAL: LazyLock<IntCounterVec> = LazyLock::new(|| {
            let about = "What a person must look at: error events of these names.";
            registered(IntCounterVec::new(Opts::new("onceward_alarms_total", about), &["event"]))
        });
        ALARMS_TOTAL.with_label_values(&[self.event])
    }
}

/// A record does not match its checksum, or cannot be opened: its outcome counts as unknown.
pub static RECORD_UNREADABLE: Alarm = Alarm::new("record_unreadable");
/// The store itself is damaged.
pub static STORE_CORRUPT: Alarm = Alarm::new("store_corrupt");
/// A file of the store was deleted or replaced while it is in use: nothing is written any more.
pub static STORE_REPLACED: Alarm = Alarm::new("store_replaced");
/// New claims are refused because space runs out.
pub static STORE_FULL: Alarm = Alarm::new("store_full");
/// The store's clock and one that no operator sets disagree: nothing is swept, and requests for what only a
/// jump lets expire are refused.
pub static CLOCK_JUMPED: Alarm = Alarm::new("clock_jumped");
/// A settlement was given up at shutdown: its operation is in progress until its lease is over.
pub static SETTLEMENT_ABANDONED: Alarm = Alarm::new("settlement_abandoned");
/// A request ran without a record, because the store was down and its route allows that.
pub static UNPROTECTED: Alarm = Alarm::new("unprotected");
/// The outbox must not be relayed as it is: its database is a restored copy, say.
pub static OUTBOX_STOPPED: Alarm = Alarm::new("outbox_stopped");
/// The outbox refuses to take what became of messages: their lane stands still.
pub static RELAY_NOT_SETTLED: Alarm = Alarm::new("relay_not_settled");

static ALARMS: [&Alarm; 9] = [
    &RECORD_UNREADABLE,
    &STORE_CORRUPT,
    &STORE_REPLACED,
    &STORE_FULL,
    &CLOCK_JUMPED,
    &SETTLEMENT_ABANDONED,
    &UNPROTECTED,
    &OUTBOX_STOPPED,
    &RELAY_NOT_SETTLED,
];

// What the values mean is in docs/metrics.md.
labels! {
    pub(crate) enum Claimed: "attempt" { First = "first", Again = "again" }

    pub(crate) enum Ended: "state" {
        Succeeded = "succeeded", FailedFinal = "failed_final", FailedRetryable = "failed_retryable",
        Released = "released", Unknown = "unknown", FencedOff = "fenced_off",
    }

    pub(crate) enum RenewalResult: "result" {
        Renewed = "renewed", Lost = "lost", Failed = "failed", TimedOut = "timed_out",
    }

    pub(crate) enum Troubled: "trouble" {
        Retried = "retried", Late = "late", Abandoned = "abandoned",
    }

    pub(crate) enum Unsettled: "kind" { Execution = "execution", Other = "other" }

    pub(crate) enum Call: "call" {
        Swap = "swap", Get = "get", Sweep = "sweep", PutChunk = "put_chunk", GetChunk = "get_chunk",
    }

    pub(crate) enum StoreAnswer: "result" {
        Ok = "ok", Conflict = "conflict", Unavailable = "unavailable", Full = "full",
        Newer = "newer", Unusable = "unusable", Other = "other",
    }

    pub(crate) enum StoredAs: "kept" {
        Inline = "inline", Spooled = "spooled", Reference = "reference", No = "no",
    }

    pub(crate) enum Resolved: "answer" {
        Applied = "applied", Never = "never", Nothing = "nothing", Failed = "failed",
        TimedOut = "timed_out",
    }

    /// Which request of a call it is.
    ///
    /// ```
    /// assert_eq!(onceward::telemetry::SentAs::Retry.as_str(), "retry");
    /// ```
    pub enum SentAs: "kind" {
        /// The first one.
        First = "first",
        /// One after a wait.
        Retry = "retry",
        /// One beside another that is late.
        Hedge = "hedge",
    }

    /// Why a request was not sent to the upstream at all.
    ///
    /// ```
    /// assert_eq!(onceward::telemetry::RejectReason::Breaker.as_str(), "breaker");
    /// ```
    pub enum RejectReason: "reason" {
        /// The upstream does nothing but fail.
        Breaker = "breaker",
        /// The upstream has as many requests as it may have.
        Limit = "limit",
        /// Its client, or its kind, has as many there as it may have.
        Share = "share",
        /// There is too much to do, and it is less important.
        Shed = "shed",
        /// Too many of all that come are retries.
        RetryShare = "retry_share",
        /// Its deadline was over.
        Deadline = "deadline",
        /// Anything else.
        Other = "other",
    }
}

/// From a few bytes to the largest answer that is kept.
const BYTES: &[f64] = &[
    256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0,
];
/// How many at once.
const NUMBERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

metrics! { show_library:
    /// Claims that were made: executions begun.
    CLAIMS: Counters<Claimed> = "onceward_claims_total";
    /// Executions by how they ended.
    EXECUTIONS: Counters<Ended> = "onceward_executions_total";
    /// How long services took to answer keyed requests.
    EXECUTION_DURATION: Histograms = "onceward_execution_duration_seconds", SECONDS;
    /// Renewals of leases by what became of them.
    RENEWALS: Counters<RenewalResult> = "onceward_renewals_total";
    /// Settlements that did not go well at once.
    SETTLEMENTS_TROUBLED: Counters<Troubled> = "onceward_settlements_troubled_total";
    /// What keeps this process from ending now.
    UNSETTLED: Levels<Unsettled> = "onceward_unsettled";
    /// Requests that wait now for the answer of another one.
    WAITERS: Levels = "onceward_waiters";
    /// How long requests waited for the answer of another one.
    WAIT_DURATION: Histograms = "onceward_wait_duration_seconds", SECONDS;
    /// Bytes of large requests and answers that are held in memory now.
    BUFFERED_BYTES: Levels = "onceward_buffered_bytes";
    /// Answers by how they are kept.
    ANSWERS: Counters<StoredAs> = "onceward_answers_total";
    /// The sizes of answers that are kept.
    ANSWER_BYTES: Histograms<StoredAs> = "onceward_answer_bytes", BYTES;
    /// What resolvers said about unknown outcomes.
    RESOLVER_ANSWERS: Counters<Resolved> = "onceward_resolver_answers_total";
    /// Calls to the store by what it said.
    STORE_CALLS: Counters<(Call, StoreAnswer)> = "onceward_store_calls_total";
    /// How long calls to the store took, failed ones included.
    STORE_CALL_DURATION: Histograms<Call> = "onceward_store_call_duration_seconds", SECONDS;
    /// Records that were deleted because their time was over.
    SWEPT: Counters = "onceward_swept_records_total";
    /// Changes by one commit of the SQLite store.
    SQLITE_BATCH: Histograms = "onceward_sqlite_commit_changes", NUMBERS;
    /// How long transactions of the SQLite store took, from asking for the lock to the commit.
    SQLITE_COMMIT_DURATION: Histograms = "onceward_sqlite_commit_duration_seconds", SECONDS;
    /// Changes that wait now for the SQLite store's writing thread.
    SQLITE_QUEUE: Levels = "onceward_sqlite_queue";
    /// How long checkpoints of the SQLite store took.
    SQLITE_CHECKPOINT_DURATION: Histograms = "onceward_sqlite_checkpoint_duration_seconds", SECONDS;
    /// Bytes of SQLite's log that are not yet copied into the file.
    SQLITE_LOG_WAITING: Levels = "onceward_sqlite_log_waiting_bytes";
    /// How far the store's clock is suspected to be ahead of real time.
    CLOCK_AHEAD: Levels = "onceward_clock_ahead_seconds";
}

impl Claimed {
    pub(crate) fn of(claim: &Claim) -> Self {
        match claim.attempt() {
            0 | 1 => Self::First,
            _ => Self::Again,
        }
    }
}

impl Ended {
    /// How an execution ends if this change is made.
    pub(crate) fn by(change: &Change) -> Self {
        match &change.next.state {
            State::Succeeded(_) => Self::Succeeded,
            State::FailedFinal(_) => Self::FailedFinal,
            State::FailedRetryable => Self::FailedRetryable,
            State::Unknown => Self::Unknown,
            // No settlement leaves a claim in progress.
            State::Released | State::InProgress => Self::Released,
        }
    }
}

pub(crate) fn count_settled(ended: Ended, settled: &Settled) {
    EXECUTIONS.add(match settled {
        Settled::Stored { .. } => ended,
        Settled::FencedOff(_) => Ended::FencedOff,
    });
}

/// Counts an end that a handler committed by itself.
#[cfg(feature = "tower")]
pub(crate) fn count_committed(outcome: &Outcome) {
    EXECUTIONS.add(match outcome.status {
        200..400 => Ended::Succeeded,
        _ => Ended::FailedFinal,
    });
    count_answer(&outcome.body);
}

#[cfg(feature = "tower")]
pub(crate) fn count_answer(body: &StoredBody) {
    let (kept, length) = match body {
        StoredBody::Inline(bytes) => (StoredAs::Inline, Some(bytes.len() as u64)),
        StoredBody::Spooled { length, .. } => (StoredAs::Spooled, Some(*length)),
        StoredBody::Reference { .. } => (StoredAs::Reference, None),
        StoredBody::Unavailable => (StoredAs::No, None),
    };
    ANSWERS.add(kept);
    if let Some(length) = length {
        ANSWER_BYTES.observe(kept, length);
    }
}

pub(crate) fn count_call<T>(
    call: Call,
    begun: Begun,
    answer: &Result<T, StoreError>,
    reply: impl FnOnce(&T) -> StoreAnswer,
) {
    let reply = match answer {
        Ok(answer) => reply(answer),
        Err(StoreError::Unavailable(_)) => StoreAnswer::Unavailable,
        Err(StoreError::Full(_)) => StoreAnswer::Full,
        Err(StoreError::Newer(_)) => StoreAnswer::Newer,
        Err(StoreError::Unusable(_)) => StoreAnswer::Unusable,
        Err(_) => StoreAnswer::Other,
    };
    STORE_CALLS.add((call, reply));
    STORE_CALL_DURATION.since(call, begun);
}

/// Everything that was counted since this process started, in the text format of Prometheus.
///
/// ```
/// let text = onceward::telemetry::prometheus();
/// assert!(text.lines().any(|line| line == "onceward_alarms_total{event=\"store_full\"} 0"));
/// ```
#[must_use]
pub fn prometheus() -> String {
    static BUILD_INFO: LazyLock<IntGauge> = LazyLock::new(|| {
        let about = "One, with the version of the library.";
        let options = Opts::new("onceward_build_info", about);
        registered(IntGauge::with_opts(options.const_label("version", env!("CARGO_PKG_VERSION"))))
    });
    BUILD_INFO.set(1);
    for alarm in ALARMS {
        alarm.counter();
    }
    #[cfg(feature = "tower")]
    let _ = Route::other();
    show_library();
    #[cfg(feature = "client")]
    if LazyLock::get(&CLIENT_ATTEMPTS).is_some() {
        show_client();
    }
    #[cfg(feature = "relay")]
    if LazyLock::get(&RELAY_SETTLEMENTS).is_some() {
        show_relays();
    }
    let families = registry().gather();
    TextEncoder::new().encode_to_string(&families).expect("a family that is gathered has a series")
}
