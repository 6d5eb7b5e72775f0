//! The built-in defaults and the bounds of every option, each with its reason.

use std::time::Duration;

use onceward::{
    Engine,
    outbox::Relay,
    server::{Errors, Idempotency, IdempotencyBuilder},
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Where the library ends: longer than any dispute about a payment.
const TEN_YEARS: Duration = Duration::from_secs(3653 * 24 * 3600);

/// The smallest and the largest value that is allowed.
pub(crate) struct Bounds<T> {
    pub(crate) least: T,
    pub(crate) most: T,
}

/// A shorter lease is over before it can be renewed; a longer one blocks a key for too long.
pub(crate) const LEASE: Bounds<Duration> = Bounds { least: Duration::from_millis(100), most: DAY };
/// The smallest is the lease of the route, which is checked with it.
pub(crate) const MAX_RUN: Bounds<Duration> = Bounds { least: LEASE.least, most: DAY };
/// Less than a second is forgotten before a retry can come; more than ten years is "for ever".
pub(crate) const RETAIN: Bounds<Duration> = Bounds { least: SECOND, most: TEN_YEARS };
pub(crate) const UNKNOWN_RETAIN: Bounds<Duration> = RETAIN;
pub(crate) const RERUN_WITHIN: Bounds<Duration> = RETAIN;
pub(crate) const RETRY_WINDOW: Bounds<Duration> = Bounds { least: Duration::ZERO, most: TEN_YEARS };
/// No network answers faster; no client waits for a day.
pub(crate) const TIMEOUT: Bounds<Duration> = Bounds { least: Duration::from_millis(10), most: DAY };
/// A waiting request holds a connection, so the library bounds it.
pub(crate) const WAIT: Bounds<Duration> =
    Bounds { least: Duration::ZERO, most: IdempotencyBuilder::MAX_WAIT };
/// One body may take at most a quarter of the memory that all of them share.
pub(crate) const BODY: Bounds<usize> = Bounds { least: 1, most: Idempotency::MAX_BUFFERED / 4 };

/// Faster clients than these are not to be expected; 0 is no floor.
pub(crate) const BODY_RATE: Bounds<usize> = Bounds { least: 0, most: 1 << 20 };
/// Slower than any modem; a body that comes so slowly only holds what others need.
pub(crate) const DEFAULT_BODY_RATE: usize = 500;
/// In less than a second a network may pause; an hour is longer than any client reads.
pub(crate) const CLIENT_TIMEOUT: Bounds<Duration> =
    Bounds { least: SECOND, most: Duration::from_secs(3600) };
/// As long as other servers wait.
pub(crate) const DEFAULT_CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// A shorter silence is no sign of anything; after a day no client comes back.
pub(crate) const UPGRADE_IDLE: Bounds<Duration> = Bounds { least: SECOND, most: DAY };
/// Longer than either end of a WebSocket waits between its pings.
pub(crate) const DEFAULT_UPGRADE_IDLE: Duration = Duration::from_secs(3600);
/// Each takes a connection to the upstream, and about a third of a MiB: docs/adr/0029.
pub(crate) const ANSWERS: Bounds<usize> = Bounds { least: 1, most: 32_768 };
/// Twice as many as may be at the upstream.
pub(crate) const DEFAULT_ANSWERS: usize = 2048;
/// One client leaves the other half to all others.
pub(crate) const DEFAULT_PEER_SHARE: f64 = 0.5;

/// None would refuse everything; more than may run in all is no limit.
pub(crate) const MAX_OPEN: Bounds<usize> = Bounds { least: 1, most: Engine::MAX_UNSETTLED };

/// None is a choice: then each outcome without an answer stays unknown until an operator ends it.
pub(crate) const MAX_LATE: Bounds<usize> = Bounds { least: 0, most: Engine::MAX_UNSETTLED };

/// One must be possible; more than a million connections no machine has.
pub(crate) const LIMIT: Bounds<usize> = Bounds { least: 1, most: 1_000_000 };
/// More than these are no retries but an attack.
pub(crate) const ATTEMPTS: Bounds<usize> = Bounds { least: 1, most: 20 };
/// Less than a fifth of all that comes are retries, unless something is wrong: rule 27.
pub(crate) const DEFAULT_RETRY_SHARE: f64 = IdempotencyBuilder::DEFAULT_RETRY_SHARE;

/// What is kept for less than a minute is gone before an operator looks; ten years are "for ever".
pub(crate) const MESSAGE_RETAIN: Bounds<Duration> =
    Bounds { least: Duration::from_secs(60), most: TEN_YEARS };
/// The library says why.
pub(crate) const RELAY_LEASE: Bounds<Duration> =
    Bounds { least: Relay::MIN_LEASE, most: Relay::MAX_LEASE };
/// None is a choice; no init system waits for longer than an hour.
pub(crate) const DRAIN: Bounds<Duration> =
    Bounds { least: Duration::ZERO, most: Duration::from_secs(3600) };
/// One must be possible; each holds a connection and a file descriptor.
pub(crate) const SINK_IN_FLIGHT: Bounds<usize> = Bounds { least: 1, most: 4096 };
/// As many as the library sends to one sink at once.
pub(crate) const DEFAULT_SINK_IN_FLIGHT: usize = 64;
/// After a thousand attempts a person has to look.
pub(crate) const DELIVERY_ATTEMPTS: Bounds<usize> = Bounds { least: 1, most: 1000 };
pub(crate) const DEFAULT_DELIVERY_ATTEMPTS: usize = 20;
pub(crate) const DEFAULT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait before another attempt.
pub(crate) const MAX_WAIT: Bounds<Duration> = Bounds { least: SECOND, most: DAY };
pub(crate) const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(3 * 3600);
/// From a second before the second attempt up to an hour before the last.
pub(crate) const DEFAULT_DELIVERY_BACKOFF: (Duration, Duration) =
    (SECOND, Duration::from_secs(3600));

/// Only this machine can reach it: a listener that is open to others is a choice.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
pub(crate) const DEFAULT_STORE: &str = "sqlite://onceward.db";
/// Everything that may change something and usually has a key (rule 3).
pub(crate) const DEFAULT_MATCH: &str = "POST,PATCH /{*rest}";

pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_WAIT: Duration = IdempotencyBuilder::DEFAULT_WAIT;
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Longer, because its first renewal comes late: a renewal is in the way of the service's transaction.
pub(crate) const TRANSACTIONAL_LEASE: Duration = Duration::from_secs(60);
/// Or the lease, if that is longer.
pub(crate) const DEFAULT_MAX_RUN: Duration = Duration::from_secs(10 * 60);
pub(crate) const DEFAULT_RETAIN: Duration = DAY;
pub(crate) const DEFAULT_MAX_REQUEST: usize = IdempotencyBuilder::DEFAULT_MAX_REQUEST;
pub(crate) const DEFAULT_MAX_RESPONSE: usize = IdempotencyBuilder::DEFAULT_MAX_RESPONSE;

/// What is kept in the record itself (rule 18): larger answers are spooled.
pub(crate) const MAX_INLINE: usize = IdempotencyBuilder::DEFAULT_MAX_INLINE;
/// A thousand keys: no operator has so many.
pub(crate) const MAX_KEY_FILE_BYTES: u64 = 64 << 10;
/// No configuration is longer; a wrong file is noticed before it fills the memory.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The status for a key that was used for something else; Stripe's SDKs know 400.
pub(crate) fn mismatch(errors: Errors) -> u16 {
    match errors {
        Errors::Problem => 422,
        Errors::Stripe => 400,
    }
}
