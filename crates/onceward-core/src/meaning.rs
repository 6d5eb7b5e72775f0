//! What the reply of a run means for its record: which ending a driver settles.
//!
//! ```text
//! reply                    standard        strict          stripe       rerun            transactional
//! -------------------------------------------------------------------------------------------------
//! 2xx, 3xx                 Succeeded       Succeeded       Succeeded    Succeeded        FailedRetryable
//! 4xx: nothing was done    Released        Released        Released     Released         Released
//! 400                      FailedFinal     FailedFinal     Released     FailedFinal      FailedFinal
//! 4xx: all others          FailedFinal     FailedFinal     FailedFinal  FailedFinal      FailedFinal
//! 5xx: listed not applied  Released        Released        Released     Released         refused
//! 500, 501, 505-599        FailedFinal(1)  FailedFinal(1)  FailedFinal  FailedRetryable  FailedRetryable
//! 502, 504                 Unknown         Unknown         FailedFinal  FailedRetryable  FailedRetryable
//! 503                      Released        Unknown         FailedFinal  FailedRetryable  FailedRetryable
//! everything else          Unknown         Unknown         Unknown      FailedRetryable  FailedRetryable
//!
//! (1) Unknown if the policy holds them
//! ```
//!
//! Before this table come two lists of the route's own: client errors that release the key, because the
//! server sends them only when it did nothing, and errors that are kept as final answers.
//!
//! A 503 says that the server was "unable to handle the request" (RFC 9110). Profile standard takes
//! that word; strict does not, because a proxy may send a 503 after the server has begun.
//!
//! A transactional run that succeeds ends its record by its own commit. A reply is looked at here
//! only if that did not happen, and a roll-back is the proof that nothing did.

use alloc::collections::BTreeSet;
use core::{error::Error, fmt};

use crate::{Effect, words::words};

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

words! {
    /// How the replies that leave doubt are read: server errors and missing answers.
    ///
    /// ```
    /// use onceward_core::{Effect, Policy, Profile};
    ///
    /// assert_eq!(Policy::of(Effect::External).build()?.profile(), Some(Profile::Standard));
    /// let policy = Policy::of(Effect::External).profile(Profile::Stripe).build()?;
    /// assert_eq!(policy.profile(), Some(Profile::Stripe));
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    pub enum Profile {
        /// Strict, except for a 503: the server says that it did not handle it, and the key is free.
        Standard = "standard",
        /// A server error is final if the server itself made it; behind a proxy it is unknown.
        Strict = "strict",
        /// Every complete answer is final, as Stripe's clients expect; a 400 gives the key back.
        Stripe = "stripe",
        /// Every failure is run again: only for an effect that may be repeated.
        Rerun = "rerun",
    }
}

/// What the replies of one kind of operation mean: checked once, when a service starts.
///
/// ```
/// use onceward_core::{Effect, Meaning, Policy, Reply};
///
/// // This upstream sends 529, as 503, only before it does anything.
/// let policy = Policy::of(Effect::External).not_applied([529]).build()?;
/// assert_eq!(policy.meaning(Reply::Complete(503)), Meaning::Released);
/// assert_eq!(policy.meaning(Reply::Complete(529)), Meaning::Released);
/// assert_eq!(policy.meaning(Reply::Complete(502)), Meaning::Unknown);
/// # Ok::<(), onceward_core::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `None`: the effect is transactional.
    profile: Option<Profile>,
    holds_500: bool,
    not_applied: BTreeSet<u16>,
    released: BTreeSet<u16>,
    finals: BTreeSet<u16>,
}

impl Policy {
    /// Starts with the effect's own profile: standard if external, rerun if repeatable, else none.
    ///
    /// ```
    /// # use onceward_core::{Effect, Policy, Profile};
    /// assert_eq!(Policy::of(Effect::External).build()?.profile(), Some(Profile::Standard));
    /// assert_eq!(Policy::of(Effect::Transactional).build()?.profile(), None);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn of(effect: Effect) -> PolicyBuilder {
        let lists = BTreeSet::new;
        let policy = Policy {
            profile: None,
            holds_500: false,
            not_applied: lists(),
            released: lists(),
            finals: lists(),
        };
        PolicyBuilder { effect, policy }
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
            Reply::Complete(status) if self.released.contains(&status) => Meaning::Released,
            Reply::Complete(status) if self.finals.contains(&status) => Meaning::FailedFinal,
            reply => self.unlisted(reply),
        }
    }

    /// What this reply means if an earlier attempt of the same run may have been carried out.
    ///
    /// A reply that gives the key free speaks of one attempt alone. So does one that is final only
    /// because a list of the route says so: with it the client would read of a failure, though the
    /// earlier attempt may have had its effect.
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// let policy = Policy::of(Effect::External).final_statuses([429]).build()?;
    /// assert_eq!(policy.meaning(Reply::Complete(429)), Meaning::FailedFinal);
    /// assert_eq!(policy.meaning_in_doubt(Reply::Complete(429)), Meaning::Unknown);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn meaning_in_doubt(&self, reply: Reply) -> Meaning {
        match (self.meaning(reply), self.unlisted(reply)) {
            (Meaning::FailedFinal, Meaning::FailedFinal) => Meaning::FailedFinal,
            (Meaning::Released | Meaning::FailedFinal, _) => self.of_no_answer(),
            (meaning, _) => meaning,
        }
    }

    /// What it means to a policy without lists of its own.
    fn unlisted(&self, reply: Reply) -> Meaning {
        match reply {
            Reply::Complete(200..=399) => self.of_success(),
            Reply::Complete(401 | 403 | 407 | 408 | 412 | 421 | 423 | 425 | 428 | 429 | 431) => {
                Meaning::Released
            }
            // Stripe keeps no answer of a request whose parameters it refuses.
            Reply::Complete(400) if self.profile == Some(Profile::Stripe) => Meaning::Released,
            Reply::Complete(400..=499) => Meaning::FailedFinal,
            Reply::Complete(status @ 500..=599) => self.of_server_error(status),
            Reply::Complete(_) | Reply::Incomplete => self.of_no_answer(),
        }
    }

    /// How doubtful replies are read; `None`: the effect is transactional and leaves no doubt.
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
            (Some(Profile::Standard), 503) => Meaning::Released,
            (Some(Profile::Standard | Profile::Strict), 502..=504) => Meaning::Unknown,
            (Some(Profile::Standard | Profile::Strict), _) if self.holds_500 => Meaning::Unknown,
            (Some(Profile::Standard | Profile::Strict | Profile::Stripe), _) => {
                Meaning::FailedFinal
            }
            (Some(Profile::Rerun) | None, _) => Meaning::FailedRetryable,
        }
    }

    fn of_no_answer(&self) -> Meaning {
        match self.profile {
            Some(Profile::Standard | Profile::Strict | Profile::Stripe) => Meaning::Unknown,
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
    policy: Policy,
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
        self.policy.profile = Some(profile);
        self
    }

    /// Also a server error that the server itself made leaves the outcome unknown; with standard and strict.
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// let policy = Policy::of(Effect::External).hold_500().build()?;
    /// assert_eq!(policy.meaning(Reply::Complete(500)), Meaning::Unknown);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn hold_500(mut self) -> Self {
        self.policy.holds_500 = true;
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
        self.policy.not_applied.extend(statuses);
        self
    }

    /// Client errors (400 to 499) that are sent only when nothing was done: they release the key. For
    /// server errors there is [`not_applied`](Self::not_applied).
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// // This upstream sends 409 while the account is busy, before it does anything.
    /// let policy = Policy::of(Effect::External).released_statuses([409]).build()?;
    /// assert_eq!(policy.meaning(Reply::Complete(409)), Meaning::Released);
    /// assert!(Policy::of(Effect::External).released_statuses([201]).build().is_err());
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn released_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.policy.released.extend(statuses);
        self
    }

    /// Errors (400 to 599) that are final: their answer is kept and replayed, whatever the profile says.
    ///
    /// ```
    /// # use onceward_core::{Effect, Meaning, Policy, Reply};
    /// // This upstream sends 429 when a quota of the month is used up.
    /// let policy = Policy::of(Effect::External).final_statuses([429]).build()?;
    /// assert_eq!(policy.meaning(Reply::Complete(429)), Meaning::FailedFinal);
    /// # Ok::<(), onceward_core::PolicyError>(())
    /// ```
    #[must_use]
    pub fn final_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.policy.finals.extend(statuses);
        self
    }

    /// Checks the policy as a whole.
    pub fn build(self) -> Result<Policy, PolicyError> {
        let Self { effect, policy } = self;
        let Policy { profile, holds_500, not_applied, released, finals } = &policy;
        let profile = match effect {
            Effect::Transactional => {
                let said = [
                    ("profile", profile.is_some()),
                    ("hold_500", *holds_500),
                    ("not_applied", !not_applied.is_empty()),
                    ("released_statuses", !released.is_empty()),
                    ("final_statuses", !finals.is_empty()),
                ];
                match said.into_iter().find(|(_, is_said)| *is_said) {
                    Some((option, _)) => return Err(PolicyError::NotForTransactional { option }),
                    None => None,
                }
            }
            Effect::External if *profile == Some(Profile::Rerun) => {
                return Err(PolicyError::RerunWithoutRepeatable);
            }
            Effect::External => Some(profile.unwrap_or(Profile::Standard)),
            Effect::Repeatable { .. } => Some(profile.unwrap_or(Profile::Rerun)),
        };
        if let Some(profile @ (Profile::Stripe | Profile::Rerun)) = profile
            && *holds_500
        {
            return Err(PolicyError::HoldWithoutStrict { profile });
        }
        if let Some(&status) = not_applied.iter().find(|status| !(500..=599).contains(*status)) {
            return Err(PolicyError::NotAServerError { status });
        }
        if let Some(&status) = released.iter().find(|status| !(400..=499).contains(*status)) {
            return Err(PolicyError::NotAClientError { status });
        }
        if let Some(&status) = finals.iter().find(|status| !(400..=599).contains(*status)) {
            return Err(PolicyError::NotAnError { status });
        }
        let frees = |status: &&u16| released.contains(*status) || not_applied.contains(*status);
        if let Some(&status) = finals.iter().find(frees) {
            return Err(PolicyError::FreedAndFinal { status });
        }
        Ok(Policy { profile, ..policy })
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
    /// `released_statuses` names a status that is no client error.
    NotAClientError {
        /// That status.
        status: u16,
    },
    /// `final_statuses` names a status that is no error.
    NotAnError {
        /// That status.
        status: u16,
    },
    /// A status is to give the key free and to be final.
    FreedAndFinal {
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
                 the key, or choose profile `standard`, `strict` or `stripe`",
            ),
            Self::NotForTransactional { option } => write!(
                formatter,
                "`{option}` does not go with a transactional effect: a run without a commit changed \
                 nothing and is run again, whatever its reply; remove `{option}` or declare the \
                 effect external or repeatable"
            ),
            Self::HoldWithoutStrict { profile } => write!(
                formatter,
                "`hold_500` goes with profiles `standard` and `strict`: profile `{}` would not hold \
                 anything; remove `hold_500` or choose one of these",
                profile.as_str()
            ),
            Self::NotAServerError { status } => write!(
                formatter,
                "`not_applied` has {status}, which is no server error; list statuses between 500 and \
                 599, and client errors that release the key in `released_statuses`"
            ),
            Self::NotAClientError { status: status @ 500..=599 } => write!(
                formatter,
                "`released_statuses` has {status}, a server error; list it in `not_applied`, if it is \
                 sent only before anything is done"
            ),
            Self::NotAClientError { status } => write!(
                formatter,
                "`released_statuses` has {status}: after a success a freed key would double the effect; \
                 list statuses between 400 and 499 only"
            ),
            Self::NotAnError { status } => write!(
                formatter,
                "`final_statuses` has {status}, which is no error: a success is always kept; list \
                 statuses between 400 and 599 only"
            ),
            Self::FreedAndFinal { status } => write!(
                formatter,
                "{status} is in `final_statuses` and in a list of statuses that release the key: it \
                 cannot be kept and forgotten; leave it in one of them"
            ),
        }
    }
}

impl Error for PolicyError {}
