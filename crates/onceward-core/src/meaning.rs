//! What the reply of a run means for its record: which ending a driver settles.
//!
//! ```text
//! reply                    strict            stripe         rerun              transactional
//! ---------------------------------------------------------------------------------------------
//! 2xx, 3xx                 Succeeded         Succeeded      Succeeded          FailedRetryable
//! 4xx: nothing was done    Released          Released       Released           Released
//! 4xx: all others          FailedFinal       FailedFinal    FailedFinal        FailedFinal
//! 5xx: listed not applied  Released          Released       Released           refused
//! 500, 501, 505-599        FailedFinal (1)   FailedFinal    FailedRetryable    FailedRetryable
//! 502, 503, 504            Unknown           FailedFinal    FailedRetryable    FailedRetryable
//! everything else          Unknown           Unknown        FailedRetryable    FailedRetryable
//!
//! (1) Unknown if the policy holds them
//! ```
//!
//! A transactional run that succeeds ends its record by its own commit. A reply is looked at here
//! only if that did not happen, and a roll-back is the proof that nothing did.

use alloc::collections::BTreeSet;
use core::{error::Error, fmt};

use crate::Effect;

/// What came back from a run.
///
/// ```
/// use onceward_core::Reply;
///
/// assert_ne!(Reply::Complete(504), Reply::Incomplete, "a 504 is an answer, a time-out is none");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// A whole answer with this HTTP status.
    Complete(u16),
    /// None, or not all of it: a time-out, a reset, a panic, a truncated answer.
    Incomplete,
}

/// What a [`Reply`] means for the record of its operation.
///
/// ```
/// use onceward_core::{Effect, Meaning, Policy, Reply};
///
/// let policy = Policy::of(Effect::External).build()?;
/// assert_eq!(policy.meaning(Reply::Complete(402)), Meaning::FailedFinal);
/// # Ok::<(), onceward_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The effect happened: the answer is kept and replayed.
    Succeeded,
    /// Refused for good: the answer is kept and replayed.
    FailedFinal,
    /// Nothing happened, or a repetition is harmless: a duplicate runs it again.
    FailedRetryable,
    /// Nothing happened and the key is given back.
    Released,
    /// It cannot be known whether the effect happened.
    Unknown,
}

/// How the replies that leave doubt are read: server errors and missing answers.
///
/// ```
/// use onceward_core::{Effect, Policy, Profile};
///
/// let policy = Policy::of(Effect::External).profile(Profile::Stripe).build()?;
/// assert_eq!(policy.profile(), Some(Profile::Stripe));
/// # Ok::<(), onceward_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A server error is final if the server itself made it; behind a proxy it is unknown.
    Strict,
    /// Every complete answer is final, as Stripe's clients expect.
    Stripe,
    /// Every failure is run again: only for an effect that may be repeated.
    Rerun,
}

impl Profile {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Stripe => "stripe",
            Self::Rerun => "rerun",
        }
    }
}

/// What the replies of one kind of operation mean: checked once, when a service starts.
///
/// ```
/// use onceward_core::{Effect, Meaning, Policy, Reply};
///
/// // This upstream sends 503 only before it does anything.
/// let policy = Policy::of(Effect::External).not_applied([503]).build()?;
/// assert_eq!(policy.meaning(Reply::Complete(503)), Meaning::Released);
/// assert_eq!(policy.meaning(Reply::Complete(502)), Meaning::Unknown);
/// # Ok::<(), onceward_core::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `None`: the effect is transactional.
    profile: Option<Profile>,
    holds_500: bool,
    not_applied: BTreeSet<u16>,
}

impl Policy {
    /// Starts with the effect's own profile: strict if external, rerun if repeatable, else none.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy, Profile};
    /// assert_eq!(Policy::of(Effect::External).build()?.profile(), Some(Profile::Strict));
    /// assert_eq!(Policy::of(Effect::Transactional).build()?.profile(), None);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn of(effect: Effect) -> PolicyBuilder {
        PolicyBuilder { effect, profile: None, holds_500: false, not_applied: BTreeSet::new() }
    }

    /// What this reply means.
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// let policy = Policy::of(Effect::Transactional).build()?;
    /// assert_eq!(policy.meaning(Reply::Incomplete), Meaning::FailedRetryable);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn meaning(&self, reply: Reply) -> Meaning {
        match reply {
            Reply::Complete(200..=399) => self.of_success(),
            Reply::Complete(401 | 403 | 407 | 408 | 412 | 421 | 423 | 425 | 428 | 429 | 431) => {
                Meaning::Released
            }
            Reply::Complete(400..=499) => Meaning::FailedFinal,
            Reply::Complete(status @ 500..=599) => self.of_server_error(status),
            Reply::Complete(_) | Reply::Incomplete => self.of_no_answer(),
        }
    }

    /// How doubtful replies are read; `None`: the effect is transactional and leaves no doubt.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy, Profile};
    /// let effect = Effect::Repeatable { within: core::time::Duration::from_secs(3600) };
    /// assert_eq!(Policy::of(effect).build()?.profile(), Some(Profile::Rerun));
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        self.profile
    }

    fn of_success(&self) -> Meaning {
        match self.profile {
            Some(_) => Meaning::Succeeded,
            None => Meaning::FailedRetryable,
        }
    }

    fn of_server_error(&self, status: u16) -> Meaning {
        if self.not_applied.contains(&status) {
            return Meaning::Released;
        }
        match (self.profile, status) {
            (Some(Profile::Strict), 502..=504) => Meaning::Unknown,
            (Some(Profile::Strict), _) if self.holds_500 => Meaning::Unknown,
            (Some(Profile::Strict | Profile::Stripe), _) => Meaning::FailedFinal,
            (Some(Profile::Rerun) | None, _) => Meaning::FailedRetryable,
        }
    }

    fn of_no_answer(&self) -> Meaning {
        match self.profile {
            Some(Profile::Strict | Profile::Stripe) => Meaning::Unknown,
            Some(Profile::Rerun) | None => Meaning::FailedRetryable,
        }
    }
}

/// Collects a [`Policy`]; nothing is checked before [`build`](PolicyBuilder::build).
///
/// ```
/// use onceward_core::{Effect, Policy, PolicyError, Profile};
///
/// let refused = Policy::of(Effect::External).profile(Profile::Rerun).build();
/// assert_eq!(refused, Err(PolicyError::RerunWithoutRepeatable));
/// ```
#[derive(Clone, Debug)]
pub struct PolicyBuilder {
    effect: Effect,
    profile: Option<Profile>,
    holds_500: bool,
    not_applied: BTreeSet<u16>,
}

impl PolicyBuilder {
    /// How doubtful replies are read; not with a transactional effect.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy, Profile};
    /// assert!(Policy::of(Effect::Transactional).profile(Profile::Strict).build().is_err());
    /// ```
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Also a server error that the server itself made leaves the outcome unknown; strict only.
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// let policy = Policy::of(Effect::External).hold_500().build()?;
    /// assert_eq!(policy.meaning(Reply::Complete(500)), Meaning::Unknown);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn hold_500(mut self) -> Self {
        self.holds_500 = true;
        self
    }

    /// Server errors (500 to 599) that are sent only before anything is done: they release the key.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy};
    /// assert!(Policy::of(Effect::External).not_applied([503, 529]).build().is_ok());
    /// assert!(Policy::of(Effect::External).not_applied([404]).build().is_err());
    /// ```
    #[must_use]
    pub fn not_applied(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.not_applied.extend(statuses);
        self
    }

    /// Checks the policy as a whole.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy, Profile};
    /// let error = Policy::of(Effect::External).profile(Profile::Rerun).build().unwrap_err();
    /// assert!(error.to_string().contains("repeatable"));
    /// ```
    pub fn build(self) -> Result<Policy, PolicyError> {
        let Self { effect, profile, holds_500, not_applied } = self;
        let profile = match effect {
            Effect::Transactional => None,
            Effect::External => Some(profile.unwrap_or(Profile::Strict)),
            Effect::Repeatable { .. } => Some(profile.unwrap_or(Profile::Rerun)),
        };
        let refused = |option| Err(PolicyError::NotForTransactional { option });
        match (effect, profile) {
            (Effect::Transactional, _) if self.profile.is_some() => return refused("profile"),
            (Effect::Transactional, _) if holds_500 => return refused("hold_500"),
            (Effect::Transactional, _) if !not_applied.is_empty() => return refused("not_applied"),
            (Effect::External, Some(Profile::Rerun)) => {
                return Err(PolicyError::RerunWithoutRepeatable);
            }
            (_, Some(profile @ (Profile::Stripe | Profile::Rerun))) if holds_500 => {
                return Err(PolicyError::HoldWithoutStrict { profile });
            }
            _ => {}
        }
        if let Some(&status) = not_applied.iter().find(|status| !(500..=599).contains(*status)) {
            return Err(PolicyError::NotAServerError { status });
        }
        Ok(Policy { profile, holds_500, not_applied })
    }
}

/// Why a [`Policy`] was refused.
///
/// ```
/// use onceward_core::{Effect, Policy, PolicyError};
///
/// let error = Policy::of(Effect::External).not_applied([429]).build().unwrap_err();
/// assert_eq!(error, PolicyError::NotAServerError { status: 429 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// Profile rerun was chosen for an effect that is not repeatable.
    RerunWithoutRepeatable,
    /// An option was given that a transactional effect does not take.
    NotForTransactional {
        /// The option.
        option: &'static str,
    },
    /// `hold_500` was given with a profile that reads server errors in its own way.
    HoldWithoutStrict {
        /// That profile.
        profile: Profile,
    },
    /// `not_applied` names a status that is no server error.
    NotAServerError {
        /// That status.
        status: u16,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RerunWithoutRepeatable => formatter.write_str(
                "profile `rerun` runs an operation again after every failure, which can double an \
                 effect that is not repeatable; declare the effect repeatable if downstream honours \
                 the key, or choose profile `strict` or `stripe`",
            ),
            Self::NotForTransactional { option } => write!(
                formatter,
                "`{option}` does not go with a transactional effect: a run without a commit changed \
                 nothing and is run again, whatever its reply; remove `{option}` or declare the \
                 effect external or repeatable"
            ),
            Self::HoldWithoutStrict { profile } => write!(
                formatter,
                "`hold_500` goes with profile `strict` only: profile `{}` would not hold anything; \
                 remove `hold_500` or choose profile `strict`",
                profile.as_str()
            ),
            Self::NotAServerError { status } => write!(
                formatter,
                "`not_applied` has {status}: the meaning of other replies is fixed, so that no \
                 effect is doubled; list statuses between 500 and 599 only"
            ),
        }
    }
}

impl Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use core::{ops::RangeInclusive, time::Duration};
    use std::{string::ToString, vec::Vec};

    use Meaning::{FailedFinal, FailedRetryable, Released, Succeeded, Unknown};

    const REPEATABLE: Effect = Effect::Repeatable { within: Duration::from_secs(3600) };

    type Row = (RangeInclusive<u16>, Meaning);

    /// Rule 11, written out: the same for everybody.
    const CLIENT_ERRORS: [Row; 19] = [
        (400..=400, FailedFinal),
        (401..=401, Released),
        (402..=402, FailedFinal),
        (403..=403, Released),
        (404..=406, FailedFinal),
        (407..=408, Released),
        (409..=411, FailedFinal),
        (412..=412, Released),
        (413..=420, FailedFinal),
        (421..=421, Released),
        (422..=422, FailedFinal),
        (423..=423, Released),
        (424..=424, FailedFinal),
        (425..=425, Released),
        (426..=427, FailedFinal),
        (428..=429, Released),
        (430..=430, FailedFinal),
        (431..=431, Released),
        (432..=499, FailedFinal),
    ];

    /// Checks every status from 100 to 999, and that the table has each of them once.
    fn check(
        policy: PolicyBuilder,
        below_400: [Row; 2],
        from_500: &[Row],
        beyond: Meaning,
        incomplete: Meaning,
    ) {
        let name = std::format!("{policy:?}");
        let policy = policy.build().unwrap();
        let rows = below_400.into_iter().chain(CLIENT_ERRORS).chain(from_500.iter().cloned());
        let rows = rows.chain([(600..=999, beyond)]);
        let table: Vec<(u16, Meaning)> = rows
            .flat_map(|(statuses, meaning)| statuses.map(move |status| (status, meaning)))
            .collect();
        assert!(table.iter().map(|(status, _)| *status).eq(100..=999), "{name}: every status once");
        for (status, meaning) in table {
            assert_eq!(policy.meaning(Reply::Complete(status)), meaning, "{name}: {status}");
        }
        assert_eq!(policy.meaning(Reply::Incomplete), incomplete, "{name}");
        for status in [0, 1, 99, 1000, u16::MAX] {
            assert_eq!(policy.meaning(Reply::Complete(status)), incomplete, "{name}: {status}");
        }
    }

    #[test]
    fn strict_holds_what_a_proxy_may_have_said() {
        let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
        let from_500 = [(500..=501, FailedFinal), (502..=504, Unknown), (505..=599, FailedFinal)];
        for policy in [
            Policy::of(Effect::External),
            Policy::of(Effect::External).profile(Profile::Strict),
            Policy::of(REPEATABLE).profile(Profile::Strict),
        ] {
            check(policy, below_400.clone(), &from_500, Unknown, Unknown);
        }
        let holding = Policy::of(Effect::External).hold_500();
        check(holding, below_400, &[(500..=599, Unknown)], Unknown, Unknown);
    }

    #[test]
    fn stripe_keeps_every_complete_answer() {
        for effect in [Effect::External, REPEATABLE] {
            let policy = Policy::of(effect).profile(Profile::Stripe);
            let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
            check(policy, below_400, &[(500..=599, FailedFinal)], Unknown, Unknown);
        }
    }

    #[test]
    fn rerun_repeats_every_failure() {
        for policy in [Policy::of(REPEATABLE), Policy::of(REPEATABLE).profile(Profile::Rerun)] {
            let below_400 = [(100..=199, FailedRetryable), (200..=399, Succeeded)];
            let from_500 = [(500..=599, FailedRetryable)];
            check(policy, below_400, &from_500, FailedRetryable, FailedRetryable);
        }
    }

    #[test]
    fn a_transaction_without_a_commit_is_run_again() {
        let policy = Policy::of(Effect::Transactional);
        let below_400 = [(100..=199, FailedRetryable), (200..=399, FailedRetryable)];
        let from_500 = [(500..=599, FailedRetryable)];
        check(policy, below_400, &from_500, FailedRetryable, FailedRetryable);
    }

    #[test]
    fn what_was_not_applied_is_released_in_every_profile() {
        let listed = |policy: PolicyBuilder| policy.not_applied([503]).not_applied([500, 599]);
        let below_400 = [(100..=199, Unknown), (200..=399, Succeeded)];
        let from_500 = |first, second, third| {
            [
                (500..=500, Released),
                (501..=501, first),
                (502..=502, second),
                (503..=503, Released),
                (504..=504, second),
                (505..=598, third),
                (599..=599, Released),
            ]
        };
        let strict = listed(Policy::of(Effect::External));
        let rows = from_500(FailedFinal, Unknown, FailedFinal);
        check(strict.clone(), below_400.clone(), &rows, Unknown, Unknown);
        let rows = from_500(Unknown, Unknown, Unknown);
        check(strict.hold_500(), below_400.clone(), &rows, Unknown, Unknown);
        let stripe = listed(Policy::of(Effect::External)).profile(Profile::Stripe);
        let rows = from_500(FailedFinal, FailedFinal, FailedFinal);
        check(stripe, below_400, &rows, Unknown, Unknown);
        let rows = from_500(FailedRetryable, FailedRetryable, FailedRetryable);
        let below_400 = [(100..=199, FailedRetryable), (200..=399, Succeeded)];
        check(listed(Policy::of(REPEATABLE)), below_400, &rows, FailedRetryable, FailedRetryable);
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_advice() {
        let of = Policy::of;
        let transactional = || of(Effect::Transactional);
        for (refused, advice) in [
            (of(Effect::External).profile(Profile::Rerun), "declare the effect repeatable"),
            (of(Effect::External).profile(Profile::Rerun).hold_500(), "declare the effect"),
            (transactional().profile(Profile::Strict), "remove `profile`"),
            (transactional().profile(Profile::Stripe), "remove `profile`"),
            (transactional().profile(Profile::Rerun), "remove `profile`"),
            (transactional().hold_500(), "remove `hold_500`"),
            (transactional().not_applied([503]), "remove `not_applied`"),
            (of(Effect::External).profile(Profile::Stripe).hold_500(), "choose profile `strict`"),
            (of(REPEATABLE).profile(Profile::Rerun).hold_500(), "profile `rerun` would not hold"),
            (of(REPEATABLE).hold_500(), "choose profile `strict`"),
            (of(Effect::External).not_applied([503, 499]), "has 499"),
            (of(Effect::External).not_applied([600]), "between 500 and 599"),
            (of(REPEATABLE).not_applied([0]), "has 0"),
        ] {
            let error = refused.build().unwrap_err().to_string();
            assert!(error.contains(advice), "{advice}: {error}");
        }
        assert!(of(REPEATABLE).profile(Profile::Strict).hold_500().build().is_ok());
        assert!(of(Effect::Transactional).not_applied([]).build().is_ok(), "nothing was listed");
    }

    #[test]
    fn the_profile_follows_from_the_effect_if_not_said() {
        let profile = |policy: PolicyBuilder| policy.build().unwrap().profile();
        assert_eq!(profile(Policy::of(Effect::External)), Some(Profile::Strict));
        assert_eq!(profile(Policy::of(REPEATABLE)), Some(Profile::Rerun));
        assert_eq!(profile(Policy::of(Effect::Transactional)), None);
        let stripe = Policy::of(REPEATABLE).profile(Profile::Stripe);
        assert_eq!(profile(stripe), Some(Profile::Stripe));
    }
}
