//! What a call did: every attempt, every wait, and why it stopped.

use std::{fmt, time::Duration};

use http::StatusCode;
use onceward_core::{
    Key, KeyDigest,
    retry::{Class, Stop},
};

/// What a call did to get its answer, or not to get one.
///
/// It is in the extensions of every answer, and in every [`CallError`](super::CallError).
///
/// ```
/// use onceward::client::Report;
///
/// # fn example(response: http::Response<()>) {
/// let report: &Report = response.extensions().get().expect("it came through `Retry`");
/// println!("{} attempts in {:?}", report.attempts().len(), report.total());
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(super) key: Option<Key>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) polls: u32,
    pub(super) stop: Option<Stop>,
    pub(super) hint: Option<Duration>,
    pub(super) once: bool,
    pub(super) ambiguous: bool,
    pub(super) unprotected: bool,
    pub(super) fallback: bool,
    pub(super) total: Duration,
}

impl Report {
    /// The key under which it was sent: with it, and only with it, it can be sent again safely, unless
    /// the server [does not keep it](Self::is_unprotected).
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Key::as_str)
    }

    /// What of the key may be logged.
    #[must_use]
    pub fn key_digest(&self) -> Option<KeyDigest> {
        self.key.as_ref().map(Key::digest)
    }

    /// Everything that was sent, hedges included, in the order in which it ended.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Whether a second request was sent beside a late one.
    #[must_use]
    pub fn is_hedged(&self) -> bool {
        self.attempts.iter().any(Attempt::is_hedge)
    }

    /// How often the status URL of a 202 was asked.
    #[must_use]
    pub fn polls(&self) -> u32 {
        self.polls
    }

    /// Why there was no further attempt, if it did not succeed.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// After which time the server asks to come back, as far as the last attempt has shown.
    #[must_use]
    pub fn hint(&self) -> Option<Duration> {
        self.hint
    }

    /// Whether its body was too large to keep, or a stream: then it can only be sent once.
    #[must_use]
    pub fn is_sent_once(&self) -> bool {
        self.once
    }

    /// Whether some attempt may have been carried out without an answer that says so.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Whether the server said that it does not keep the key: then a repeat, also with the same key, may
    /// be a second run.
    #[must_use]
    pub fn is_unprotected(&self) -> bool {
        self.unprotected
    }

    /// Whether the answer is a fallback, and not the server's.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// How long it took until the head of the answer, with all waits.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// One request that was sent, and what it has shown.
///
/// ```
/// # fn example(report: &onceward::client::Report) {
/// for attempt in report.attempts() {
///     println!("{} after {:?}: {attempt}", attempt.number(), attempt.started());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(super) number: u32,
    pub(super) hedge: bool,
    pub(super) started: Duration,
    pub(super) took: Duration,
    pub(super) class: Class,
    pub(super) status: Option<StatusCode>,
    pub(super) failure: Option<String>,
    pub(super) hint: Option<Duration>,
    pub(super) wait: Option<Duration>,
}

impl Attempt {
    /// Its number on the wire: 1 is the first request of the call.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it was sent beside one that was late.
    #[must_use]
    pub fn is_hedge(&self) -> bool {
        self.hedge
    }

    /// How long after the beginning of the call it was sent.
    #[must_use]
    pub fn started(&self) -> Duration {
        self.started
    }

    /// How long it took until the head of its answer, or its failure.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// What it says about trying again.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The status of its answer, if it had one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Why it had no answer.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// After which time the server asked to come back.
    #[must_use]
    pub fn hint(&self) -> Option<Duration> {
        self.hint
    }

    /// How long the call then waited before the next one.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, &self.failure) {
            (Some(status), _) => write!(f, "{status}"),
            (None, Some(failure)) => f.write_str(failure),
            (None, None) => f.write_str("no answer"),
        }
    }
}
