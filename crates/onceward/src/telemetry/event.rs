//! The names of events in logs, in their field `event`; those of alarms are with the alarms.
//!
//! The other fields: `operation` (the reference of an operation, which is a digest), `route`,
//! `result`, `status`, `attempt`, `duration_ms`, `error`. No key, header, body, query or scope is ever
//! logged.

/// The target of [`REQUEST`], for filters: `ONCEWARD_LOG=warn,onceward::request=info`.
pub const REQUEST_TARGET: &str = "onceward::request";
/// A request with a key got its answer.
pub const REQUEST: &str = "request";
/// The store failed, and a settlement is tried again.
pub const SETTLEMENT_RETRIED: &str = "settlement_retried";
/// It is not known whether a handler's transaction was committed.
pub const COMMIT_DOUBTFUL: &str = "commit_doubtful";
/// An operation did not end in its handler's transaction.
pub const NOT_COMMITTED: &str = "not_committed";
/// A transaction could not be rolled back.
pub const NOT_ROLLED_BACK: &str = "not_rolled_back";
/// A claim was not renewed, and it is tried again.
pub const NOT_RENEWED: &str = "not_renewed";
/// Another execution took over before this one was at its end.
pub const LEASE_LOST: &str = "lease_lost";
/// A request was refused because the store does not answer.
pub const STORE_FAILED: &str = "store_failed";
/// A service was not ready, or failed without an answer.
pub const SERVICE_FAILED: &str = "service_failed";
/// An answer came when its outcome counted as unknown already, and settled it.
pub const LATE_ANSWER: &str = "late_answer";
/// A large answer could not be kept.
pub const ANSWER_NOT_KEPT: &str = "answer_not_kept";
/// An answer could not be read or made again.
pub const ANSWER_NOT_READ: &str = "answer_not_read";
/// A resolver failed, did not answer, or said what the record does not take.
pub const NOT_RESOLVED: &str = "not_resolved";
/// The store's clock is trusted again.
pub const CLOCK_TRUSTED: &str = "clock_trusted";
/// Nothing was swept.
pub const NOT_SWEPT: &str = "not_swept";
/// A part of the SQLite store failed, and it is tried again.
pub const SQLITE_TROUBLE: &str = "sqlite_trouble";
/// Records are kept in memory only.
pub const NOT_DURABLE: &str = "not_durable";
/// Two layers have the same operation name.
pub const NAME_SHARED: &str = "name_shared";
/// A request has no scope.
pub const SCOPE_MISSING: &str = "scope_missing";

/// A request came to the gateway.
pub const RECEIVED: &str = "received";
/// A client showed a certificate that was verified.
pub const CERTIFICATE_SHOWN: &str = "certificate_shown";
/// A route keeps its records under other names than before, or would.
pub const IDENTITY_CHANGED: &str = "identity_changed";
/// Live records belong to no route of the configuration.
pub const ROUTE_UNCOVERED: &str = "route_uncovered";
/// The upstream gave no answer.
pub const UPSTREAM_FAILED: &str = "upstream_failed";
/// No service says whether a client may see a replay.
pub const AUTHORIZE_FAILED: &str = "authorize_failed";
/// The public keys for tokens could not be read again.
pub const KEYS_NOT_READ: &str = "keys_not_read";
/// A connection could not be accepted, ended with an error, or did not end in time.
pub const CONNECTION_FAILED: &str = "connection_failed";
/// Lines of the log were dropped because standard error was too slow.
pub const LOG_DROPPED: &str = "log_dropped";
/// Spans could not be exported.
pub const EXPORT_FAILED: &str = "export_failed";
/// An operator changed an operation.
pub const OPERATOR_CHANGE: &str = "operator_change";
/// An operator had no token, or one whose role is too small.
pub const OPERATOR_REFUSED: &str = "operator_refused";
/// An execution ended, and the gateway does not know whether it had its effect.
pub const OUTCOME_UNKNOWN: &str = "outcome_unknown";
/// What a gateway says when it starts, stops or reads its configuration again.
pub const NOTICE: &str = "notice";

/// The outbox does not answer a relay, or fails, and is asked again.
pub const OUTBOX_TROUBLE: &str = "outbox_trouble";
/// The outbox may be relayed again.
pub const OUTBOX_GOES_ON: &str = "outbox_goes_on";
/// A sink is down, or its breaker is open: nothing is sent to it for a while.
pub const SINK_DOWN: &str = "sink_down";
/// A sink takes messages again.
pub const SINK_UP: &str = "sink_up";
/// A relay made an attempt to deliver a message.
pub const DELIVERY: &str = "delivery";
/// A message became a dead letter, or is held.
pub const DELIVERY_GIVEN_UP: &str = "delivery_given_up";
/// A lane is another relay's now.
pub const LANE_LOST: &str = "lane_lost";
