//! What a client says about its request: how long it waits, how important it is, and how often it has
//! tried. Rules 14 and 28: read here, bounded, and written anew for the upstream.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward::retry::Priority;
use tokio::time::Instant;

pub(super) const DEADLINE: HeaderName = HeaderName::from_static("onceward-deadline");
pub(super) const PRIORITY: HeaderName = HeaderName::from_static("onceward-priority");
pub(super) const ATTEMPT: HeaderName = HeaderName::from_static("onceward-attempt");

/// Nobody waits for longer: a larger number is as good as this one.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// More attempts than these are not told apart.
const MOST_ATTEMPTS: u32 = 1_000;

/// What a client wishes; whatever it says that cannot be read was not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    /// When nobody waits for the answer any more.
    pub(super) deadline: Option<Instant>,
    pub(super) priority: Option<Priority>,
    /// Which attempt of the client this is, counted from 1.
    pub(super) attempt: u32,
    /// Whether it said so.
    pub(super) counts: bool,
    /// Whether a trusted proxy vouches for it.
    pub(super) is_trusted: bool,
}

impl Wishes {
    /// Nothing was said.
    pub(super) const NONE: Self =
        Self { deadline: None, priority: None, attempt: 1, counts: false, is_trusted: false };

    /// Takes them out of the headers.
    pub(super) fn take(lines: &mut HeaderMap, is_trusted: bool, arrived: Instant) -> Self {
        // Most requests say nothing of it.
        if !lines.keys().any(|name| name.as_str().starts_with("onceward-")) {
            return Self { is_trusted, ..Self::NONE };
        }
        let attempt =
            one(lines, &ATTEMPT).and_then(|text| number(&text)).filter(|count| *count > 0);
        let attempt = attempt.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let time = one(lines, &DEADLINE).and_then(|text| number(&text));
        let time = time.map(|millis| Duration::from_millis(millis).min(LONGEST));
        let priority = one(lines, &PRIORITY).and_then(|text| Priority::parse(&text));
        for name in [DEADLINE, PRIORITY, ATTEMPT] {
            lines.remove(name);
        }
        Self {
            deadline: time.map(|time| arrived + time),
            priority,
            attempt: attempt.unwrap_or(1).min(MOST_ATTEMPTS),
            counts: attempt.is_some(),
            is_trusted,
        }
    }

    /// How important it is: clients may ask for less than the route says, trusted proxies for anything.
    pub(super) fn priority(&self, of_route: Priority) -> Priority {
        match self.priority {
            None => of_route,
            Some(asked) if self.is_trusted => asked,
            Some(asked) => asked.min(of_route),
        }
    }

    /// What is left of the client's time; `None`: it did not say.
    pub(super) fn left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Whether the client has sent it before.
    pub(super) fn is_retry(&self) -> bool {
        self.attempt > 1
    }

    /// Tells the upstream: how long somebody waits for this attempt, and how important it is.
    pub(super) fn tell(&self, lines: &mut HeaderMap, patience: Duration, of_route: Priority) {
        if let Some(left) = self.left() {
            let millis = u64::try_from(left.min(patience).as_millis()).unwrap_or(u64::MAX);
            lines.insert(DEADLINE, HeaderValue::from(millis));
        }
        if self.priority.is_some() || of_route != Priority::NORMAL {
            let priority = u16::from(self.priority(of_route).number());
            lines.insert(PRIORITY, HeaderValue::from(priority));
        }
    }
}

/// The only line of this name.
fn one(lines: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut all = lines.get_all(name).iter();
    let (first, second) = (all.next()?, all.next());
    second.is_none().then(|| first.to_str().ok().map(|text| text.trim().to_owned()))?
}

/// A whole number, however long it is.
fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pairs: &[(&'static str, &'static str)], is_trusted: bool) -> (Wishes, Instant) {
        let mut lines = HeaderMap::new();
        for (name, value) in pairs {
            lines.append(*name, HeaderValue::from_static(value));
        }
        let now = Instant::now();
        let wishes = Wishes::take(&mut lines, is_trusted, now);
        assert!(lines.is_empty(), "they are made anew: {lines:?}");
        (wishes, now)
    }

    #[tokio::test]
    async fn a_deadline_is_a_number_of_milliseconds_and_bounded() {
        for (said, millis) in [
            ("250", Some(250)),
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("1000000000000000000", Some(86_400_000)),
            ("99999999999999999999999999", Some(86_400_000)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
            ("5, 6", None),
        ] {
            let (wishes, now) = taken(&[("onceward-deadline", said)], false);
            let expected = millis.map(|millis| now + Duration::from_millis(millis));
            assert_eq!(wishes.deadline, expected, "{said:?}");
        }
        let twice = [("onceward-deadline", "5"), ("onceward-deadline", "6")];
        assert_eq!(taken(&twice, false).0.deadline, None);
    }

    #[tokio::test]
    async fn attempts_are_counted_from_one_and_bounded() {
        for (said, attempt, counts) in [
            ("1", 1, true),
            ("3", 3, true),
            ("0", 1, false),
            ("4294967297", 1_000, true),
            ("-1", 1, false),
            ("two", 1, false),
        ] {
            let (wishes, _) = taken(&[("onceward-attempt", said)], false);
            assert_eq!((wishes.attempt, wishes.counts), (attempt, counts), "{said}");
        }
    }

    #[tokio::test]
    async fn a_client_lowers_its_priority_and_a_trusted_proxy_chooses() {
        for (said, is_trusted, of_route, expected) in [
            ("3", false, Priority::NORMAL, Priority::NORMAL),
            ("0", false, Priority::NORMAL, Priority::LOWEST),
            ("3", true, Priority::NORMAL, Priority::HIGHEST),
            ("1", true, Priority::HIGHEST, Priority::LOW),
            ("9", true, Priority::LOW, Priority::LOW),
        ] {
            let (wishes, _) = taken(&[("onceward-priority", said)], is_trusted);
            assert_eq!(wishes.priority(of_route), expected, "{said}");
        }
    }
}
