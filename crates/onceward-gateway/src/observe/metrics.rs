//! What only the gateway counts; the rest is in `onceward::telemetry`, which shows all of it.

use std::time::{SystemTime, UNIX_EPOCH};

use onceward::retry::{Circuit, StopReason};
use onceward::telemetry::{
    Counters, Histograms, Levels, RejectReason, SECONDS, SentAs, labels, metrics,
};

// What the values mean is in docs/metrics.md.
labels! {
    pub(crate) enum OpenState: "state" {
        InProgress = "in_progress", Interrupted = "interrupted", Unknown = "unknown",
    }

    pub(crate) enum OperatorChange: "action" {
        Resolve = "resolve", Release = "release", Purge = "purge", TrustClock = "trust_clock",
        Redrive = "redrive", Discard = "discard", RemoveSink = "remove_sink",
    }

    pub(crate) enum Unmatched: "result" { Passed = "passed", Refused = "refused" }

    pub(crate) enum UpstreamLane: "lane" { Keyed = "keyed", Other = "other", Asked = "asked" }

    /// Why the upstream gave no answer.
    pub(crate) enum UpstreamFailure: "kind" {
        /// No connection, so nothing was sent.
        Connect = "connect",
        /// Its claim had no time left before it could be sent, so nothing was.
        Late = "late",
        TimedOut = "timed_out",
        /// The upstream said that it did not look at the request.
        Disowned = "disowned",
        /// The connection broke off after the request was sent.
        Broken = "broken",
        /// The request cannot be sent at all.
        Malformed = "malformed",
    }

    pub(crate) enum Hedged: "result" { Won = "won", Lost = "lost", Failed = "failed" }

    pub(crate) enum Reloaded: "result" { Ok = "ok", Refused = "refused" }
}

metrics! { show:
    /// What operators did to operations.
    OPERATOR_CHANGES: Counters<OperatorChange> = "onceward_operator_changes_total";
    /// Operations that have not ended, at the last look into the store.
    OPEN_OPERATIONS: Levels<OpenState> = "onceward_open_operations";
    /// The age of the oldest of them.
    OLDEST_OPEN: Levels = "onceward_oldest_open_seconds";
    /// The size of the store's file.
    STORE_FILE_BYTES: Levels = "onceward_store_file_bytes";
    /// The size of the store's log.
    STORE_LOG_BYTES: Levels = "onceward_store_log_bytes";
    /// What is free on the store's file system.
    STORE_FREE_BYTES: Levels = "onceward_store_free_bytes";
    /// Connections of clients that are open now.
    CONNECTIONS: Levels = "onceward_gateway_connections";
    /// Connections that were closed at once because their client has its share.
    CONNECTIONS_REFUSED: Counters = "onceward_gateway_connections_refused_total";
    /// Connections that were upgraded, as to a WebSocket, and are open now.
    TUNNELS: Levels = "onceward_gateway_tunnels";
    /// Streams of HTTP/2 whose client took nothing of its answer for too long.
    STREAMS_RESET: Counters = "onceward_gateway_streams_reset_total";
    /// Writes with a key that match no route.
    UNMATCHED: Counters<Unmatched> = "onceward_gateway_unmatched_total";
    /// Requests that were passed on without a key.
    PASSED: Counters = "onceward_gateway_passed_total";
    /// How long the upstream took to begin its answers.
    UPSTREAM_DURATION: Histograms<UpstreamLane> = "onceward_gateway_upstream_duration_seconds", SECONDS;
    /// Requests to the upstream that got no answer.
    UPSTREAM_FAILURES: Counters<(UpstreamLane, UpstreamFailure)> = "onceward_gateway_upstream_failures_total";
    /// Requests that were sent to the upstream, or were about to be when no connection could be made.
    UPSTREAM_ATTEMPTS: Counters<SentAs> = "onceward_gateway_upstream_attempts_total";
    /// Second requests beside late ones by what became of them.
    UPSTREAM_HEDGES: Counters<Hedged> = "onceward_gateway_upstream_hedges_total";
    /// Failed calls by why they were not tried again.
    UPSTREAM_GIVEN_UP: Counters<StopReason> = "onceward_gateway_upstream_given_up_total";
    /// Requests that were not sent to the upstream at all.
    REJECTED: Counters<RejectReason> = "onceward_gateway_rejected_total";
    /// Answers that a route gave instead of the upstream.
    FALLBACKS: Counters = "onceward_gateway_fallbacks_total";
    /// Requests that are at the upstream now.
    UPSTREAM_IN_FLIGHT: Levels = "onceward_gateway_upstream_in_flight";
    /// Requests that are at the upstream or whose answer is on its way.
    UPSTREAM_ANSWERS: Levels = "onceward_gateway_upstream_answers";
    /// What is left to pay retries with, where it is least.
    RETRY_BUDGET: Levels = "onceward_gateway_retry_budget";
    /// Breakers by what they let through.
    CIRCUITS: Levels<Circuit> = "onceward_gateway_circuits";
    /// Configurations that were read again.
    RELOADS: Counters<Reloaded> = "onceward_gateway_reloads_total";
    /// Lines of the log that were dropped because standard error was too slow.
    LOG_DROPPED: Counters = "onceward_gateway_log_dropped_total";
    /// Batches of spans that could not be exported.
    EXPORTS_FAILED: Counters = "onceward_gateway_trace_exports_failed_total";
    /// When the gateway started.
    START_TIME: Levels = "onceward_gateway_start_time_seconds";
}

/// Shows the gateway's metrics from now on, and when it started.
pub(super) fn start() {
    show();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    START_TIME.set(now.as_secs().max(1));
}
