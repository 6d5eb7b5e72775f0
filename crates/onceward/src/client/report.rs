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
/// println!("{} attempts in {:?}", report.attempts.len(), report.total);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    pub(super) key: Option<Key>,
    /// Everything that was sent, hedges included, in the order in which it ended.
    pub attempts: Vec<Attempt>,
    /// How often the status URL of a 202 was asked.
    pub polls: u32,
    /// Why there was no further attempt, if it did not succeed.
    pub stop: Option<Stop>,
    /// After which time the server asks to come back, as far as the last attempt has shown.
    pub hint: Option<Duration>,
    /// Its body was too large to keep, or a stream: then it can only be sent once.
    pub sent_once: bool,
    /// Some attempt may have been carried out without an answer that says so.
    pub ambiguous: bool,
    /// The server said that it does not keep the key: then a repeat, also with the same key, may be a second
    /// run.
    pub unprotected: bool,
    /// The answer is a fallback, and not the server's.
    pub fallback: bool,
    /// How long it took until the head of the answer, with all waits.
    pub total: Duration,
}

impl Report {
    /// The key under which it was sent: with it, and only with it, it can be sent again safely, unless
    /// the server [does not keep it](Self::unprotected).
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Key::as_str)
    }

    /// What of the key may be logged.
    #[must_use]
    pub fn key_digest(&self) -> Option<KeyDigest> {
        self.key.as_ref().map(Key::digest)
    }

    /// Whether a second request was sent beside a late one.
    #[must_use]
    pub fn is_hedged(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.hedge)
    }
}

/// One request that was sent, and what it has shown.
///
/// ```
/// # fn example(report: &onceward::client::Report) {
/// for attempt in &report.attempts {
///     println!("{} after {:?}: {attempt}", attempt.number, attempt.started);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number on the wire: 1 is the first request of the call.
    pub number: u32,
    /// It was sent beside one that was late.
    pub hedge: bool,
    /// How long after the beginning of the call it was sent.
    pub started: Duration,
    /// How long it took until the head of its answer, or its failure.
    pub took: Duration,
    /// What it says about trying again.
    pub class: Class,
    /// The status of its answer, if it had one.
    pub status: Option<StatusCode>,
    /// Why it had no answer.
    pub failure: Option<String>,
    /// After which time the server asked to come back.
    pub hint: Option<Duration>,
    /// How long the call then waited before the next one.
    pub wait: Option<Duration>,
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
