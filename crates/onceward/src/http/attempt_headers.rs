//! What a client says about an attempt: `Onceward-Attempt`, `Onceward-Deadline`, `Onceward-Priority`.
//!
//! Clients, the server layer and the gateway read and write them here, and in no other place. They come
//! from outside: what cannot be read was not said, and what is too large is bounded.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward_core::retry::Priority;
use tokio::time::Instant;

/// The header lines about one attempt, as they were sent.
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderMap, HeaderValue};
/// use onceward::AttemptHeaders;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("onceward-deadline", HeaderValue::from_static("1500"));
/// let said = AttemptHeaders::of(&headers);
/// assert_eq!((said.time, said.attempt), (Some(Duration::from_millis(1500)), None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptHeaders {
    /// Which attempt of its client it is, counted from 1.
    pub attempt: Option<u32>,
    /// How long its client waits for it, from when it was sent.
    pub time: Option<Duration>,
    /// How important it is.
    pub priority: Option<Priority>,
}

impl AttemptHeaders {
    /// The number of an attempt.
    pub const ATTEMPT: HeaderName = HeaderName::from_static("onceward-attempt");
    /// The milliseconds that are left.
    pub const DEADLINE: HeaderName = HeaderName::from_static("onceward-deadline");
    /// From 0, the lowest, to 3.
    pub const PRIORITY: HeaderName = HeaderName::from_static("onceward-priority");
    /// A larger number counts as this one.
    pub const MOST_ATTEMPTS: u32 = 1_000;
    /// No client waits for longer: a larger number is as good as this one.
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

    /// What these lines say; two lines of one name say nothing.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let attempt = one(headers, &Self::ATTEMPT).and_then(number).filter(|count| *count > 0);
        let attempt = attempt.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let time = one(headers, &Self::DEADLINE).and_then(number).map(Duration::from_millis);
        Self {
            attempt: attempt.map(|count| count.min(Self::MOST_ATTEMPTS)),
            time: time.map(|time| time.min(Self::LONGEST)),
            priority: one(headers, &Self::PRIORITY).and_then(Priority::parse),
        }
    }

    /// Writes these lines, and removes those that were there.
    pub fn write(&self, headers: &mut HeaderMap) {
        for name in [Self::ATTEMPT, Self::DEADLINE, Self::PRIORITY] {
            headers.remove(name);
        }
        if let Some(attempt) = self.attempt {
            headers.insert(Self::ATTEMPT, attempt.into());
        }
        if let Some(time) = self.time {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            headers.insert(Self::DEADLINE, millis.into());
        }
        if let Some(priority) = self.priority {
            headers.insert(Self::PRIORITY, u16::from(priority.number()).into());
        }
    }
}

/// What a request that is being served says about itself, for the calls that it leads to.
///
/// A call on its behalf has no more time than its deadline leaves, and is as important. The client does not
/// retry a call on behalf of a retry: the caller outside tries again, and five layers that each try three
/// times would make 243 attempts.
///
/// ```
/// use http::HeaderMap;
/// use onceward::Incoming;
///
/// # fn handler(headers: &HeaderMap) {
/// let incoming = Incoming::from(headers);
/// // … calls with `retry.serving(incoming)`, or with `incoming` in the extensions of a request.
/// # let _ = incoming;
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Which attempt it is: 1 is the first.
    pub attempt: u32,
    /// When its client does not wait for its answer any more.
    pub deadline: Option<Instant>,
    /// How important it is.
    pub priority: Option<Priority>,
}

impl Incoming {
    /// What is left of its time.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether its client does not wait for its answer any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }
}

impl From<&HeaderMap> for Incoming {
    /// Reads the lines now: the time that is left counts from here. An unreadable line counts as missing.
    fn from(headers: &HeaderMap) -> Self {
        let AttemptHeaders { attempt, time, priority } = AttemptHeaders::of(headers);
        let deadline = time.map(|left| Instant::now() + left);
        Self { attempt: attempt.unwrap_or(1), deadline, priority }
    }
}

/// The only line of this name.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let (first, second): (&HeaderValue, _) = (all.next()?, all.next());
    second.is_none().then(|| first.to_str().ok().map(str::trim))?
}

/// A whole number, however long it is.
fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&'static str, &'static str)]) -> AttemptHeaders {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        AttemptHeaders::of(&headers)
    }

    #[test]
    fn a_deadline_is_a_number_of_milliseconds_and_bounded() {
        for (text, millis) in [
            ("250", Some(250)),
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("1000000000000000000", Some(86_400_000)),
            ("99999999999999999999999999", Some(86_400_000)),
            ("-5", None),
            ("1.5", None),
            ("1e9", None),
            ("soon", None),
            ("", None),
            ("5, 6", None),
        ] {
            let time = said(&[("onceward-deadline", text)]).time;
            assert_eq!(time, millis.map(Duration::from_millis), "{text:?}");
        }
        let twice = [("onceward-deadline", "5"), ("onceward-deadline", "6")];
        assert_eq!(said(&twice).time, None);
    }

    #[test]
    fn attempts_are_counted_from_one_and_bounded() {
        for (text, attempt) in [
            ("1", Some(1)),
            ("3", Some(3)),
            ("0", None),
            ("4294967297", Some(1_000)),
            ("-1", None),
            ("two", None),
        ] {
            assert_eq!(said(&[("onceward-attempt", text)]).attempt, attempt, "{text}");
        }
        for text in ["", "-1", "4", "high"] {
            assert_eq!(said(&[("onceward-priority", text)]).priority, None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_is_read_and_its_time_counts_on() {
        let mut headers = HeaderMap::new();
        headers.append(AttemptHeaders::ATTEMPT, HeaderValue::from_static("77"));
        let written = AttemptHeaders {
            attempt: Some(3),
            time: Some(Duration::from_millis(1_500)),
            priority: Some(Priority::LOW),
        };
        written.write(&mut headers);
        assert_eq!(AttemptHeaders::of(&headers), written);
        let incoming = Incoming::from(&headers);
        assert_eq!((incoming.attempt, incoming.priority), (3, Some(Priority::LOW)));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(incoming.remaining(), Some(Duration::from_secs(1)));
        assert!(!incoming.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(incoming.is_over());
    }
}
