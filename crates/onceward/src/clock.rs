//! Where a store without a clock of its own takes its time from.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use onceward_core::{StoreError, Timestamp};

use crate::telemetry;

/// How far wall and monotonic time may disagree before nothing is swept any more.
///
/// Time servers correct by milliseconds and leap seconds by one; a minute is somebody's hand.
pub const MAX_DISAGREEMENT: Duration = Duration::from_secs(60);

/// The clock of an embedded store.
pub trait Clock: Send + Sync + 'static {
    /// The time by which leases and retentions are counted.
    fn now(&self) -> Timestamp;

    /// How far this clock has moved differently from real time since the process started.
    fn disagreement(&self) -> Duration;
}

/// Whether a store may sweep by this clock; if it was set, everything might look old.
pub(crate) fn check_for_sweep(clock: &dyn Clock) -> Result<(), StoreError> {
    let disagreement = clock.disagreement();
    if disagreement <= MAX_DISAGREEMENT {
        return Ok(());
    }
    let detail = format!(
        "the clock has moved {disagreement:?} away from real time since this process started; \
         nothing is swept: correct the clock, then restart the process"
    );
    telemetry::CLOCK_JUMPED.raise(&detail);
    Err(StoreError::Unusable(detail))
}

/// The host's wall clock, watched by its monotonic one.
///
/// ```
/// use onceward::clock::{Clock, HostClock};
///
/// let clock = HostClock::default();
/// assert!(clock.now().unix_micros() > 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    wall: Timestamp,
    monotonic: Instant,
}

impl Default for HostClock {
    fn default() -> Self {
        Self { wall: wall(), monotonic: Instant::now() }
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        wall()
    }

    fn disagreement(&self) -> Duration {
        let expected = self.wall.plus(self.monotonic.elapsed());
        let now = wall();
        now.since(expected).max(expected.since(now))
    }
}

fn wall() -> Timestamp {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_unix_micros(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    })
}

/// A clock that moves only when told to, for tests and simulations.
///
/// ```
/// use std::time::Duration;
/// use onceward::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(before), Duration::from_secs(5));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
    jumped_micros: AtomicI64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { micros: AtomicI64::new(1_700_000_000_000_000), jumped_micros: AtomicI64::new(0) }
    }
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the clock forwards or backwards without time passing.
    pub fn jump_micros(&self, micros: i64) {
        self.micros.fetch_add(micros, Ordering::SeqCst);
        self.jumped_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.micros.load(Ordering::SeqCst))
    }

    fn disagreement(&self) -> Duration {
        Duration::from_micros(self.jumped_micros.load(Ordering::SeqCst).unsigned_abs())
    }
}
