//! The terms on which one kind of operation is run: checked once, when a service starts.

use core::{error::Error, fmt, time::Duration};

use crate::{Effect, Keeps, Ttl};

/// The time in which a run ends or hangs.
const MAX_RUN: Duration = Duration::from_secs(10 * 60);

/// What is at stake in an operation, how long a claim lives unrenewed, how long the end is kept.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{Effect, Terms};
///
/// let terms = Terms::of(Effect::External).retain(Duration::from_secs(7 * 24 * 3600)).build()?;
/// assert_eq!(terms.lease(), Duration::from_secs(30));
///
/// let error = Terms::of(Effect::External)
///     .retain(Duration::from_secs(60))
///     .retry_window(Duration::from_secs(3600))
///     .build()
///     .unwrap_err();
/// assert!(error.to_string().contains("retry window"));
/// # Ok::<(), onceward_core::TermsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    effect: Effect,
    lease: Duration,
    max_run: Duration,
    retain: Duration,
    unknown_retain: Ttl,
    keeps: Keeps,
}

impl Terms {
    /// Starts with the defaults: lease 30 s, runs of 10 min, retention 24 h, unknown for ever.
    #[must_use]
    pub fn of(effect: Effect) -> TermsBuilder {
        TermsBuilder {
            terms: Self {
                effect,
                lease: Duration::from_secs(30),
                max_run: MAX_RUN,
                retain: Duration::from_secs(24 * 3600),
                unknown_retain: Ttl::Never,
                keeps: Keeps::Everything,
            },
            max_run: None,
            retry_window: None,
        }
    }

    /// What is at stake.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// How long a claim lives unrenewed.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long one run may take before its claim is no longer renewed.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use onceward_core::{Effect, Terms};
    /// let terms = Terms::of(Effect::External).lease(Duration::from_secs(3600)).build()?;
    /// assert_eq!(terms.max_run(), Duration::from_secs(3600), "never shorter than the lease");
    /// # Ok::<(), onceward_core::TermsError>(())
    /// ```
    #[must_use]
    pub fn max_run(&self) -> Duration {
        self.max_run
    }

    /// How long an ended operation is remembered, counted from its end.
    #[must_use]
    pub fn retain(&self) -> Duration {
        self.retain
    }

    /// How long an unknown outcome is kept.
    #[must_use]
    pub fn unknown_retain(&self) -> Ttl {
        self.unknown_retain
    }

    /// What of an answer may be stored by code that does not know the rules of its route.
    #[must_use]
    pub fn keeps(&self) -> Keeps {
        self.keeps
    }
}

/// Collects [`Terms`]; nothing is checked before [`build`](TermsBuilder::build).
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{Effect, Terms};
///
/// let terms = Terms::of(Effect::Transactional).lease(Duration::from_secs(10)).build()?;
/// assert_eq!(terms.lease(), Duration::from_secs(10));
/// # Ok::<(), onceward_core::TermsError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TermsBuilder {
    terms: Terms,
    max_run: Option<Duration>,
    retry_window: Option<Duration>,
}

impl TermsBuilder {
    /// How long a claim lives unrenewed: 100 ms to 24 h, 30 s if not said.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self
    }

    /// How long one run may take before its claim is no longer renewed: the lease to 24 h.
    ///
    /// If not said it is 10 minutes, or the lease if that is longer.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use onceward_core::{Effect, Terms};
    /// let terms = Terms::of(Effect::External).max_run(Duration::from_secs(60)).build()?;
    /// assert_eq!(terms.max_run(), Duration::from_secs(60));
    /// # Ok::<(), onceward_core::TermsError>(())
    /// ```
    #[must_use]
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.max_run = Some(max_run);
        self
    }

    /// How long an ended operation is remembered: 1 s to 10 years, 24 h if not said.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.terms.retain = retain;
        self
    }

    /// How long an unknown outcome is kept: for ever if not said.
    #[must_use]
    pub fn unknown_retain(mut self, retain: Duration) -> Self {
        self.terms.unknown_retain = Ttl::For(retain);
        self
    }

    /// What of an answer may be stored by code that does not know the rules of its route: everything if
    /// not said.
    #[must_use]
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.terms.keeps = keeps;
        self
    }

    /// The longest time in which a client, a queue or a reconnect may still retry.
    ///
    /// It changes nothing by itself: a retention that is shorter is refused.
    #[must_use]
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.retry_window = Some(window);
        self
    }

    /// Checks the terms as a whole.
    pub fn build(self) -> Result<Terms, TermsError> {
        const SECOND: Duration = Duration::from_secs(1);
        const DAY: Duration = Duration::from_secs(24 * 3600);
        const TEN_YEARS: Duration = Duration::from_secs(3653 * 24 * 3600);

        let Terms { effect, lease, retain, unknown_retain, .. } = self.terms;
        within("lease", lease, Duration::from_millis(100), DAY)?;
        let max_run = self.max_run.unwrap_or(MAX_RUN.max(lease));
        if max_run < lease {
            return Err(TermsError::RunShorterThanLease { max_run, lease });
        }
        within("max_run", max_run, lease, DAY)?;
        within("retain", retain, SECOND, TEN_YEARS)?;
        if let Ttl::For(unknown_retain) = unknown_retain {
            within("unknown_retain", unknown_retain, SECOND, TEN_YEARS)?;
            longer("unknown_retain", unknown_retain, "retention", retain)?;
        }
        if let Effect::Repeatable { within: rerun } = effect {
            within("rerun_within", rerun, SECOND, TEN_YEARS)?;
        }
        longer("retain", retain, "lease", lease)?;
        if let Some(window) = self.retry_window {
            within("retry_window", window, Duration::ZERO, TEN_YEARS)?;
            longer("retain", retain, "retry window", window)?;
        }
        Ok(Terms { max_run, ..self.terms })
    }
}

fn within(
    option: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), TermsError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(TermsError::Range { option, value, least, most }),
    }
}

fn longer(
    option: &'static str,
    value: Duration,
    other: &'static str,
    than: Duration,
) -> Result<(), TermsError> {
    match value >= than {
        true => Ok(()),
        false => Err(TermsError::TooShort { option, value, other, than }),
    }
}

/// Why [`Terms`] were refused.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::{Effect, Terms, TermsError};
///
/// let error = Terms::of(Effect::External).retain(Duration::ZERO).build().unwrap_err();
/// assert!(matches!(error, TermsError::Range { option: "retain", .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermsError {
    /// A duration is out of its range.
    Range {
        /// The option.
        option: &'static str,
        /// What was given.
        value: Duration,
        /// The smallest that is allowed.
        least: Duration,
        /// The largest that is allowed.
        most: Duration,
    },
    /// A duration is shorter than another that it must cover.
    TooShort {
        /// The option.
        option: &'static str,
        /// What was given.
        value: Duration,
        /// What it must cover.
        other: &'static str,
        /// How long that is.
        than: Duration,
    },
    /// A run would have to be over before its claim can be.
    RunShorterThanLease {
        /// How long one run may take.
        max_run: Duration,
        /// How long a claim lives unrenewed.
        lease: Duration,
    },
}

impl fmt::Display for TermsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { option, value, least, most } => {
                write!(formatter, "`{option}` is {value:?}; choose between {least:?} and {most:?}")
            }
            Self::TooShort { option, value, other, than } => write!(
                formatter,
                "`{option}` is {value:?}, shorter than the {other} of {than:?}: a retry after it \
                 would run again; raise `{option}` to at least {than:?}"
            ),
            Self::RunShorterThanLease { max_run, lease } => write!(
                formatter,
                "`max_run` is {max_run:?}, shorter than the lease of {lease:?}: a claim lives for \
                 its lease in any case and could not end sooner; raise `max_run` to at least \
                 {lease:?} or shorten `lease`"
            ),
        }
    }
}

impl Error for TermsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn zero_and_absurd_durations_are_refused() {
        let of = || Terms::of(Effect::External);
        let century = HOUR * 24 * 36525;
        for (option, refused) in [
            ("lease", of().lease(Duration::ZERO)),
            ("lease", of().lease(Duration::from_millis(99))),
            ("lease", of().lease(HOUR * 25).retain(HOUR * 100)),
            ("max_run", of().max_run(Duration::ZERO)),
            ("max_run", of().max_run(HOUR * 24 + SECOND)),
            ("max_run", of().max_run(Duration::MAX)),
            ("retain", of().retain(Duration::ZERO)),
            ("retain", of().retain(century)),
            ("retain", of().retain(Duration::MAX)),
            ("unknown_retain", of().unknown_retain(Duration::ZERO)),
            ("unknown_retain", of().unknown_retain(HOUR)),
            ("rerun_within", Terms::of(Effect::Repeatable { within: Duration::ZERO })),
            ("rerun_within", Terms::of(Effect::Repeatable { within: century })),
            ("retry_window", of().retry_window(Duration::MAX)),
        ] {
            let error = refused.build().unwrap_err().to_string();
            assert!(error.contains(option), "{option}: {error}");
        }
        assert!(of().lease(Duration::from_millis(100)).retain(SECOND).build().is_ok());
    }

    #[test]
    fn a_run_may_take_ten_minutes_or_the_lease_or_what_is_said() {
        let of = || Terms::of(Effect::External);
        let max_run = |builder: TermsBuilder| builder.build().unwrap().max_run();
        assert_eq!(max_run(of()), SECOND * 600);
        assert_eq!(max_run(of().lease(SECOND * 601)), SECOND * 601);
        assert_eq!(max_run(of().lease(HOUR * 24)), HOUR * 24);
        assert_eq!(max_run(of().max_run(SECOND * 30)), SECOND * 30);
        assert_eq!(max_run(of().max_run(HOUR * 24).lease(HOUR)), HOUR * 24);

        let error = of().max_run(SECOND * 29).build().unwrap_err();
        assert_eq!(
            error,
            TermsError::RunShorterThanLease { max_run: SECOND * 29, lease: SECOND * 30 }
        );
        let error = error.to_string();
        assert!(error.contains("at least 30s") && !error.contains("retry"), "{error}");
    }

    #[test]
    fn retention_covers_the_lease_and_the_retry_window() {
        let of = || Terms::of(Effect::Transactional);
        let error = of().lease(SECOND * 2).retain(SECOND).build().unwrap_err();
        assert!(error.to_string().contains("lease of 2s"), "{error}");
        let error = of().retain(HOUR).retry_window(HOUR + SECOND).build().unwrap_err();
        assert!(error.to_string().contains("retry window of 3601s"), "{error}");
        assert!(of().retain(HOUR).retry_window(HOUR).build().is_ok());
    }
}
