//! The names of everything that is logged, counted or traced. Keys appear as digests only.
//!
//! Every number that a process counts about itself is a static here, and [`prometheus`] shows all of
//! them: append its text to an endpoint of your own. `docs/metrics.md` in the repository says what
//! each means and what to alert on.
//!
//! ```
//! use onceward::telemetry;
//!
//! let text = telemetry::prometheus();
//! assert!(text.contains("# TYPE onceward_claims_total counter\n"));
//! ```

pub mod event;
mod metric;
#[cfg(feature = "tower")]
mod requests;
pub mod span;
mod text;

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use onceward_core::{Change, Claim, Settled, State, StoreError};
#[cfg(feature = "tower")]
use onceward_core::{Outcome, StoredBody};

pub use metric::{
    Begun, Bytes, Counter, Family, Held, Histogram, Labels, Level, Number, Scale, Seconds, Series,
    disable,
};
use metric::{Metric, labels};
#[cfg(feature = "tower")]
pub(crate) use requests::log_request;
#[cfg(feature = "tower")]
pub use requests::{Answered, Route};

/// The content type of what [`prometheus`] gives.
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Something that a person must look at: an error event with a name, and a count since start.
///
/// ```
/// assert_eq!(onceward::telemetry::RECORD_UNREADABLE.event(), "record_unreadable");
/// ```
#[derive(Debug)]
pub struct Alarm {
    event: &'static str,
    count: AtomicU64,
}

impl Alarm {
    const fn new(event: &'static str) -> Self {
        Self { event, count: AtomicU64::new(0) }
    }

    /// The name of the event in logs.
    #[must_use]
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// How often it was raised since the process started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self, detail: impl fmt::Display) {
        self.count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(event = self.event, "{detail}");
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
/// The store's clock and one that nobody sets disagree: nothing is swept, and what only a jump lets expire is
/// refused.
pub static CLOCK_JUMPED: Alarm = Alarm::new("clock_jumped");
/// A settlement was given up at shutdown: its operation is in progress until its lease is over.
pub static SETTLEMENT_ABANDONED: Alarm = Alarm::new("settlement_abandoned");
/// A request ran without a record, because the store was down and its route allows that.
pub static UNPROTECTED: Alarm = Alarm::new("unprotected");

static ALARMS: [&Alarm; 7] = [
    &RECORD_UNREADABLE,
    &STORE_CORRUPT,
    &STORE_REPLACED,
    &STORE_FULL,
    &CLOCK_JUMPED,
    &SETTLEMENT_ABANDONED,
    &UNPROTECTED,
];

labels! {
    /// What became of a write with a key that matches no route.
    Unmatched is "result" {
        /// It was passed on, without protection.
        Passed = "passed",
        /// It was refused.
        Refused = "refused",
    }

    /// How a claim came about.
    Claimed is "attempt" {
        /// Nobody has run this operation before.
        First = "first",
        /// Somebody has: it failed and may be run again, or its lease is over.
        Again = "again",
    }

    /// What became of an execution.
    Ended is "state" {
        /// It succeeded, and its answer is bound.
        Succeeded = "succeeded",
        /// It failed for good, and its answer is bound.
        FailedFinal = "failed_final",
        /// It failed, and may be run again.
        FailedRetryable = "failed_retryable",
        /// Nothing happened, and the key is free again.
        Released = "released",
        /// Nobody knows whether it happened.
        Unknown = "unknown",
        /// Another execution took over before it could be settled.
        FencedOff = "fenced_off",
    }

    /// What became of a renewal.
    Renewed is "result" {
        /// The lease runs anew.
        Renewed = "renewed",
        /// Another execution took over.
        Lost = "lost",
        /// The store failed; it is tried again.
        Failed = "failed",
        /// The store did not answer in time; it is tried again.
        TimedOut = "timed_out",
    }

    /// A settlement that did not go well at once.
    Troubled is "trouble" {
        /// The store failed, and it was tried again.
        Retried = "retried",
        /// It took longer than its client waits.
        Late = "late",
        /// It was given up at shutdown.
        Abandoned = "abandoned",
    }

    /// What keeps a process from ending.
    Unsettled is "kind" {
        /// Executions that run or settle.
        Execution = "execution",
        /// Admissions, and claims that are given back.
        Other = "other",
    }

    /// A call to the store.
    Call is "call" {
        /// Replaces a record.
        Swap = "swap",
        /// Reads a record.
        Get = "get",
        /// Deletes what is over.
        Sweep = "sweep",
        /// Writes a part of a large answer.
        PutChunk = "put_chunk",
        /// Reads a part of a large answer.
        GetChunk = "get_chunk",
    }

    /// What a store said to a call.
    Said is "result" {
        /// It was done.
        Ok = "ok",
        /// Something else was stored than the change expected: a duplicate, or a race.
        Conflict = "conflict",
        /// No answer, or a failing one.
        Unavailable = "unavailable",
        /// No room for new claims.
        Full = "full",
        /// A record of newer software.
        Newer = "newer",
        /// The store cannot be used as it is.
        Unusable = "unusable",
        /// Any other error.
        Other = "other",
    }

    /// How an answer is kept.
    Kept is "kept" {
        /// In its record.
        Inline = "inline",
        /// Beside its record, because it is large.
        Spooled = "spooled",
        /// As a reference, to be made again.
        Reference = "reference",
        /// Its status only.
        No = "no",
    }

    /// What a resolver said about an unknown outcome.
    Resolved is "answer" {
        /// It happened.
        Applied = "applied",
        /// It did not happen.
        Never = "never",
        /// It does not know.
        Nothing = "nothing",
        /// It failed.
        Failed = "failed",
        /// It did not answer in time.
        TimedOut = "timed_out",
    }

    /// A state in which somebody may have to do something.
    OpenState is "state" {
        /// Running.
        InProgress = "in_progress",
        /// Interrupted, and taken over by the next request.
        Interrupted = "interrupted",
        /// Nobody knows whether it happened.
        Unknown = "unknown",
    }

    /// What an operator did to an operation.
    OperatorChange is "action" {
        /// Said what became of an unknown outcome.
        Resolve = "resolve",
        /// Gave a key back.
        Release = "release",
        /// Deleted a record.
        Purge = "purge",
        /// Said that the store's clock is right.
        TrustClock = "trust_clock",
    }

    /// Which connections to the upstream a request used.
    UpstreamLane is "lane" {
        /// Those of keyed requests.
        Keyed = "keyed",
        /// Those of requests that are passed on.
        Other = "other",
        /// Those of questions to others.
        Asked = "asked",
    }

    /// Why the upstream gave no answer.
    UpstreamFailure is "kind" {
        /// No connection, so nothing was sent.
        Connect = "connect",
        /// Its claim had no time left before it could be sent, so nothing was.
        Late = "late",
        /// It took too long.
        TimedOut = "timed_out",
        /// It said that it did not look at the request.
        Disowned = "disowned",
        /// The connection broke off after the request was sent.
        Broken = "broken",
        /// The request cannot be sent at all.
        Malformed = "malformed",
    }

    /// What became of a second request beside a late one.
    Hedged is "result" {
        /// Its answer was taken.
        Won = "won",
        /// The first one answered after all.
        Lost = "lost",
        /// It failed, which changed nothing.
        Failed = "failed",
    }

    /// Why a request was not sent to the upstream at all.
    RejectReason is "reason" {
        /// The upstream does nothing but fail.
        Breaker = "breaker",
        /// As many are there as may be.
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

    /// What a breaker lets through.
    CircuitState is "state" {
        /// Everything.
        Closed = "closed",
        /// No retries and no hedges.
        Guarded = "guarded",
        /// Nothing.
        Open = "open",
        /// A few, to see whether it is better.
        HalfOpen = "half_open",
    }

    /// What became of a configuration that was read again.
    Reloaded is "result" {
        /// It counts now.
        Ok = "ok",
        /// It is wrong, and the old one stays.
        Refused = "refused",
    }
}

/// Declares families, each with its name and its meaning, and lists them.
macro_rules! metrics {
    ($visible:vis $list:ident: $(
        #[doc = $about:literal]
        $metric:ident = $name:literal, $series:ty, $labels:ty;
    )*) => {
        $(
            #[doc = $about]
            pub static $metric: Family<$series, $labels, { <$labels as Labels>::COUNT }> =
                Family::new($name, $about);
        )*
        $visible static $list: &[&dyn Metric] = &[$(&$metric),*];
    };
}

// Below the macro that it uses.
mod attempts;
pub use attempts::*;

metrics! { LIBRARY:
    /// Claims that were made: executions begun.
    CLAIMS = "onceward_claims_total", Counter, Claimed;
    /// Executions by how they ended.
    EXECUTIONS = "onceward_executions_total", Counter, Ended;
    /// How long services took to answer keyed requests.
    EXECUTION_DURATION = "onceward_execution_duration_seconds", Histogram<Seconds>, ();
    /// Renewals of leases by what became of them.
    RENEWALS = "onceward_renewals_total", Counter, Renewed;
    /// Settlements that did not go well at once.
    SETTLEMENTS_TROUBLED = "onceward_settlements_troubled_total", Counter, Troubled;
    /// What keeps this process from ending now.
    UNSETTLED = "onceward_unsettled", Level, Unsettled;
    /// Requests that wait now for the answer of another one.
    WAITERS = "onceward_waiters", Level, ();
    /// How long requests waited for the answer of another one.
    WAIT_DURATION = "onceward_wait_duration_seconds", Histogram<Seconds>, ();
    /// Bytes of large requests and answers that are held in memory now.
    BUFFERED_BYTES = "onceward_buffered_bytes", Level, ();
    /// Answers by how they are kept.
    ANSWERS = "onceward_answers_total", Counter, Kept;
    /// The sizes of answers that are kept.
    ANSWER_BYTES = "onceward_answer_bytes", Histogram<Bytes>, Kept;
    /// What resolvers said about unknown outcomes.
    RESOLVER_ANSWERS = "onceward_resolver_answers_total", Counter, Resolved;
    /// Calls to the store by what it said.
    STORE_CALLS = "onceward_store_calls_total", Counter, (Call, Said);
    /// How long calls to the store took, failed ones included.
    STORE_CALL_DURATION = "onceward_store_call_duration_seconds", Histogram<Seconds>, Call;
    /// Records that were deleted because their time was over.
    SWEPT = "onceward_swept_records_total", Counter, ();
    /// Changes by one commit of the SQLite store.
    SQLITE_BATCH = "onceward_sqlite_commit_changes", Histogram<Number>, ();
    /// How long transactions of the SQLite store took, from asking for the lock to the commit.
    SQLITE_COMMIT_DURATION = "onceward_sqlite_commit_duration_seconds", Histogram<Seconds>, ();
    /// Changes that wait now for the SQLite store's writing thread.
    SQLITE_QUEUE = "onceward_sqlite_queue", Level, ();
    /// How long checkpoints of the SQLite store took.
    SQLITE_CHECKPOINT_DURATION = "onceward_sqlite_checkpoint_duration_seconds", Histogram<Seconds>, ();
    /// Bytes of SQLite's log that are not yet copied into the file.
    SQLITE_LOG_WAITING = "onceward_sqlite_log_waiting_bytes", Level, ();
    /// What operators did to operations.
    OPERATOR_CHANGES = "onceward_operator_changes_total", Counter, OperatorChange;
    /// Operations that are not ended, when somebody last looked.
    OPEN_OPERATIONS = "onceward_open_operations", Level, OpenState;
    /// The age of the oldest of them.
    OLDEST_OPEN = "onceward_oldest_open_seconds", Level, ();
    /// How far the store's clock is suspected to be ahead of real time.
    CLOCK_AHEAD = "onceward_clock_ahead_seconds", Level, ();
    /// The size of the store's file.
    STORE_FILE_BYTES = "onceward_store_file_bytes", Level, ();
    /// The size of the store's log.
    STORE_LOG_BYTES = "onceward_store_log_bytes", Level, ();
    /// What is free on the store's file system.
    STORE_FREE_BYTES = "onceward_store_free_bytes", Level, ();
}

metrics! { GATEWAY:
    /// Connections of clients that are open now.
    CONNECTIONS = "onceward_gateway_connections", Level, ();
    /// Connections that were closed at once because their client has its share.
    CONNECTIONS_REFUSED = "onceward_gateway_connections_refused_total", Counter, ();
    /// Streams of HTTP/2 whose client took nothing of its answer for too long.
    STREAMS_RESET = "onceward_gateway_streams_reset_total", Counter, ();
    /// Writes with a key that match no route.
    UNMATCHED = "onceward_gateway_unmatched_total", Counter, Unmatched;
    /// Requests that were passed on without a key.
    PASSED = "onceward_gateway_passed_total", Counter, ();
    /// How long the upstream took to begin its answers.
    UPSTREAM_DURATION = "onceward_gateway_upstream_duration_seconds", Histogram<Seconds>, UpstreamLane;
    /// Requests to the upstream that got no answer.
    UPSTREAM_FAILURES = "onceward_gateway_upstream_failures_total", Counter, (UpstreamLane, UpstreamFailure);
    /// Requests that were sent to the upstream, or were about to be when no connection could be made.
    UPSTREAM_ATTEMPTS = "onceward_gateway_upstream_attempts_total", Counter, SentAs;
    /// Second requests beside late ones by what became of them.
    UPSTREAM_HEDGES = "onceward_gateway_upstream_hedges_total", Counter, Hedged;
    /// Failed calls by why they were not tried again.
    UPSTREAM_GIVEN_UP = "onceward_gateway_upstream_given_up_total", Counter, StopLabel;
    /// Requests that were not sent to the upstream at all.
    REJECTED = "onceward_gateway_rejected_total", Counter, RejectReason;
    /// Answers that a route gave instead of the upstream.
    FALLBACKS = "onceward_gateway_fallbacks_total", Counter, ();
    /// Requests that are at the upstream now.
    UPSTREAM_IN_FLIGHT = "onceward_gateway_upstream_in_flight", Level, ();
    /// Requests that are at the upstream or whose answer is on its way.
    UPSTREAM_ANSWERS = "onceward_gateway_upstream_answers", Level, ();
    /// What is left to pay retries with, where it is least.
    RETRY_BUDGET = "onceward_gateway_retry_budget", Level, ();
    /// Breakers by what they let through.
    CIRCUITS = "onceward_gateway_circuits", Level, CircuitState;
    /// Configurations that were read again.
    RELOADS = "onceward_gateway_reloads_total", Counter, Reloaded;
    /// Lines of the log that were dropped because standard error was too slow.
    LOG_DROPPED = "onceward_gateway_log_dropped_total", Counter, ();
    /// Batches of spans that could not be exported.
    EXPORTS_FAILED = "onceward_gateway_trace_exports_failed_total", Counter, ();
    /// When the gateway started.
    START_TIME = "onceward_gateway_start_time_seconds", Level, ();
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
        StoredBody::Inline(bytes) => (Kept::Inline, Some(bytes.len() as u64)),
        StoredBody::Spooled { length, .. } => (Kept::Spooled, Some(*length)),
        StoredBody::Reference { .. } => (Kept::Reference, None),
        StoredBody::Unavailable => (Kept::No, None),
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
    said: impl FnOnce(&T) -> Said,
) {
    let said = match answer {
        Ok(answer) => said(answer),
        Err(StoreError::Unavailable(_)) => Said::Unavailable,
        Err(StoreError::Full(_)) => Said::Full,
        Err(StoreError::Newer(_)) => Said::Newer,
        Err(StoreError::Unusable(_)) => Said::Unusable,
        Err(_) => Said::Other,
    };
    STORE_CALLS.add((call, said));
    STORE_CALL_DURATION.since(call, begun);
}

/// The number of alarms, by their event.
const ALARMS_TOTAL: &str = "onceward_alarms_total";
/// One, with the version of the library.
const BUILD_INFO: &str = "onceward_build_info";

/// Says that this process is a gateway, so that [`prometheus`] shows what only a gateway has.
///
/// ```
/// onceward::telemetry::gateway_started();
/// assert!(onceward::telemetry::prometheus().contains("onceward_gateway_start_time_seconds "));
/// ```
pub fn gateway_started() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    START_TIME.set(now.as_secs().max(1));
}

/// Everything that was counted since this process started, in the text format of Prometheus.
///
/// ```
/// let text = onceward::telemetry::prometheus();
/// assert!(text.lines().any(|line| line == "onceward_alarms_total{event=\"store_full\"} 0"));
/// ```
#[must_use]
pub fn prometheus() -> String {
    let mut text = String::with_capacity(32 << 10);
    write_build_info(&mut text);
    write_alarms(&mut text);
    #[cfg(feature = "tower")]
    requests::write(&mut text);
    LIBRARY.iter().for_each(|metric| metric.write(&mut text));
    if CLIENT_ATTEMPTS.get(SentAs::First) > 0 {
        CLIENT.iter().for_each(|metric| metric.write(&mut text));
    }
    if START_TIME.get() > 0 {
        GATEWAY.iter().for_each(|metric| metric.write(&mut text));
    }
    text
}

/// The names of all metrics.
///
/// ```
/// assert!(onceward::telemetry::names().contains(&"onceward_claims_total"));
/// ```
#[must_use]
pub fn names() -> Vec<&'static str> {
    let families = LIBRARY.iter().chain(CLIENT).chain(GATEWAY).map(|metric| metric.name());
    #[cfg(feature = "tower")]
    let families = families.chain(requests::NAMES);
    families.chain([ALARMS_TOTAL, BUILD_INFO]).collect()
}

fn write_build_info(text: &mut String) {
    text::write_head(text, BUILD_INFO, "gauge", "One, with the version of the library.");
    let mut version = String::new();
    text::write_label(&mut version, "version", env!("CARGO_PKG_VERSION"));
    text::write_sample(text, BUILD_INFO, &version, 1);
}

fn write_alarms(text: &mut String) {
    let about = "What a person must look at: error events of these names.";
    text::write_head(text, ALARMS_TOTAL, "counter", about);
    for alarm in ALARMS {
        let mut event = String::new();
        text::write_label(&mut event, "event", alarm.event());
        text::write_sample(text, ALARMS_TOTAL, &event, alarm.count());
    }
}
