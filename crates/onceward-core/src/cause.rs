//! Why the outcome of an operation is unknown.

use core::{fmt, time::Duration};

use crate::{Effect, State, Status, Stored, Timestamp};

/// Why the outcome of an operation is unknown.
///
/// Clients and operators read its text; it decides nothing but how long a duplicate waits for an answer
/// that may still come, see [`Stored::answer_awaited`].
///
/// ```
/// use core::time::Duration;
/// use onceward_core::Cause;
///
/// let cause = Cause::NoAnswer { within: Duration::from_secs(30), awaited_until: None };
/// assert_eq!(cause.to_string(), "no answer in 30 s");
/// assert_eq!(Cause::Answered(504).to_string(), "upstream answered 504");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The service answered with a status that does not say whether the effect happened.
    Answered(u16),
    /// The service gave no complete answer in time.
    NoAnswer {
        /// How long the owner waited.
        within: Duration,
        /// Until when, by the store's clock, the owner still takes a late answer.
        awaited_until: Option<Timestamp>,
    },
    /// The connection was lost after the request was sent, perhaps in part.
    ConnectionLost,
    /// The service ended without an answer: it failed or panicked.
    ServiceFailed,
    /// The service or its route asks to hold the outcome of an answer with this status.
    Held(u16),
    /// The owner vanished; it last wrote to the record at this time.
    OwnerVanished {
        /// By the store's clock.
        at: Timestamp,
    },
    /// The operation failed, and the service may have forgotten its key: another run could double it.
    TooOldToRepeat,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => write!(formatter, "upstream answered {status}"),
            Self::NoAnswer { within, .. } => {
                write!(formatter, "no answer in {} s", within.as_millis() as f64 / 1000.0)
            }
            Self::ConnectionLost => {
                formatter.write_str("connection lost after the request was sent")
            }
            Self::ServiceFailed => formatter.write_str("the service failed without an answer"),
            Self::Held(status) => write!(formatter, "held by policy after an answer with {status}"),
            Self::OwnerVanished { .. } => formatter.write_str("owner vanished"),
            Self::TooOldToRepeat => formatter.write_str("failed too long ago to be repeated"),
        }
    }
}

impl Stored {
    /// Why the outcome is unknown; `None`: it is not, or the software that wrote the record did not say.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        if self.status() != Status::Unknown {
            return None;
        }
        match self.record.state {
            State::InProgress => Some(Cause::OwnerVanished { at: self.updated_at }),
            State::FailedRetryable => Some(Cause::TooOldToRepeat),
            _ => self.record.cause,
        }
    }

    /// How long the owner of an unknown outcome still takes a late answer: duplicates wait for it as they
    /// wait for one that runs.
    ///
    /// ```
    /// use onceward_core::Stored;
    ///
    /// fn is_worth_waiting_for(stored: &Stored) -> bool {
    ///     stored.answer_awaited().is_some()
    /// }
    /// ```
    #[must_use]
    pub fn answer_awaited(&self) -> Option<Duration> {
        let Some(Cause::NoAnswer { awaited_until: Some(until), .. }) = self.cause() else {
            return None;
        };
        let is_external = self.record.effect == Effect::External;
        Some(until.since(self.read_at)).filter(|left| is_external && !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Admission, Execution, Fence, Fingerprint, Key, OperationId, OperationName, Record, Request,
        Scope, Started, Terms, Ttl,
    };

    fn time(second: i64) -> Timestamp {
        Timestamp::from_unix_micros(second * 1_000_000)
    }

    /// Claimed at second 0, last written at 10.
    fn stored(effect: Effect, state: State, cause: Option<Cause>, read_at: i64) -> Stored {
        let name = OperationName::new("pay").unwrap();
        let operation = OperationId::new(Scope::global(), name, Key::new("k").unwrap());
        let terms = Terms::of(effect).build().unwrap();
        let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
        let (fence, execution) = (Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
        let admission =
            Admission::new(Request { operation, fingerprints, terms }, fence, execution);
        let ttl = if state == State::InProgress { Ttl::For(Duration::ZERO) } else { Ttl::Never };
        let next = admission.change().next.clone();
        let record = Record { state, cause, ttl, started: Started::At(time(0)), ..next };
        Stored { record, updated_at: time(10), read_at: time(read_at), suspect: false }
    }

    fn late(until: i64) -> Option<Cause> {
        let within = Duration::from_millis(2500);
        Some(Cause::NoAnswer { within, awaited_until: Some(time(until)) })
    }

    #[test]
    fn an_abandoned_claim_says_when_its_owner_was_last_seen() {
        let vanished = stored(Effect::External, State::InProgress, None, 50);
        assert_eq!(vanished.cause(), Some(Cause::OwnerVanished { at: time(10) }));
        let repeatable = Effect::Repeatable { within: Duration::from_secs(20) };
        let young = stored(repeatable, State::FailedRetryable, None, 15);
        let old = stored(repeatable, State::FailedRetryable, None, 50);
        assert_eq!((young.cause(), old.cause()), (None, Some(Cause::TooOldToRepeat)));
    }

    #[test]
    fn only_an_unknown_outcome_has_a_cause() {
        let unknown = stored(Effect::External, State::Unknown, Some(Cause::ConnectionLost), 50);
        assert_eq!(unknown.cause(), Some(Cause::ConnectionLost));
        let released = stored(Effect::External, State::Released, Some(Cause::ConnectionLost), 50);
        assert_eq!(released.cause(), None);
        assert_eq!(stored(Effect::External, State::Unknown, None, 50).cause(), None);
    }

    #[test]
    fn a_late_answer_is_awaited_until_the_owner_has_no_time_left() {
        let left =
            |read_at, effect, state| stored(effect, state, late(60), read_at).answer_awaited();
        let second = Duration::from_secs(1);
        assert_eq!(left(59, Effect::External, State::Unknown), Some(second));
        assert_eq!(left(60, Effect::External, State::Unknown), None);
        assert_eq!(left(59, Effect::Transactional, State::Unknown), None);
        assert_eq!(left(59, Effect::External, State::Released), None);
        let not_awaited = stored(Effect::External, State::Unknown, Some(Cause::Answered(504)), 11);
        assert_eq!(not_awaited.answer_awaited(), None);
        assert_eq!(alloc::format!("{}", late(60).unwrap()), "no answer in 2.5 s");
    }
}
