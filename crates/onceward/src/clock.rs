//! Where stores take their time from, and what watches it.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onceward_core::{StoreError, Timestamp};

use crate::telemetry::{self, event};

/// How far wall time and a clock that no operator sets may disagree before what has expired is doubted, and
/// nothing is swept any more.
///
/// Time servers correct by milliseconds and leap seconds by one; a minute is an operator's hand.
pub const MAX_DISAGREEMENT: Duration = Duration::from_secs(60);

const MAX_DISAGREEMENT_MICROS: i64 = MAX_DISAGREEMENT.as_micros() as i64;

/// The clocks of a process: of an embedded store both count, of one with a server only the second.
///
/// ```
/// use onceward::{clock::{Clock, HostClock}, protocol::Timestamp};
/// use std::time::Duration;
///
/// /// A host in a test laboratory that lives an hour ahead.
/// struct Ahead(HostClock);
///
/// impl Clock for Ahead {
///     fn now(&self) -> Timestamp {
///         self.0.now().plus(Duration::from_secs(3600))
///     }
///     fn steady(&self) -> Duration {
///         self.0.steady()
///     }
/// }
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The time by which leases and retentions are counted.
    fn now(&self) -> Timestamp;

    /// A time that no operator sets and that runs on while the machine sleeps, since any beginning.
    fn steady(&self) -> Duration;
}

/// The host's wall clock, and beside it the one that counts since the machine started.
///
/// On Linux that is `CLOCK_BOOTTIME`. Elsewhere it is what [`Instant`](std::time::Instant) counts, which
/// may stand still while the machine sleeps: then a long sleep looks like a jump.
///
/// ```
/// use onceward::clock::{Clock, HostClock};
///
/// let clock = HostClock::default();
/// assert!(clock.now().unix_micros() > 0);
/// assert!(clock.steady() <= clock.steady());
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_unix_micros(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        })
    }

    #[cfg(all(
        target_os = "linux",
        any(feature = "sqlite", feature = "postgres", feature = "redis")
    ))]
    fn steady(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
    }

    #[cfg(not(all(
        target_os = "linux",
        any(feature = "sqlite", feature = "postgres", feature = "redis")
    )))]
    fn steady(&self) -> Duration {
        static BEGINNING: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGINNING.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// A clock that moves only by its caller, for tests and simulations.
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

/// What a [`ManualClock`] shows first; its steady time is the same until it jumps.
const MANUAL_START_MICROS: i64 = 1_700_000_000_000_000;

impl Default for ManualClock {
    fn default() -> Self {
        Self { micros: AtomicI64::new(MANUAL_START_MICROS), jumped_micros: AtomicI64::new(0) }
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

    fn steady(&self) -> Duration {
        let micros = self.micros.load(Ordering::SeqCst) - self.jumped_micros.load(Ordering::SeqCst);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }
}

/// What is suspected of the clock by which a store counts.
///
/// ```
/// use onceward::{clock::ManualClock, store::memory::MemoryStore};
/// use std::sync::Arc;
///
/// let clock = Arc::new(ManualClock::default());
/// let store = MemoryStore::not_durable_with_clock(clock.clone());
/// clock.jump_micros(3600 * 1_000_000);
/// let suspicion = store.clock_suspicion().expect("an hour is no correction");
/// assert_eq!(suspicion.ahead.as_secs(), 3600);
/// store.trust_clock();
/// assert_eq!(store.clock_suspicion(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// How far it went further than real time, since this process began to watch it or an operator last said to
    /// trust it.
    pub ahead: Duration,
}

/// Compares the clock of a store with one that no operator sets.
///
/// What it trusted first, or an operator made it trust, counts: so the time before this process is not judged.
pub(crate) struct Watch {
    clock: Arc<dyn Clock>,
    offsets: Mutex<Offsets>,
}

/// By how many microseconds the store's clock is before the steady one; only how that changes matters.
#[derive(Default)]
struct Offsets {
    trusted: Option<i64>,
    latest: i64,
    /// How far it went ahead at once when it last did; 0 if it has crept as far or gone back since.
    step: i64,
    crept: i64,
}

impl Offsets {
    fn show(&mut self, offset: i64) {
        let moved = self.trusted.map_or(0, |_| offset.saturating_sub(self.latest));
        if moved > MAX_DISAGREEMENT_MICROS {
            (self.step, self.crept) = (moved, 0);
        } else if moved >= -MAX_DISAGREEMENT_MICROS {
            // Answers of a server take now more and now less time.
            self.crept = self.crept.saturating_add(moved).max(0);
        } else {
            (self.step, self.crept) = (0, 0);
        }
        if self.crept > MAX_DISAGREEMENT_MICROS {
            (self.step, self.crept) = (0, 0);
        }
        self.latest = offset;
        self.trusted.get_or_insert(offset);
    }

    /// How far it went ahead; negative: it went back.
    fn apart(&self) -> i64 {
        self.trusted.map_or(0, |trusted| self.latest.saturating_sub(trusted))
    }
}

impl Watch {
    /// Watches a clock from its first [`observe`](Self::observe) on.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, offsets: Mutex::default() }
    }

    /// Watches the clock of this host from now on.
    pub(crate) fn started(clock: Arc<dyn Clock>) -> Self {
        let watch = Self::new(clock);
        watch.look();
        watch
    }

    /// Reads the clock of this host.
    pub(crate) fn look(&self) -> Option<Suspicion> {
        self.observe(self.clock.now())
    }

    /// Takes what the store's clock has just shown.
    pub(crate) fn observe(&self, shown: Timestamp) -> Option<Suspicion> {
        let steady = i64::try_from(self.clock.steady().as_micros()).unwrap_or(i64::MAX);
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let before = suspicion(offsets.apart());
        offsets.show(shown.unix_micros().saturating_sub(steady));
        let now = suspicion(offsets.apart());
        drop(offsets);
        match (before, now) {
            (None, Some(Suspicion { ahead })) => telemetry::CLOCK_JUMPED.raise(complaint(ahead)),
            (Some(_), None) => {
                tracing::warn!(
                    event = event::CLOCK_TRUSTED,
                    "the clock is back; it is trusted again"
                );
            }
            _ => {}
        }
        telemetry::CLOCK_AHEAD.set(now.map_or(0, |suspicion| suspicion.ahead.as_secs()));
        now
    }

    /// How far ahead the clock is that has just shown this: with its last jump alone, and at most. What was
    /// written less than the last jump ago was written after all of them.
    pub(crate) fn ahead(&self, shown: Timestamp) -> RangeInclusive<Duration> {
        // Answers of a server take their time, and below a minute nothing is suspected.
        let Some(Suspicion { ahead }) = self.observe(shown) else {
            return Duration::ZERO..=Duration::ZERO;
        };
        let step = self.offsets.lock().unwrap_or_else(PoisonError::into_inner).step;
        let last = ahead.min(Duration::from_micros(u64::try_from(step).unwrap_or_default()));
        last.saturating_sub(MAX_DISAGREEMENT)..=ahead.saturating_add(MAX_DISAGREEMENT)
    }

    /// An operator's word: what the clock showed last is right. Returns what was suspected.
    pub(crate) fn trust(&self) -> Option<Suspicion> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let suspected = suspicion(offsets.apart());
        offsets.trusted = Some(offsets.latest);
        telemetry::CLOCK_AHEAD.set(0);
        suspected
    }

    /// Whether a store may sweep by what was observed last: if the clock was set, forwards or back, nothing
    /// is deleted by it.
    pub(crate) fn check_for_sweep(&self) -> Result<(), StoreError> {
        let apart = self.offsets.lock().unwrap_or_else(PoisonError::into_inner).apart();
        let disagreement = Duration::from_micros(apart.unsigned_abs());
        if disagreement <= MAX_DISAGREEMENT {
            return Ok(());
        }
        let detail = match suspicion(apart) {
            Some(Suspicion { ahead }) => complaint(ahead),
            None => format!(
                "the clock of the store went back by {disagreement:?} while this process runs; nothing is \
                 swept: set it right, or start the process anew"
            ),
        };
        telemetry::CLOCK_JUMPED.raise(&detail);
        Err(StoreError::Unusable(detail))
    }
}

/// For how long a process believes another one's suspicion, on either side of now: that one writes it
/// once a minute, and a clock that is back shows it as the future.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) const SUSPICION_HOLDS: Duration = Duration::from_secs(300);

/// Why a process that trusts its clock does not sweep: what it deletes, the others would run again.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) fn suspected_elsewhere() -> StoreError {
    StoreError::Unusable(
        "another process on this store suspects the clock, so that nothing is swept: set the clock right; or, \
         if it is right now, say so to that process or start it anew"
            .to_owned(),
    )
}

fn suspicion(apart_micros: i64) -> Option<Suspicion> {
    let ahead = Duration::from_micros(u64::try_from(apart_micros).unwrap_or_default());
    (ahead > MAX_DISAGREEMENT).then_some(Suspicion { ahead })
}

fn complaint(ahead: Duration) -> String {
    format!(
        "the clock of the store went {ahead:?} further than real time while this process runs; keys whose \
         time is over only by that are refused, and nothing is swept: set the clock right; or, if it is \
         right now, run `onceward doctor --clock-is-right --reason …`, or start the process anew"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    #[test]
    fn a_jump_is_suspected_until_the_clock_is_back_or_somebody_trusts_it() {
        let clock = Arc::new(ManualClock::default());
        let watch = Watch::started(clock.clone());
        clock.advance(Duration::from_secs(1_000_000));
        clock.jump_micros(MINUTE);
        assert_eq!(watch.look(), None, "time that passes is no jump, nor is a minute");
        clock.jump_micros(1_000_000);
        assert_eq!(watch.look(), Some(Suspicion { ahead: Duration::from_secs(61) }));
        let seconds = Duration::from_secs;
        assert_eq!(watch.ahead(clock.now()), seconds(0)..=seconds(121), "in two small steps");
        clock.jump_micros(5 * MINUTE);
        assert_eq!(watch.ahead(clock.now()), seconds(240)..=seconds(421), "the last jump counts");
        clock.jump_micros(-5 * MINUTE);
        assert_eq!(watch.ahead(clock.now()), seconds(0)..=seconds(121), "it went back");
        for _ in 0..70 {
            clock.jump_micros(1_000_000);
            watch.look();
        }
        assert_eq!(watch.ahead(clock.now()), seconds(0)..=seconds(191), "it may also creep");
        clock.jump_micros(-71_000_000);
        assert_eq!(watch.look(), None, "it is back");
        clock.jump_micros(10 * MINUTE);
        assert!(watch.look().is_some() && watch.check_for_sweep().is_err());
        assert_eq!(watch.trust().unwrap().ahead, Duration::from_secs(660));
        assert!(watch.look().is_none() && watch.check_for_sweep().is_ok());
        clock.jump_micros(-10 * MINUTE);
        assert_eq!(watch.look(), None, "a clock that goes back makes nothing expire");
        assert!(watch.check_for_sweep().is_err(), "but it is not swept by");
    }

    #[test]
    fn the_clock_of_a_server_is_trusted_as_it_is_first_seen() {
        let clock = Arc::new(ManualClock::default());
        let watch = Watch::new(clock.clone());
        let hour = Duration::from_secs(3600);
        assert_eq!(watch.observe(clock.now().plus(hour)), None);
        assert_eq!(watch.observe(clock.now()), None);
        assert_eq!(watch.observe(clock.now().plus(hour * 2)), Some(Suspicion { ahead: hour }));
    }
}
